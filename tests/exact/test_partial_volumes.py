"""A file of a volume with holes serves for the entries whose ranges are filled in, as the whole one does."""

from __future__ import annotations

import random
import shutil
import subprocess
from pathlib import Path

import pytest

from millrace.tools.blast.partial import ranges, read_ranges, write_ranges
from millrace.tools.blast.volumes import read_volume, whole_volumes

pytestmark = pytest.mark.skipif(shutil.which("makeblastdb") is None, reason="BLAST+ is not installed")

KINDS = {"p": ("prot", "ACDEFGHIKLMNPQRSTVWY"), "n": ("nucl", "ACGTACGTACGTN")}


def make(folder: Path, letter: str, version: str) -> None:
    kind, letters = KINDS[letter]
    chance = random.Random(5)
    entries = [f">e{k} title\n{''.join(chance.choices(letters, k=chance.randint(20, 3000)))}\n" for k in range(60)]
    (folder / "in").write_text("".join(entries))
    words = f"makeblastdb -in in -dbtype {kind} -parse_seqids -out db -title t -blastdb_version {version}"
    subprocess.run(words.split(), cwd=folder, check=True, stdout=subprocess.DEVNULL)


def ask(folder: Path, ordinals: list[int]) -> bytes:
    listed = ",".join(f"e{ordinal}" for ordinal in ordinals)
    words = f"blastdbcmd -db db -entry {listed} -outfmt".split()
    return subprocess.run([*words, "%o %a %t %s"], cwd=folder, check=True, capture_output=True).stdout


@pytest.mark.parametrize(("letter", "version"), [("p", "5"), ("n", "4")])
def test_entries_whose_ranges_are_filled_in_are_there(letter: str, version: str, tmp_path: Path) -> None:
    whole, holes = tmp_path / "whole", tmp_path / "holes"
    whole.mkdir()
    make(whole, letter, version)
    shutil.copytree(whole, holes)
    wanted = [0, 7, 8, 9, 33, 59]
    for path in holes.glob(f"db.{letter}[sh][qr]"):
        path.write_bytes(b"\0" * path.stat().st_size)
    filled = 0
    for name, first, last in ranges(read_volume(holes / "db", letter), wanted):
        with (holes / name).open("r+b") as file:
            file.seek(first)
            file.write((whole / name).read_bytes()[first:last])
        filled += last - first
    assert ask(holes, wanted) == ask(whole, wanted) != b""
    assert filled < sum(path.stat().st_size for path in whole.glob(f"db.{letter}[sh][qr]"))


def test_ranges_are_those_of_the_volumes_that_have_an_entry(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        make(tmp_path / name, "p", "5")
    bases = [str(tmp_path / name / "db") for name in ("one", "two")]
    write_ranges(bases, "p", [60, 60], [60, 61], tmp_path)
    volume = read_volume(Path(bases[1]), "p")
    assert read_ranges(tmp_path) == [*ranges(volume, [0, 1])]
    assert read_ranges(tmp_path / "one") == []
    assert [run[:2] for run in whole_volumes([volume, volume])] == [(0, 60), (60, 120)]
