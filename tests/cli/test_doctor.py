"""What ``millrace doctor`` tells."""

from __future__ import annotations

import json
import os
import platform

import pytest
from shell import Shell


def test_doctor_reports_versions_cores_memory_and_tools(shell: Shell) -> None:
    ended = shell.run("millrace doctor")
    assert ended.code == 0, ended.shown
    for words in (platform.python_version(), platform.release(), "cores:", "work:", "pidfd:", "blastp"):
        assert words in ended.out, ended.shown


def test_doctor_as_json(shell: Shell) -> None:
    shell.tool("vina", "echo AutoDock Vina v9.9.9")
    ended = shell.run("millrace doctor --json")
    found = json.loads(ended.out)
    assert 1 <= found["cores"] <= (os.cpu_count() or 1) and found["cores_why"]
    assert found["work_dir"] and found["work_filesystem"] and found["work_free"] > 0
    vina = next(tool for tool in found["tools"] if tool["name"] == "vina")
    assert vina["path"] == str(shell.root / "bin" / "vina")
    assert vina["version"] == "AutoDock Vina v9.9.9"


def test_doctor_reports_install_commands_for_missing_tools(shell: Shell) -> None:
    ended = shell.run("m=$(command -v millrace); PATH= $m doctor")
    assert ended.code == 0, ended.shown
    assert "not found; apt-get install ncbi-blast+" in ended.out, ended.shown


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core: nothing less can be granted")
def test_doctor_cores_are_those_of_the_batch_system(shell: Shell) -> None:
    found = json.loads(shell.run("NSLOTS=1 millrace doctor --json").out)
    assert found["cores"] == 1 and "granted by Grid Engine: NSLOTS; of " in found["cores_why"]
    planned = shell.run("NSLOTS=1 millrace plan --format fasta -- copy < in.fa").out
    assert "slots: 1 (granted by Grid Engine: NSLOTS; of " in planned, planned
