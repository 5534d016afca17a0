"""`run --pack-to`: the result is packed while it is made, and never lies in a file."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from harness import wait_until
from tool_batches import need

from millrace.extensions.pack import pack_unpacker

MILLRACE = [sys.executable, "-m", "millrace"]


def ask(folder: Path, *arguments: str, stdin: int | None = subprocess.DEVNULL) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*MILLRACE, *arguments], cwd=folder, capture_output=True, text=True, stdin=stdin, timeout=540)


@pytest.fixture
def place(bench_of: Path, tmp_path: Path) -> Path:
    for pattern in ("prot.*", "p.hmm*", "q.faa", "q3.faa"):
        for path in bench_of.glob(pattern):
            (tmp_path / path.name).symlink_to(path)
    return tmp_path


def serial(folder: Path, command: str) -> bytes:
    need(command.split()[0])
    return subprocess.run(shlex.split(command), cwd=folder, check=True, capture_output=True).stdout


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if not path.is_symlink()}


def test_result_is_packed_during_the_run(place: Path) -> None:
    expected = serial(place, "blastp -query q3.faa -db prot -outfmt 0")
    command = "blastp -query q3.faa -db prot -outfmt 0 -num_threads 2 -out out"
    told = ask(place, "run", "--pack-to", "r.mrp", "--with-queries", "--fragments", "2", "--", *command.split())
    assert told.returncode == 0, told.stderr
    assert names(place) == {"r.mrp"}
    assert pack_unpacker.read_recipe(place / "r.mrp").codec == "blast"
    told = ask(place, "unpack", "r.mrp", "--yes", "-o", "again")
    assert told.returncode == 0, told.stderr
    assert (place / "again").read_bytes() == expected


def test_reports_name_the_paths_as_typed(place: Path) -> None:
    command = "hmmscan -o out --tblout t --domtblout d p.hmm q.faa"
    serial(place, command)
    told = ask(place, "run", "--pack-to", "r.mrp", "--keep-run-dir", "--", *command.split())
    assert told.returncode == 0, told.stderr
    # What it has written is known from the run that was kept.
    for name in ("out", "tblout", "domtblout"):
        assert ask(place, "gather", "r.mrp.millrace", "--stream", name, "-o", f"written-{name}").returncode == 0
    told = ask(place, "unpack", "r.mrp", "--yes", "--queries", "q.faa", "-o", "again", "-o", "again-t", "-o", "again-d")
    assert told.returncode == 0, told.stderr
    for name, again in (("out", "again"), ("tblout", "again-t"), ("domtblout", "again-d")):
        assert (place / again).read_bytes() == (place / f"written-{name}").read_bytes()
    assert b"output directed to file:         out\n" in (place / "again").read_bytes()


def held(folder: Path) -> Path:
    """A ``blastp`` in ``bin`` that waits from its twelfth call on, until the file ``hold`` is gone."""
    (folder / "bin").mkdir()
    (folder / "calls").mkdir()
    (folder / "hold").touch()
    wrapper = folder / "bin/blastp"
    wrapper.write_text(
        f"""#!/bin/sh
mktemp {folder}/calls/XXXXXXXX >/dev/null
if [ -e {folder}/hold ] && [ "$(ls {folder}/calls | wc -l)" -gt 12 ]; then
  touch {folder}/waits
  while [ -e {folder}/hold ]; do sleep 0.1; done
fi
exec {need("blastp")} "$@"
"""
    )
    wrapper.chmod(0o755)
    return wrapper.parent


@pytest.mark.slow
def test_killed_packing_run_resumes(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = shlex.split("blastp -query q.faa -db prot -outfmt 6 -max_target_seqs 5 -out out")
    run = ["run", "--pack-to", "r.mrp", "--batch", "3", "--", *command]
    expected = place / "out"
    serial(place, shlex.join(command))
    monkeypatch.setenv("PATH", f"{held(place)}:{os.environ['PATH']}")
    process = subprocess.Popen(
        [*MILLRACE, *run], cwd=place, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    assert wait_until((place / "waits").exists, process)
    os.killpg(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert {".r.mrp.packing", "r.mrp.millrace"} <= names(place)
    (place / "hold").unlink()
    told = ask(place, *run)
    assert told.returncode == 0, told.stderr
    assert not {".r.mrp.packing", "r.mrp.millrace"} & names(place)
    assert ask(place, "unpack", "r.mrp", "--yes", "--queries", "q.faa", "-o", "again").returncode == 0
    assert (place / "again").read_bytes() == expected.read_bytes()


def test_result_without_codec_is_compressed_as_a_stream(place: Path) -> None:
    with (place / "q.faa").open() as queries:
        told = ask(place, "run", "--pack-to", "r.mrp", "--format", "fasta", "--", "cat", stdin=queries.fileno())
    assert told.returncode == 0, told.stderr
    assert "compressed with zstd" in told.stderr
    assert ask(place, "unpack", "r.mrp", "-o", "again").returncode == 0
    assert (place / "again").read_bytes() == (place / "q.faa").read_bytes()


def test_unpackable_run_is_refused_before_the_start(place: Path) -> None:
    command = ["blastp", "-query", "q.faa", "-db", "prot", "-out", "out"]
    (place / "notes.txt").write_text("mine")
    for words, arguments in (
        ("is no pack", ["--pack-to", "notes.txt", "--", *command]),
        ("is a link", ["--pack-to", "q.faa", "--", *command]),
        ("one machine", ["--pack-to", "r.mrp", "--hosts", "a,b", "--", *command]),
        ("belongs to --pack-to", ["--with-queries", "--", *command]),
    ):
        told = ask(place, "run", *arguments)
        assert told.returncode == 2, told.stderr
        assert words in told.stderr
    assert names(place) == {"notes.txt"}
    assert (place / "notes.txt").read_text() == "mine"
