"""Equal queries of one file: each sequence is searched once, and each query is finished with its own name."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tool_batches import cut, need

pytestmark = pytest.mark.process

RUN = [sys.executable, "-m", "millrace", "run", "--slots", "2"]


@pytest.fixture
def folder(tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a database, and queries that each occur four times, under other names and in lines of other lengths."""
    need("blastp")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    made = tmp_path / "folder"
    made.mkdir()
    command = ["makeblastdb", "-in", data / "proteins_db.faa", "-dbtype", "prot", "-out", made / "db"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    _write_queries(made / "q.faa", cut((data / "proteins_queries.faa").read_bytes(), "fasta")[:10])
    return made


def _write_queries(path: Path, records: list[bytes]) -> None:
    choose = random.Random(3)
    queries = [
        (f"copy{number} of {at}", b"".join(record.split(b"\n")[1:]).decode())
        for number in range(4)
        for at, record in enumerate(records)
    ]
    choose.shuffle(queries)
    with path.open("w") as file:
        for name, letters in queries:
            width = choose.choice((50, 60, len(letters)))
            lines = "\n".join(letters[at : at + width] for at in range(0, len(letters), width))
            file.write(f">{name}\n{lines}\n")


def _check(folder: Path, command: list[str], *options: str) -> str:
    """Run a command by Millrace and without it, and compare; return what Millrace said."""
    (folder / "ours").unlink(missing_ok=True)
    done = subprocess.run(
        [*RUN, *options, "--", *command, "-out", "ours"], cwd=folder, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    subprocess.run([*command, "-out", "serial"], cwd=folder, check=True)
    assert (folder / "ours").read_bytes() == (folder / "serial").read_bytes()
    assert not list(folder.glob("*.millrace"))
    return done.stderr


def _search(outfmt: str, evalue: str = "1e-3") -> list[str]:
    return ["blastp", "-query", "q.faa", "-db", "db", "-evalue", evalue, "-outfmt", outfmt]


def test_equal_queries_are_searched_once(folder: Path) -> None:
    assert "10 of 40 queries are different: each is searched once" in _check(folder, _search("7"))
    # A few short queries are searched sooner than it takes to plan that.
    (folder / "q.faa").write_bytes(b">a\nMKVLAAGIVGLLLAQWTYRND\n>b\nMKVLAAGIVGLLLAQWTYRND\n")
    assert "searched once" not in _check(folder, _search("7"))


@pytest.mark.slow
@pytest.mark.parametrize("outfmt", ["0", "5", "6", "7", "10", "15"])
def test_equal_queries_have_results_in_each_format(outfmt: str, folder: Path) -> None:
    assert "each is searched once" in _check(folder, _search(outfmt))
    assert "each is searched once" in _check(folder, [*_search(outfmt), "-max_target_seqs", "5"], "--store", "store")
    assert "40 of 40 queries known" not in _check(folder, _search("6", "1"), "--store", "store")


@pytest.mark.slow
def test_equal_queries_of_psiblast_are_searched_once(folder: Path) -> None:
    assert "each is searched once" in _check(folder, ["psiblast", *_search("0")[1:]])


@pytest.mark.slow
def test_equal_nucleotide_queries_are_searched_once(folder: Path, data: Path) -> None:
    command = ["makeblastdb", "-in", data / "genes_db.fna", "-dbtype", "nucl", "-out", folder / "db"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    _write_queries(folder / "q.faa", cut((data / "contigs.fna").read_bytes(), "fasta")[:250])
    search = ["blastn", "-task", "blastn", "-query", "q.faa", "-db", "db", "-evalue", "1e-10", "-outfmt", "6"]
    print(_check(folder, search))


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_stopped_search_of_equal_queries_resumes(number: int, folder: Path) -> None:
    command = [*RUN, "--", *_search("6"), "-out", "ours"]
    process = subprocess.Popen(command, cwd=folder, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 300
    while not list(folder.glob("*.millrace/distinct/run/journal.mrj")) and time.monotonic() < deadline:
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(number)
    assert process.wait(300) in (128 + number, -number)
    assert not (folder / "ours").exists()
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    assert "each is searched once" in done.stderr
    subprocess.run([*_search("6"), "-out", "serial"], cwd=folder, check=True)
    assert (folder / "ours").read_bytes() == (folder / "serial").read_bytes()
    assert not list(folder.glob("*.millrace"))
