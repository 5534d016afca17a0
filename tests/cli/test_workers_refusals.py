"""``millrace workers`` refuses what cannot work before anything starts."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from pathlib import Path

import pytest
from in_process_cli import told

from millrace.cli.workers import command


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("slurm", "--max", "2", "--time", "soon"), "--time soon: not a wall time"),
        (("slurm", "--max", "2", "--time", "0:30"), "--time 0:30: too short\n\nhint: at least 1 min"),
        (("slurm", "--max", "2", "--time", "30m"), "sbatch: not found here"),
        (
            ("slurm", "--max", "2", "--time", "30m", "--mem", "lots"),
            "--mem lots: not a size of memory\n\nhint: as in 4G",
        ),
        (("sge", "--max", "2", "--time", "2h"), "qsub: not found here"),
        (("slurm", "--max", "0", "--time", "30m"), "0 is not in the range"),
        (("slurm", "--time", "30m"), "Missing option '--max'"),
        (("ssh", ""), "(empty): not the name of a host"),
        (("ssh", "--", "-oProxyCommand=x"), "-oProxyCommand=x: not the name of a host"),
    ],
)
def test_workers_that_cannot_be_are_refused(
    words: tuple[str, ...], expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    code, said = told(command, *words)
    assert code == 2 and expected in said
    assert not [*tmp_path.iterdir()]


def test_scheduler_file_in_use_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    file = tmp_path / "w.json"
    with file.open("w") as other:
        other.write("theirs")
        other.flush()
        fcntl.flock(other, fcntl.LOCK_EX)
        code, said = told(command, "ssh", "nowhere", "--file", str(file))
    assert code == 2 and "another millrace workers has this scheduler file" in said
    assert file.read_text() == "theirs"


def test_scheduler_file_that_cannot_be_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    code, said = told(command, "ssh", "nowhere", "--file", str(tmp_path / "no" / "w.json"))
    assert code == 2 and "No such file or directory" in said and "--file" in said


def test_unknown_interface_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    file = tmp_path / "w.json"
    done = subprocess.run(
        [sys.executable, "-m", "millrace", "workers", "ssh", "nowhere", "--file", file, "--interface", "none0"],
        capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 2 and "none0" in done.stderr and "--interface" in done.stderr, done.stderr
    assert not [*tmp_path.iterdir()]
