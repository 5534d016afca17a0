"""Records with too little in them to be searched are written as within the whole file, wherever they stand."""

from __future__ import annotations

import itertools
import os
import random
import shlex
import subprocess
from pathlib import Path

import pytest
from exact_cases import MILLRACE
from tool_batches import need

from millrace.core.errors import ExitCode

#: Where such records (``-``) stand between others (``+``).
PLACES = ("-", "--", "-+", "+-", "+--+", "-+-+-", "+-+--", "++-+")
SAMPLE = ("-", "+--+", "-+-+-")

#: Sequences with too little in them, by alphabet; lower case and repeats are nothing where these are masked.
SCANT = {
    "n": ("N" * 300, "NNN", "RYKM" * 10, "AC" * 60, "acgtcagtcatgcatcgac" * 6, "A"),
    "p": ("X" * 300, "XX", "*", "Q" * 60, "mkvlaagivplllaqqwertyhfds" * 3, "M"),
}

FORMATS = (0, 5, 6, 7, 8, 12, 15, 16, 18)

#: Commands by the alphabet of their queries; the first option of each is in the normal run.
COMMANDS = {
    "n": (
        *(f"blastn -db n -query q -outfmt {each} -out o" for each in FORMATS),
        *(f"blastn -db n -query q -lcase_masking -soft_masking false -outfmt {each} -out o" for each in (6, 7, 15)),
        *(f"blastx -db p -query q -outfmt {each} -out o" for each in FORMATS),
        *(f"tblastx -db n -query q -outfmt {each} -out o" for each in (0, 7, 15)),
        *(f"diamond blastx -d dia -q q -p 1 -f {each} -o o" for each in ("6", "101", "103", "0 --unal 0", "5 --unal 0")),
        "minimap2 n.in q -o o",
        "minimap2 -a n.in q -o o",
        "nhmmscan --cpu 0 --tblout t -o o n.hmm q",
        "cmscan --cpu 0 -o o c.cm q",
    ),
    "p": (
        *(f"blastp -db p -query q -outfmt {each} -out o" for each in FORMATS),
        *(f"blastp -db p -query q -seg yes -outfmt {each} -out o" for each in (0, 7, 15)),
        *(f"blastp -db p -query q -lcase_masking -outfmt {each} -out o" for each in (0, 7, 15)),
        *(f"tblastn -db n -query q -outfmt {each} -out o" for each in (0, 7, 15)),
        *(f"diamond blastp -d dia -q q -p 1 -f {each} -o o" for each in ("6", "101", "103", "0 --unal 0", "5 --unal 0")),
        "hmmscan --cpu 0 --tblout t --domtblout d -o o p.hmm q",
        "phmmer --cpu 0 --tblout t -o o q p.in",
        "jackhmmer --cpu 0 -N 2 -o o q p.in",
    ),
}  # fmt: skip

#: Of these the normal run tries a few.
USUAL = (
    "blastn -db n -query q -outfmt 0 -out o", "blastn -db n -query q -outfmt 15 -out o",
    "blastp -db p -query q -outfmt 7 -out o", "blastp -db p -query q -outfmt 16 -out o",
    "diamond blastx -d dia -q q -p 1 -f 6 -o o", "hmmscan --cpu 0 --tblout t --domtblout d -o o p.hmm q",
)  # fmt: skip


def letters(alphabet: str, n: int, seed: int) -> str:
    return "".join(random.Random(seed).choices({"n": "ACGT", "p": "ACDEFGHIKLMNPQRSTVWY"}[alphabet], k=n))


