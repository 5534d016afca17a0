"""A file of a volume with holes serves for the entries whose ranges are filled in, as the whole one does."""

from __future__ import annotations

import random
import shutil
import subprocess
from pathlib import Path

import pytest

from millrace.adapters.blast.search_path import UNREAD
from millrace.adapters.blast.volume_files import (
    PAGE_BYTES,
    find_entry_ranges,
    list_pages_without_ids,
    read_ranges,
    write_ranges,
)
from millrace.adapters.blast.volumes import list_volume_runs, read_volume, write_alias

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
def test_entries_with_fetched_ranges_are_read(letter: str, version: str, tmp_path: Path) -> None:
    whole, holes = tmp_path / "whole", tmp_path / "holes"
    whole.mkdir()
    make(whole, letter, version)
    shutil.copytree(whole, holes)
    wanted = [0, 7, 8, 9, 33, 59]
    for path in holes.glob(f"db.{letter}[sh][qr]"):
        path.write_bytes(b"\0" * path.stat().st_size)
    filled = 0
    for name, first, last in find_entry_ranges(read_volume(holes / "db", letter), wanted):
        with (holes / name).open("r+b") as file:
            file.seek(first)
            file.write((whole / name).read_bytes()[first:last])
        filled += last - first
    assert ask(holes, wanted) == ask(whole, wanted) != b""
    assert filled < sum(path.stat().st_size for path in whole.glob(f"db.{letter}[sh][qr]"))


def test_ranges_come_from_volumes_with_an_entry(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        make(tmp_path / name, "p", "5")
    bases = [str(tmp_path / name / "db") for name in ("one", "two")]
    write_ranges(bases, "p", [60, 60], [60, 61], tmp_path)
    volume = read_volume(Path(bases[1]), "p")
    assert read_ranges(tmp_path) == [*find_entry_ranges(volume, [0, 1])]
    assert read_ranges(tmp_path / "one") == []
    assert [run[:2] for run in list_volume_runs([volume, volume])] == [(0, 60), (60, 120)]


def with_taxa(folder: Path, letter: str) -> tuple[Path, Path]:
    """Two volumes whose entries have ids and taxa, under one alias, and queries: their folder, and a copy to be changed."""
    folder, copy = folder / "whole", folder / "copy"
    folder.mkdir()
    kind, letters = KINDS[letter]
    chance = random.Random(6)
    for number in (0, 1):
        names = [f"v{number}e{k}" for k in range(12)]
        entries = [f">{name} of {number}\n{''.join(chance.choices(letters[:20], k=300))}\n" for name in names]
        (folder / "in").write_text("".join(entries))
        (folder / "taxa").write_text("".join(f"{name} {chance.choice([562, 9606, 10090])}\n" for name in names))
        words = f"makeblastdb -in in -dbtype {kind} -parse_seqids -taxid_map taxa -out db.0{number} -title t -blastdb_version 5"
        subprocess.run(words.split(), cwd=folder, check=True, stdout=subprocess.DEVNULL)
        with (folder / "q").open("a") as queries:
            queries.write(f">q{number}\n" + "".join(line for line in entries[3].splitlines()[1:]) + "\n")
    write_alias(folder / "db", letter, "t", ["db.00", "db.01"])
    shutil.copytree(folder, copy)
    return folder, copy


def search(folder: Path, letter: str, form: str, db: str = "db") -> bytes:
    program = {"p": "blastp", "n": "blastn"}[letter]
    words = [program, "-query", "q", "-db", db, "-evalue", "1000", "-outfmt", form]
    return subprocess.run(words, cwd=folder, check=True, capture_output=True).stdout


@pytest.mark.parametrize("letter", ["p", "n"])
def test_search_does_not_read_the_files_not_fetched(letter: str, tmp_path: Path) -> None:
    whole, few = with_taxa(tmp_path, letter)
    gone = [path for path in few.iterdir() if path.suffix in {f".{letter}{end}" for end in UNREAD}]
    assert len(gone) == 2 * len(UNREAD)
    for path in gone:
        path.unlink()
    for form in ("0", "7 qaccver sseqid staxids sscinames salltitles sallseqid evalue", "11", "15"):
        assert search(few, letter, form) == search(whole, letter, form) != b""
    assert b"\t9606\t" in search(few, letter, "6 sseqid staxids evalue")


@pytest.mark.parametrize("letter", ["p", "n"])
def test_search_of_a_volume_reads_few_pages_of_others(letter: str, tmp_path: Path) -> None:
    """The indices and ids of all volumes are in files that they share."""
    whole, heads = with_taxa(tmp_path, letter)
    volume = read_volume(heads / "db.00", letter)
    content = volume.index.read_bytes()
    volume.index.write_bytes(content[: volume.head] + bytes(len(content) - volume.head))
    ids = heads / f"db.00.{letter}db"
    pages = list_pages_without_ids(ids)
    assert pages and b"v0e3" in ids.read_bytes() and not any(b"v0e3" in page for _, page in pages)
    for path, kept in ((ids, pages), (heads / f"db.00.{letter}og", [])):
        path.write_bytes(bytes(path.stat().st_size))
        with path.open("r+b") as file:
            for at, page in kept:
                file.seek(at)
                file.write(page)
    lines = ("FIRST_OID 13", "LAST_OID 24", "NSEQ 24", "LENGTH 7200", "STATS_NSEQ 24", "STATS_TOTLEN 7200")
    for folder in (whole, heads):
        write_alias(folder / "part", letter, "t", ["db.00", "db.01"], *lines)
    for form in ("0", "7 qaccver sseqid sgi stitle evalue", "15"):
        wanted = search(whole, letter, form, "part")
        assert search(heads, letter, form, "part") == wanted and b"of 1" in wanted and b"of 0" not in wanted


def test_id_list_of_another_format_is_not_changed(tmp_path: Path) -> None:
    for content in (b"", b"x" * 3, bytes(3 * PAGE_BYTES), b"\xff" * 3 * PAGE_BYTES):
        (tmp_path / "db.pdb").write_bytes(content)
        assert list_pages_without_ids(tmp_path / "db.pdb") is None
