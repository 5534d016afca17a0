"""`run --pack-to`: the hits are packed as they are found, and the result is never computed there."""

from __future__ import annotations

import os
import re
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
    told = ask(
        place, "run", "--pack-to", "r.mrp", "--with-queries", "--fragments", "2", "--verify-pack", "0.1", "--",
        *command.split(),
    )  # fmt: skip
    assert told.returncode == 0, told.stderr
    assert "by the command itself" in told.stderr
    assert names(place) == {"r.mrp"}
    assert pack_unpacker.read_recipe(place / "r.mrp").codec == "blast"
    told = ask(place, "unpack", "r.mrp", "--yes", "-o", "again")
    assert told.returncode == 0, told.stderr
    assert (place / "again").read_bytes() == expected


#: What HMMER measures at each search, and where another one ran: lines of reports, and at the end of tables.
MEASURED = re.compile(rb"^# (CPU time|Mc/sec|Date):.*$", re.MULTILINE)


@pytest.mark.slow
def test_outputs_are_those_of_the_command_where_it_was_typed(place: Path) -> None:
    """Paths as typed and the working folder, although another name was searched elsewhere on another day."""
    (place / "in").mkdir()
    (place / "in" / "q.faa").symlink_to((place / "q.faa").readlink())
    command = f"hmmscan -o out --tblout {place}/t --domtblout ./d p.hmm in/q.faa"
    serial(place, command)
    expected = {name: (place / name).read_bytes() for name in ("out", "t", "d")}
    elsewhere = place / "else where"
    elsewhere.mkdir()
    told = ask(place, "run", "--pack-to", "r.mrp", "--keep-run-dir", "--verify-pack", "0.1", "--", *command.split())
    assert told.returncode == 0, told.stderr
    told = ask(
        elsewhere, "unpack", "../r.mrp", "--yes", "--db", "../p.hmm", "--queries", "../q.faa", "-o", "out", "-o", "t", "-o", "d"
    )  # fmt: skip
    assert told.returncode == 0, told.stderr
    assert "by the same version, queries and database" in told.stderr
    for name, before in expected.items():
        assert MEASURED.sub(b"", (elsewhere / name).read_bytes()) == MEASURED.sub(b"", before)
    assert f"# Current dir:     {place}\n".encode() in (elsewhere / "t").read_bytes()
    # The directory of such a run has no result to pack or gather.
    for arguments in (["pack", "r.mrp.millrace", "-o", "other.mrp"], ["gather", "r.mrp.millrace", "--stream", "out"]):
        told = ask(place, *arguments)
        assert told.returncode == 2, told.stderr


@pytest.mark.slow
def test_another_database_or_version_is_refused(place: Path, tmp_path: Path) -> None:
    """Nothing else shows that the result is that of the command."""
    command = "blastp -query q3.faa -db prot -outfmt 6 -out out"
    told = ask(place, "run", "--pack-to", "r.mrp", "--with-queries", "--", *command.split())
    assert told.returncode == 0, told.stderr
    (place / "other").mkdir()
    made = ["makeblastdb", "-in", "q.faa", "-dbtype", "prot", "-out", "other/prot"]
    subprocess.run(made, cwd=place, check=True, stdout=subprocess.DEVNULL)
    for words, arguments in (("that one had", ["--db", "other/prot"]), ("here is blastp", ["--any-version"])):
        if arguments == ["--any-version"]:
            wrapper = place / "bin" / "blastp"
            wrapper.parent.mkdir()
            wrapper.write_text(
                f'#!/bin/sh\n[ "$1" != -version ] || {{ echo "blastp: 9.9.9+"; exit; }}\nexec {need("blastp")} "$@"\n'
            )
            wrapper.chmod(0o755)
        path = f"{place}/bin:{os.environ['PATH']}"
        told = subprocess.run(
            [*MILLRACE, "unpack", "r.mrp", "--yes", "-o", "again", *arguments], cwd=place, capture_output=True, text=True,
            stdin=subprocess.DEVNULL, env={**os.environ, "PATH": path}, timeout=540,
        )  # fmt: skip
        assert (told.returncode, words in told.stderr) == (2, True), told.stderr
        assert not (place / "again").exists()


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
        ("belongs to --pack-to", ["--with-queries", "--", *command]),
        ("belongs to --pack-to", ["--verify-pack", "0.5", "--", *command]),
        ("--verify-pack", ["--pack-to", "r.mrp", "--verify-pack", "1", "--", *command, "-seqidlist", "q.faa"]),
    ):
        told = ask(place, "run", *arguments)
        assert told.returncode == 2, told.stderr
        assert words in told.stderr
    assert names(place) == {"notes.txt"}
    assert (place / "notes.txt").read_text() == "mine"
