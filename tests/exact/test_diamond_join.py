"""DIAMOND in batches gives the bytes of one serial run."""

from __future__ import annotations

import random
import re
import subprocess
from pathlib import Path

import pytest
from exact_cases import MILLRACE
from parameter_choice import some
from tool_batches import call, cut, in_batches, need, understand

from millrace.adapters.diamond import parse_header_letters
from millrace.core.errors import ExitCode

#: Batches are few: each reads the database once.
SIZES = (7,)


@pytest.fixture(scope="module")
def search(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working directory with a small database and queries of both kinds."""
    need("diamond")
    cwd = tmp_path_factory.mktemp("diamond")
    records = cut((data / "proteins_db.faa").read_bytes(), "fasta")
    (cwd / "db.faa").write_bytes(b"".join(records[:1500] + records[8000:9000]))
    (cwd / "q.faa").write_bytes(b"".join(cut((data / "proteins_queries.faa").read_bytes(), "fasta")[:12]))
    (cwd / "g.fna").write_bytes(b"".join(cut((data / "genes_db.fna").read_bytes(), "fasta")[:12]))
    call(["diamond", "makedb", "--in", "db.faa", "-d", "db", "--quiet"], cwd)
    return cwd


def check(search: Path, command: list[str], tmp_path: Path) -> None:
    (tmp_path / "serial").mkdir()
    for name in ("q.faa", "g.fna"):
        (tmp_path / "serial" / name).write_bytes((search / name).read_bytes())
    command = [str(search / "db") if word == "db" else word for word in command]
    use = understand(command, tmp_path / "serial")
    call(command, tmp_path / "serial")
    text = (tmp_path / "serial" / use.inputs[0].path).read_bytes()
    for size in SIZES:
        joined = in_batches(use, text, size, tmp_path)
        for output in use.outputs:
            assert joined[output.name] == (tmp_path / "serial" / output.path).read_bytes(), (
                size,
                output.name,
            )


@pytest.mark.parametrize(
    "options",
    some(
        [
            [],
            ["--top", "5"],
            ["-k", "1"],
            ["-k0", "--max-hsps", "0"],
            ["--sensitive"],
            ["--fast"],
            ["--algo", "1"],
            ["--algo", "ctg"],
            ["--swipe"],
            ["-b", "0.0005"],
            ["-f", "6", "qseqid", "sseqid", "evalue", "cigar"],
            ["--header"],
            ["--header", "simple"],
            ["--header", "-p", "2"],
            ["-f", "0", "--unal", "0"],
            ["-f", "5", "--unal", "0"],
            ["-f", "101"],
            ["-f", "103"],
            ["--un", "un.faa", "--al", "al.faa"],
        ],
        [],
        ["-k0", "--max-hsps", "0"],
        ["--header", "-p", "2"],
        ["-f", "5", "--unal", "0"],
        ["-f", "101"],
        ["--un", "un.faa", "--al", "al.faa"],
    ),
    ids=" ".join,
)
def test_blastp_joins_exactly(search: Path, tmp_path: Path, options: list[str]) -> None:
    check(search, ["diamond", "blastp", "-q", "q.faa", "-d", "db", "-o", "out", *options], tmp_path)


@pytest.mark.parametrize(
    "options",
    some(
        [[], ["-F", "15"], ["--long-reads"], ["--strand", "plus"], ["-f", "0", "--unal", "0"], ["-f", "101"]],
        ["-F", "15"],
    ),
    ids=" ".join,
)
def test_blastx_joins_exactly(search: Path, tmp_path: Path, options: list[str]) -> None:
    check(search, ["diamond", "blastx", "--query", "g.fna", "--db", "db", "--out", "out", *options], tmp_path)


@pytest.mark.parametrize(
    "options", some(["-f 101", "", "-p 1 -f 101", "--header", "--ignore-warnings -f 101"], "-f 101")
)
@pytest.mark.parametrize("place", [0, 12])
def test_proteins_like_nucleotides_are_searched(search: Path, tmp_path: Path, options: str, place: int) -> None:
    """DIAMOND takes them for a mistake of the user at the start of a file, and with batches each is at a start."""
    records, like = cut((search / "q.faa").read_bytes(), "fasta"), random.Random(1).choices(b"ACGTN", k=90)
    records.append(b">like\n" + bytes(like) + b"\n")
    (tmp_path / "db.faa").write_bytes(b"".join(records))
    call(["diamond", "makedb", "--in", "db.faa", "-d", "db", "--quiet"], tmp_path)
    records.insert(place, records.pop())
    (tmp_path / "q.faa").write_bytes(b"".join(records))
    command = ["diamond", "blastp", "-q", "q.faa", "-d", "db", "--quiet", *options.split()]
    serial = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False)
    ours = [*MILLRACE, "run", "-q", "--batch", "1", "--slots", "2", "--", *command]
    found = subprocess.run(ours, cwd=tmp_path, capture_output=True, stdin=subprocess.DEVNULL, check=False)
    if serial.returncode:
        assert place == 0 and found.returncode == ExitCode.REFUSED and b"looks like nucleotides" in found.stderr
    else:
        assert (found.returncode, found.stdout) == (ExitCode.DONE, serial.stdout), found.stderr
        assert b"\nlike\t" in b"\n" + found.stdout


@pytest.mark.parametrize("options", ["-f 6", "-f 5 --unal 0"])
def test_empty_query_is_refused_with_xml_alone(search: Path, tmp_path: Path, options: str) -> None:
    """Whether DIAMOND counts it in the numbers of XML depends on the release; tabular output has no numbers."""
    (tmp_path / "q.faa").write_bytes(b">empty\n" + (search / "q.faa").read_bytes())
    command = ["diamond", "blastp", "-q", "q.faa", "-d", str(search / "db"), *options.split(), "--quiet"]
    serial = subprocess.run(command, cwd=tmp_path, capture_output=True)
    ours = [*MILLRACE, "run", "-q", "--batch", "5", "--slots", "1", "--", *command]
    found = subprocess.run(ours, cwd=tmp_path, capture_output=True, stdin=subprocess.DEVNULL)
    if "5" not in options:
        assert serial.returncode or (found.returncode == ExitCode.DONE and found.stdout == serial.stdout)
        return  # 2.1.11 fails by itself
    assert found.returncode == ExitCode.REFUSED and b"of 13 records 1 have too little" in found.stderr
    ours[ours.index("q.faa")] = "-"
    piped = subprocess.run(ours, cwd=tmp_path, capture_output=True, input=(tmp_path / "q.faa").read_bytes())
    assert piped.returncode == ExitCode.STOPPED and b"has too little in it" in piped.stderr


def test_database_header_has_the_letters_of_dbinfo(search: Path) -> None:
    told = re.search(rb"Letters\s+(\d+)", call(["diamond", "dbinfo", "-d", "db"], search)[0])
    head = (search / "db.dmnd").read_bytes()[:100]
    assert told and parse_header_letters(head) == int(told[1])
    for other in (
        b"",
        head[:31],
        b"x" + head[1:],
        head[:12] + b"\x04" + head[13:],
    ):  # another format may be another order
        assert parse_header_letters(other) is None


@pytest.mark.slow
def test_algorithms_differ(data: Path, search: Path) -> None:
    """Why --algo must be given where the size of the query would choose it."""
    (search / "all.faa").write_bytes((data / "proteins_queries.faa").read_bytes())
    call(["diamond", "makedb", "--in", str(data / "proteins_db.faa"), "-d", "full", "--quiet"], search)
    results = [
        call(["diamond", "blastp", "-q", "all.faa", "-d", "full", "--algo", algo, "--quiet"], search)[0]
        for algo in ("0", "1")
    ]
    assert results[0] != results[1]
