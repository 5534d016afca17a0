"""Packs of a few bytes that would become very many: refused, before the disk or the memory is full."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from in_process_cli import told

from millrace import _core
from millrace.cli import unpack
from millrace.core.errors import CorruptError
from millrace.extensions.pack import difference, hits, layout, pack_transfer, pack_unpacker
from millrace.extensions.pack.layout import (
    MAGIC,
    MAX_SECTION_BYTES,
    VERSION,
    OriginalOutput,
    PackedDatabase,
    PackedQueries,
    PackRecipe,
    PackWriter,
    SectionKind,
    read_sections,
)

ZEROS = bytes(MAX_SECTION_BYTES)


def bomb(path: Path, says: int, *pieces: bytes) -> None:
    """A pack that says so many bytes of its output, and has these pieces of it."""
    original = OriginalOutput(name="out", bytes=says, sha256=layout.UNKNOWN)
    writer = PackWriter(path)
    writer.add(SectionKind.RECIPE, layout.encode_recipe(PackRecipe(codec="zstd", millrace="0", outputs=(original,))))
    for piece in pieces:
        writer.add(SectionKind.PLAIN, piece, note=bytes([0]))
    writer.finish(lambda _: None)


def test_unpacking_is_bounded_by_the_declared_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    bomb(tmp_path / "bomb.mrp", MAX_SECTION_BYTES + 5, ZEROS, ZEROS[:100])
    assert (tmp_path / "bomb.mrp").stat().st_size < 30_000
    code, words = told(unpack.command, "bomb.mrp", "-o", "out")
    assert code == 5
    assert "more of an output than it says" in words
    assert [path.name for path in tmp_path.iterdir()] == ["bomb.mrp"]


def test_pack_without_room_is_refused_before_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    bomb(tmp_path / "bomb.mrp", 1 << 60, ZEROS[:100])
    code, words = told(unpack.command, "bomb.mrp", "-o", "out")
    assert code == 2
    assert "has room for" in words
    assert "unpacks to" in words
    assert [path.name for path in tmp_path.iterdir()] == ["bomb.mrp"]


@pytest.mark.slow
@pytest.mark.slow
def test_queries_are_bounded_by_the_declared_size(tmp_path: Path) -> None:
    writer = PackWriter(tmp_path / "bomb.mrp")
    for _ in range(2):
        writer.add(SectionKind.QUERIES, ZEROS)
    writer.finish(lambda _: None)
    with pytest.raises(CorruptError, match="more queries than it says"):
        pack_unpacker.extract_queries(read_sections(tmp_path / "bomb.mrp"), tmp_path / "queries", MAX_SECTION_BYTES)
    assert (tmp_path / "queries").stat().st_size <= MAX_SECTION_BYTES


def test_oversized_list_count_allocates_no_memory() -> None:
    counts = hits.encode_numbers([1, MAX_SECTION_BYTES, 0])
    listed = hits.encode_numbers([1, len(counts), MAX_SECTION_BYTES]) + counts + ZEROS
    with pytest.raises(CorruptError, match="entries that its database does not have"):
        hits.decode_hits(listed, MAX_SECTION_BYTES - 1)


def test_a_section_is_not_larger_than_zstd_makes_it(tmp_path: Path) -> None:
    """A file of holes takes no room on the disk, but would in memory."""
    head = struct.pack("<4sBxHQQ", b"MRS1", SectionKind.PLAIN, 1, 8 << 30, MAX_SECTION_BYTES)
    path = tmp_path / "holes.mrp"
    path.write_bytes(struct.pack("<8sI", MAGIC, VERSION) + head + struct.pack("<I", _core.crc32c(head)))
    os.truncate(path, 9 << 30)
    with pytest.raises(CorruptError, match="none that this release knows"):
        list(read_sections(path))


def test_hits_of_a_pack_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pack_unpacker, "MAX_HITS_BYTES", 3 * len(hits.encode_hits([hits.BatchHits(1, [0])])))
    writer = PackWriter(tmp_path / "bomb.mrp")
    for _ in range(4):
        writer.add(SectionKind.HITS, hits.encode_hits([hits.BatchHits(1, [0])]))
    writer.finish(lambda _: None)
    base = layout.PackedDatabase(
        name="", title="", entries=1, residues=1, ordered=layout.UNKNOWN, unordered=layout.UNKNOWN
    )
    made = PackRecipe(
        codec="blast", millrace="0", outputs=(OriginalOutput(name="out", bytes=0, sha256=layout.UNKNOWN),),
        queries=PackedQueries(name="q", bytes=1, sha256=layout.UNKNOWN), database=base,
    )  # fmt: skip
    with pytest.raises(CorruptError, match="more hits than any result"):
        pack_unpacker.read_hits(read_sections(tmp_path / "bomb.mrp"), made)


#: Bytes of addresses that a process has, and of memory that it may have had at most in the end: to be told that there is
#: no more memory is no bound.
LIMIT_BYTES, MAX_BYTES = 4 << 30, 900 << 20


def limited(folder: Path, *arguments: str, given: bytes = b"") -> tuple[int, bytes]:
    """Exit code and words of a verb of the command line in a process with little memory."""
    (folder.parent / "given").write_bytes(given)
    with (folder.parent / "given").open("rb") as stdin, (folder.parent / "said").open("wb") as said:
        process = subprocess.Popen(
            ["prlimit", f"--as={LIMIT_BYTES}", sys.executable, "-m", "millrace", *arguments], cwd=folder, stdin=stdin,
            stdout=said, stderr=said, env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        )  # fmt: skip
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert used.ru_maxrss << 10 < MAX_BYTES, f"{used.ru_maxrss} kB"
    return process.returncode, (folder.parent / "said").read_bytes()


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """An empty folder, beside which something may lie."""
    folder = tmp_path / "place"
    folder.mkdir()
    return folder


def piece_of_trace(rows: int, *columns: dict[str, Any], body: bytes = b"", **more: object) -> bytes:
    """A piece as `millrace.extensions.pack.trace_codec` has it, that says what it likes."""
    plain = {"width": 0, "by_steps": False, "by_period": False, "decimals": 0, "words": None}
    head = {
        "rows": rows, "period": 1, "group": -1, "columns": [{**plain, **each} for each in columns], "head": 0, "separator": ",",
        "ended": True, "dtype": "", **more,
    }  # fmt: skip
    said = msgspec.json.encode(head)
    return struct.pack("<I", len(said)) + said + body


@pytest.mark.parametrize(
    "piece",
    [
        pytest.param(lambda: piece_of_trace(32 << 20, {"by_steps": True}), id="a column of width 0"),
        pytest.param(lambda: piece_of_trace(1, {}, dtype="[" + "()," * (4 << 20) + "]"), id="a long type"),
        pytest.param(
            lambda: piece_of_trace(1, *[{"by_period": True}] * 4, period=MAX_SECTION_BYTES), id="a long period"
        ),
    ],
)
def test_small_trace_pack_is_refused_with_little_memory(place: Path, piece: Any) -> None:
    """Hundreds of bytes on the disk that would ask for many GB."""
    pytest.importorskip("numpy")
    original = OriginalOutput(name="out", bytes=10, sha256=layout.UNKNOWN)
    writer = PackWriter(place / "bomb.mrp")
    writer.add(SectionKind.RECIPE, layout.encode_recipe(PackRecipe(codec="trace", millrace="0", outputs=(original,))))
    writer.add(SectionKind.PLAIN, piece(), note=bytes([0]))
    writer.finish(lambda _: None)
    assert (place / "bomb.mrp").stat().st_size < 20_000
    code, said = limited(place, "unpack", "bomb.mrp", "-o", "out")
    assert code == 5, said
    assert [path.name for path in place.iterdir()] == ["bomb.mrp"]


@pytest.mark.slow
def test_empty_batches_are_refused_with_little_memory(place: Path) -> None:
    """Three bytes that compress to nothing, and a hundred bytes of memory each."""
    n = (MAX_SECTION_BYTES - 64) // 3
    counts = b"\x01\x00\x00" * n
    writer = PackWriter(place / "bomb.mrp")
    made = PackRecipe(
        codec="blast", millrace="0", outputs=(OriginalOutput(name="out", bytes=0, sha256=layout.UNKNOWN),), tool="blastp",
        queries=PackedQueries(name="q", bytes=1 << 60, sha256=layout.UNKNOWN),
        database=PackedDatabase(name="db", title="", entries=1 << 40, residues=1, ordered=layout.UNKNOWN, unordered=layout.UNKNOWN),
    )  # fmt: skip
    writer.add(SectionKind.RECIPE, layout.encode_recipe(made))
    writer.add(SectionKind.HITS, hits.encode_numbers([n, len(counts), 0]) + counts)
    writer.finish(lambda _: None)
    pack = (place / "bomb.mrp").read_bytes()
    assert len(pack) < 100_000
    (place / "bomb.mrp").unlink()
    line = msgspec.json.encode(pack_transfer.ResumePosition(0)) + b"\n"
    given = line + b"".join(struct.pack("<I", len(each)) + each for each in (pack, b""))
    code, said = limited(place, "receive", "-o", "out", given=given)
    assert code == 5 and b"more batches of queries than any result" in said, said
    assert not any(place.iterdir())


def test_reference_of_a_difference_is_bounded(place: Path) -> None:
    """A regenerated result of any size is not read into memory as a whole."""
    (place / "regenerated").touch()
    os.truncate(place / "regenerated", 1 << 40)
    writer = PackWriter(place / "bomb.mrp")
    writer.add(SectionKind.DIFFERENCE, b"x", note=difference.encode_note(0, 0, 0, 0, 1 << 39))
    writer.finish(lambda _: None)
    with pytest.raises(CorruptError, match="refers to more than any does"):
        difference.restore_outputs(
            read_sections(place / "bomb.mrp"), [place / "regenerated"], [Path(os.devnull)], [1 << 50]
        )
