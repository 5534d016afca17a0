"""Tools that read copies of their databases give the serial bytes, the database's path in them included."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from parameter_choice import again, some
from tool_batches import need

from millrace.storage import staging_choice
from millrace.storage.bind_mounts import find_mount_problem

MILLRACE = [sys.executable, "-m", "millrace"]

#: Says what the tool reads: the number of its database's file, and its first bytes.
TOOL = """#!/bin/sh
cat > /dev/null
stat -L -c %i "$1"
id -u
head -c 3 "$1"
"""


@pytest.fixture(autouse=True)
def possible(tmp_path: Path) -> None:
    if reason := find_mount_problem(str(tmp_path)):
        pytest.skip(reason)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A folder for copies."""
    (tmp_path / "store").mkdir()
    return tmp_path / "store"


@pytest.mark.parametrize("command", [
    "blastp -query q3.faa -db {folder}/prot -outfmt 7 -evalue 1e-3 -out out",
    again("blastp -query q3.faa -db {folder}/prot -outfmt 5 -evalue 1e-3 -out out"),
    again("blastp -query q3.faa -db prot -outfmt 0 -evalue 1e-3 -out out"),
    "hmmsearch --tblout out {folder}/p.hmm {folder}/prot.faa",
    "hmmscan --tblout out {folder}/p.hmm q3.faa",
])  # fmt: skip
@pytest.mark.parametrize("fragments", some(["1", "3"], "3"))
def test_bytes_are_the_serial_ones(bench_of: Path, tmp_path: Path, store: Path, command: str, fragments: str) -> None:
    words = shlex.split(command.format(folder=bench_of))
    need(words[0])
    for name in ("q3.faa", "p.hmm"):
        shutil.copy(bench_of / name, tmp_path)
    if "prot" in words:  # beside a database elsewhere, files of its name would be taken for its volumes
        for path in bench_of.glob("prot.*"):
            shutil.copy(path, tmp_path)
    options = ["--slots", "2", "--batch", "2", "--fragments", fragments, "--stage", str(store)]
    done = subprocess.run([*MILLRACE, "run", *options, "--", *words], cwd=tmp_path, capture_output=True, timeout=300)
    assert done.returncode == 0, done.stderr.decode()
    assert b"copied to the local disk of" in done.stderr
    ours = (tmp_path / "out").read_bytes()
    subprocess.run(words, cwd=tmp_path, check=True, stdout=subprocess.DEVNULL)
    assert without_dates(ours) == without_dates((tmp_path / "out").read_bytes())


def without_dates(text: bytes) -> bytes:
    return b"\n".join(line for line in text.split(b"\n") if not line.startswith((b"# Date:", b"# Current dir:")))


def make(folder: Path) -> None:
    """A tool that says what its database is."""
    (folder / "tool").write_text(TOOL)
    (folder / "tool").chmod(0o755)
    (folder / "db").write_bytes(b"old" + bytes(10_000))
    (folder / "in.fa").write_text(">a\nA\n")


def said(folder: Path, place: str) -> tuple[str, bytes]:
    """What the tool says, and what Millrace does."""
    with (folder / "in.fa").open("rb") as stdin:
        done = subprocess.run(
            [*MILLRACE, "run", "--stage", place, *tool_words(folder)], cwd=folder, stdin=stdin, capture_output=True, timeout=300
        )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode(), done.stderr


def tool_words(folder: Path) -> list[str]:
    return ["--shared", "db", "--format", "fasta", "--progress", "none", "--", "./tool", str(folder / "db")]


def test_tool_reads_the_copy_and_next_job_reuses_it(tmp_path: Path, store: Path) -> None:
    make(tmp_path)
    inode = (tmp_path / "db").stat().st_ino
    first, words = said(tmp_path, str(store))
    assert first.split()[0] != str(inode)
    assert first.split()[1:] == [str(os.getuid()), "old"]
    assert b"copied to the local disk of" in words
    again, words = said(tmp_path, str(store))
    assert again == first
    assert b"kept by an earlier job" in words
    (tmp_path / "db").write_bytes(b"new" + bytes(10_000))
    changed, words = said(tmp_path, str(store))
    assert changed.split()[2] == "new"
    assert b"copied to the local disk of" in words


