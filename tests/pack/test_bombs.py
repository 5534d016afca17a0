"""Packs of a few bytes that would become very many: refused, before the disk or the memory is full."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest
from in_process import told

from millrace import _core
from millrace.cli import unpack
from millrace.errors import CorruptError
from millrace.pack import hits, recipe, unpacking
from millrace.pack.layout import MAGIC, MOST_BYTES, VERSION, Kind, Writer, sections
from millrace.pack.recipe import Original, Queries, Recipe

ZEROS = bytes(MOST_BYTES)


def bomb(path: Path, says: int, *pieces: bytes) -> None:
    """A pack that says so many bytes of its output, and has these pieces of it."""
    original = Original(name="out", bytes=says, sha256=recipe.UNKNOWN)
    writer = Writer(path)
    writer.add(Kind.RECIPE, recipe.encode(Recipe(codec="zstd", millrace="0", outputs=(original,))))
    for piece in pieces:
        writer.add(Kind.PLAIN, piece, note=bytes([0]))
    writer.finish(lambda _: None)


def test_no_more_is_written_than_the_pack_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    bomb(tmp_path / "bomb.mrp", MOST_BYTES + 5, ZEROS, ZEROS[:100])
    assert (tmp_path / "bomb.mrp").stat().st_size < 30_000
    code, words = told(unpack.command, "bomb.mrp", "-o", "out")
    assert code == 5
    assert "more of an output than it says" in words
    assert [path.name for path in tmp_path.iterdir()] == ["bomb.mrp"]


def test_what_has_no_room_is_refused_before_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    bomb(tmp_path / "bomb.mrp", 1 << 60, ZEROS[:100])
    code, words = told(unpack.command, "bomb.mrp", "-o", "out")
    assert code == 2
    assert "has room for" in words
    assert "unpacks to" in words
    assert [path.name for path in tmp_path.iterdir()] == ["bomb.mrp"]


@pytest.mark.slow
@pytest.mark.slow
def test_no_more_queries_are_written_than_the_pack_says(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "bomb.mrp")
    for _ in range(2):
        writer.add(Kind.QUERIES, ZEROS)
    writer.finish(lambda _: None)
    with pytest.raises(CorruptError, match="more queries than it says"):
        unpacking.write_queries(sections(tmp_path / "bomb.mrp"), tmp_path / "queries", MOST_BYTES)
    assert (tmp_path / "queries").stat().st_size <= MOST_BYTES


def test_a_list_of_more_entries_than_there_are_takes_no_memory() -> None:
    counts = hits.numbers([1, MOST_BYTES, 0])
    listed = hits.numbers([1, len(counts), MOST_BYTES]) + counts + ZEROS
    with pytest.raises(CorruptError, match="entries that its database does not have"):
        hits.decode(listed, MOST_BYTES - 1)


def test_a_section_is_not_larger_than_zstd_makes_it(tmp_path: Path) -> None:
    """A file of holes takes no room on the disk, but would in memory."""
    head = struct.pack("<4sBxHQQ", b"MRS1", Kind.PLAIN, 1, 8 << 30, MOST_BYTES)
    path = tmp_path / "holes.mrp"
    path.write_bytes(struct.pack("<8sI", MAGIC, VERSION) + head + struct.pack("<I", _core.crc32c(head)))
    os.truncate(path, 9 << 30)
    with pytest.raises(CorruptError, match="none that this release knows"):
        list(sections(path))


def test_hits_of_a_pack_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpacking, "MOST_HITS", 3 * len(hits.encode([hits.Hits(1, [0])])))
    writer = Writer(tmp_path / "bomb.mrp")
    for _ in range(4):
        writer.add(Kind.HITS, hits.encode([hits.Hits(1, [0])]))
    writer.finish(lambda _: None)
    base = recipe.Database(name="", title="", entries=1, residues=1, ordered=recipe.UNKNOWN, unordered=recipe.UNKNOWN)
    made = Recipe(
        codec="blast", millrace="0", outputs=(Original(name="out", bytes=0, sha256=recipe.UNKNOWN),),
        queries=Queries(name="q", bytes=1, sha256=recipe.UNKNOWN), database=base,
    )  # fmt: skip
    with pytest.raises(CorruptError, match="more hits than any result"):
        unpacking.read_hits(sections(tmp_path / "bomb.mrp"), made)