def write_databases(folder: Path, commands: tuple[str, ...]) -> None:
    """Make the databases that the commands name, of a few random sequences."""
    for alphabet, kind in (("n", "nucl"), ("p", "prot")):
        text = "".join(f">e{each}\n{letters(alphabet, 400, each)}\n" for each in range(4))
        (folder / f"{alphabet}.in").write_text(text)
        (folder / f"{alphabet}.one").write_text(f">m\n{letters(alphabet, 120, 1)}\n")
        steps = [f"makeblastdb -in {alphabet}.in -dbtype {kind} -out {alphabet}"]
        if any(f"{alphabet}.hmm" in each for each in commands):
            (folder / f"{alphabet}.sto").write_text(f"# STOCKHOLM 1.0\nm {letters(alphabet, 120, 1)}\n//\n")
            steps += [f"hmmbuild -n m {alphabet}.hmm {alphabet}.sto", f"hmmpress {alphabet}.hmm"]
        if alphabet == "p" and any("diamond" in each for each in commands):
            steps.append("diamond makedb --in p.in -d dia --quiet")
        for step in steps:
            subprocess.run(shlex.split(step), cwd=folder, check=True, capture_output=True)


def write_queries(folder: Path, alphabet: str, places: str, scant: str) -> None:
    found = []
    for at, place in enumerate(places):
        sequence = scant if place == "-" else letters(alphabet, 400, at % 4)[at : at + 260]
        found.append(f">q{at}\n{sequence}\n")
    (folder / "q").write_text("".join(found))


def outputs(folder: Path) -> dict[str, list[bytes]]:
    """What was written, without lines that tell of the moment."""

    def is_steady(line: bytes) -> bool:
        return not line.startswith((b"# CPU time", b"# Mc/sec", b"# Date:", b"# Current dir", b"@PG"))

    there = [name for name in ("o", "t", "d") if (folder / name).exists()]
    found = {name: [*filter(is_steady, (folder / name).read_bytes().splitlines())] for name in there}
    for name in there:
        (folder / name).unlink()
    return found


def check(folder: Path, command: str, alphabet: str, places: str, scant: str) -> bool:
    """Compare the serial run with batches of one record; whether it was not refused."""
    write_queries(folder, alphabet, places, scant)
    words = shlex.split(command)
    what = f"{command}, {places} of {scant[:10]} ({len(scant)})"
    try:
        serial = subprocess.run(words, cwd=folder, capture_output=True, timeout=20, check=False)
    except subprocess.TimeoutExpired:
        return False  # DIAMOND 2.1.3 alone on less than a codon
    expected = outputs(folder)
    if serial.returncode:
        return False  # the serial run gives nothing
    ours = subprocess.run(
        [*MILLRACE, "run", "-q", "--fresh", "--slots", "2", "--batch", "1", "--", *words],
        cwd=folder, env=dict(os.environ), capture_output=True, timeout=300, check=False,
    )  # fmt: skip
    if ours.returncode == ExitCode.REFUSED:
        assert not outputs(folder), what
        return False
    assert ours.returncode == 0, (what, ours.stderr.decode())
    assert outputs(folder) == expected, what
    return True


def tools(commands: tuple[str, ...]) -> set[str]:
    return {each.split()[0] for each in commands}


@pytest.mark.parametrize("command", USUAL)
def test_scant_records_in_batches_of_one(tmp_path: Path, command: str) -> None:
    need(command.split()[0])
    write_databases(tmp_path, (command,))
    alphabet = next(key for key, commands in COMMANDS.items() if command in commands)
    scant = "A" if "blastx" in command else SCANT[alphabet][0]
    # A query of less than a codon alone keeps DIAMOND 2.1.3 waiting for ever.
    sample = SAMPLE[1:] if "blastx" in command else SAMPLE
    done = [check(tmp_path, command, alphabet, places, scant) for places in sample]
    assert any(done)


@pytest.mark.slow
@pytest.mark.parametrize("alphabet", ["n", "p"])
def test_scant_records_of_each_kind_in_each_place(tmp_path: Path, alphabet: str) -> None:
    commands = tuple(each for each in COMMANDS[alphabet] if "cmscan" not in each)
    for tool in tools(commands):
        need(tool)
    write_databases(tmp_path, commands)
    n_equal, wrong = 0, list[object]()
    for command, scant, places in itertools.product(commands, SCANT[alphabet], PLACES):
        try:
            n_equal += check(tmp_path, command, alphabet, places, scant)
        except AssertionError as error:
            wrong.append(error.args[0])
    print(f"{n_equal} compared, {len(wrong)} wrong")
    assert not wrong
    assert n_equal > 300