#: Millrace in which somebody writes a database, in place, when a part of it has been copied.
WRITTEN_MEANWHILE = """
import os
from millrace.cli import main
from millrace.storage import broadcast

read = broadcast._PieceReader._read_from_file

def read_and_write(self, piece, buffer):
    read(self, piece, buffer)
    if piece.offset == 0:
        {deed}

broadcast._PieceReader._read_from_file = read_and_write
main()
"""

DEEDS = {
    "written": "file = open('db', 'r+b'); file.seek(3 << 20); file.write(b'new'); file.close()",
    "replaced": "open('other', 'wb').write(b'new' + bytes(3 << 20)); os.rename('db', 'kept'); os.rename('other', 'db')",
}


@pytest.mark.parametrize("deed", DEEDS)
def test_copy_of_a_changed_database_is_never_used(tmp_path: Path, store: Path, deed: str) -> None:
    """Name, size and time are as before."""
    make(tmp_path)
    (tmp_path / "tool").write_text('#!/bin/sh\ncat > /dev/null\nhead -c 3 "$1"\ncksum < "$1"\n')
    content = b"old" + os.urandom(3 << 20)
    (tmp_path / "db").write_bytes(content)
    shutil.copy2(tmp_path / "db", tmp_path / "backup")
    program = WRITTEN_MEANWHILE.format(deed=DEEDS[deed])
    with (tmp_path / "in.fa").open("rb") as stdin:
        done = subprocess.run(
            [sys.executable, "-c", program, "run", "--stage", str(store), *tool_words(tmp_path)], cwd=tmp_path, stdin=stdin,
            capture_output=True, text=True, timeout=300,
        )  # fmt: skip
    assert done.returncode == 5 and "db: it changed while it was copied" in done.stderr, done.stderr
    # As it was, by name, size, time of change and, where it was moved, the file itself.
    if deed == "replaced":
        os.rename(tmp_path / "kept", tmp_path / "db")
    else:
        subprocess.run(["cp", "-p", "backup", "db"], cwd=tmp_path, check=True)
    text, words = said(tmp_path, str(store))
    assert b"copied to the local disk of" in words
    sums = subprocess.run(["cksum"], input=content, capture_output=True, check=True).stdout
    assert text == "old" + sums.decode()


def test_a_copy_in_memory(tmp_path: Path) -> None:
    make(tmp_path)
    (file,) = staging_choice.list_database_files([Path("db")], tmp_path)
    copy = Path(f"/dev/shm/millrace-stage-{os.getuid()}") / file.key
    try:
        text, words = said(tmp_path, "ram")
        assert b"copied to the memory of" in words
        assert text.split()[0] == str(copy.stat().st_ino)
    finally:
        copy.unlink(missing_ok=True)


def test_database_without_room_for_a_copy_is_read_in_place(tmp_path: Path) -> None:
    make(tmp_path)
    text, words = said(tmp_path, "/proc")
    assert text.split()[0] == str((tmp_path / "db").stat().st_ino)
    assert b"reads them in place: no local disk" in words


def test_plan_reports_places_of_copies(tmp_path: Path) -> None:
    make(tmp_path)
    with (tmp_path / "in.fa").open("rb") as stdin:
        text = subprocess.run(
            [*MILLRACE, "plan", "--stage", "ram", *tool_words(tmp_path)], cwd=tmp_path, stdin=stdin, capture_output=True, text=True
        ).stdout  # fmt: skip
    assert "databases: 10 kB, of which the node lacks 10 kB" in text
    assert "databases: --stage ram, as asked" in text
