"""BLAST writes nothing for an empty or blank file, and a banner and a footer for an empty pipe: all come out as they are."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from exact_cases import MILLRACE
from parameter_choice import again
from tool_batches import need


@pytest.fixture
def folder(bench_of: Path, tmp_path: Path) -> Path:
    need("psiblast")
    for file in bench_of.glob("prot.*"):
        shutil.copy(file, tmp_path)
    (tmp_path / "empty.faa").touch()
    (tmp_path / "blank.faa").write_bytes(b"\n \t\r\n\f\n")
    return tmp_path


@pytest.mark.parametrize("program", ["blastp", again("psiblast")])
@pytest.mark.parametrize("fmt", ["0", "5", "6", again("7"), again("11"), again("15"), again("16")])
@pytest.mark.parametrize(
    "line",
    [
        "printf '' | {}",
        "{} -query <(printf '')",
        "{} -query blank.faa",
        "{} -query <(printf '>a\\nMKVLAAGIVG\\n')",
        again("printf '' | {} -query -"),
        again("{} < empty.faa"),
    ],
)
def test_queries_without_records_give_serial_bytes(folder: Path, program: str, fmt: str, line: str) -> None:
    command = f"{program} -db prot -outfmt {fmt}"

    def said(command: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(["bash", "-c", line.format(command)], cwd=folder, capture_output=True, check=False)

    alone, through = said(command), said(f"{shlex.join(MILLRACE)} run -q --progress none -- {command}")
    assert (through.returncode, through.stdout) == (alone.returncode, alone.stdout), through.stderr
