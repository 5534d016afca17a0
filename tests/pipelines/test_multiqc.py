"""``millrace report --multiqc``: files that MultiQC shows."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
import yaml
from public_tools import install_packages
from shell import Shell

import millrace


def test_multiqc_files_of_a_run_that_is_gone(shell: Shell) -> None:
    """The event log in the user's state folder is enough."""
    state = f"export XDG_STATE_HOME={shell.root}/state"
    done = shell.run(
        f"{state}; millrace run -q --input in.fa --output o -- tee2 in.fa o && mkdir qc && millrace report o --multiqc qc"
    )
    assert (done.code, done.out) == (0, "qc/o_mqc.json\nqc/o_mqc_versions.yml\n"), done.shown
    table = json.loads((shell.work / "qc" / "o_mqc.json").read_text())
    row = table["data"]["o"]
    assert (row["records"], row["status"]) == (3, "done") and row.keys() == table["headers"].keys()
    versions = yaml.safe_load((shell.work / "qc" / "o_mqc_versions.yml").read_text())
    assert versions == {"TEE2": {"tee2": "unknown", "millrace": millrace.__version__}}


def test_multiqc_folder_that_is_missing_is_refused(kept: Shell) -> None:
    done = kept.run("millrace report out.fa --multiqc none")
    assert done.code == 2 and "none: no such folder" in done.err, done.shown


@pytest.mark.slow
def test_multiqc_shows_the_runs(kept: Shell, session_folder: Path) -> None:
    kept.run("mkdir qc; millrace run -q --keep-run-dir --input q.fa --output o2 -- mask q.fa o2")
    for name in ("out.fa", "o2"):
        assert kept.run(f"millrace report {name} --multiqc qc").code == 0
    program = install_packages(session_folder, "multiqc") / "multiqc"
    told = subprocess.run(
        [program, "--strict", "--no-version-check", "-o", "made", "qc"],
        cwd=kept.work,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert told.returncode == 0, told.stdout + told.stderr
    made = kept.work / "made"
    rows = {
        line.split("\t")[0]
        for line in (made / "multiqc_data" / "multiqc_millrace_runs.txt").read_text().splitlines()[1:]
    }
    assert rows == {"out", "o2"}  # as MultiQC shortens names
    page = (made / "multiqc_report.html").read_text()
    assert "Millrace" in page and millrace.__version__ in page
