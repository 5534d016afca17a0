"""The example of docs/workflows.md on real data: the bytes of a shell, also killed and resumed."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from harness import take, wait_until
from shell import Shell

REPO = Path(__file__).resolve().parents[2]
PAGE = REPO / "docs" / "workflows.md"
TOOLS = ("blastp", "muscle3", "hmmbuild", "hmmsearch")

#: What is of the day or the clock in the report of hmmsearch.
VOLATILE = re.compile(rb"^# (?:CPU time|Mc/sec|Date|Current dir):?.*$", re.MULTILINE)


def block(language: str) -> str:
    """The first block of a language on the page."""
    return PAGE.read_text().partition(f"```{language}\n")[2].partition("```")[0]


def prepare(folder: Path, data: Path, n_queries: int) -> None:
    records = (data / "proteins_db.faa").read_bytes().split(b"\n>")[::6]
    (folder / "targets.faa").write_bytes(b"\n>".join(records) + b"\n")
    take(data / "proteins_queries.faa", folder / "queries.faa", n_queries)
    subprocess.run(
        ["makeblastdb", "-in", "targets.faa", "-dbtype", "prot", "-out", "targets"],
        cwd=folder,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    (folder / "families.py").write_text(block("python"))
    (folder / "job.toml").write_text(block("toml"))
    (folder / "steps.sh").write_text(block("sh"))


def results(folder: Path) -> dict[str, bytes]:
    names = [
        "hits.tsv",
        "profiles.hmm",
        "scan.tbl",
        "scan.txt",
        *(str(path.relative_to(folder)) for each in ("families", "aligned") for path in (folder / each).iterdir()),
    ]
    return {name: VOLATILE.sub(b"", (folder / name).read_bytes()) for name in names}


def test_example_writes_the_bytes_of_the_shell(shell: Shell, data: Path) -> None:
    """Also when it is killed and resumed."""
    if missing := [tool for tool in TOOLS if not shutil.which(tool)]:
        pytest.skip(f"missing: {', '.join(missing)}")
    serial = shell.root / "serial"
    serial.mkdir()
    for folder in (shell.work, serial):
        prepare(folder, data, 15)
    subprocess.run(["bash", "-e", "steps.sh"], cwd=serial, check=True)
    expected = results(serial)
    assert sum(name.startswith("aligned/") for name in expected) >= 2, "the data show nothing"
    aligned = shell.work / "aligned"
    environ = {**os.environ, "PATH": f"{shell.root / 'bin'}:{os.environ['PATH']}", "MARK": str(shell.root)}
    with subprocess.Popen(
        ["millrace", "run", "-q", "job.toml"], cwd=shell.work, env=environ, stdin=subprocess.DEVNULL
    ) as process:
        assert wait_until(lambda: (aligned.is_dir() and any(aligned.iterdir())) or process.poll() is not None)
        process.send_signal(signal.SIGKILL)
    assert wait_until(lambda: not shell.processes())
    done = shell.run("millrace run job.toml")
    assert done.code == 0, done.shown
    assert results(shell.work) == expected
    assert not shell.run_dirs()


def test_page_shows_the_files_of_the_example() -> None:
    for language, name in (("toml", "job.toml"), ("python", "families.py"), ("sh", "steps.sh")):
        assert block(language) == (REPO / "examples" / "five-step-workflow" / name).read_text()
