"""Batches as files of a node: requests to the feeder, its answers, file lists, cuts of a batch.

A spooled batch is cut again in two, to isolate a failing record, or at other boundaries, to verify.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from millrace import _core
from millrace.core import record_formats
from millrace.core.tool_use import FrozenValue, InputRange, InputUse


class BatchLimits(msgspec.Struct, frozen=True):
    """Limits of a batch: the record that reaches one is its last. 0: no limit."""

    records: int = 0
    units: int = 0
    bytes: int = 0


class SpooledBatch(FrozenValue, frozen=True, array_like=True):
    """Consecutive records ``[first, last)``, spooled and ready to run."""

    first: int
    last: int
    units: int
    #: Bytes of its records in all inputs.
    bytes: int
    #: (bytes, CRC-32C) of each spooled input: a header, if its format has one, and records.
    digests: tuple[tuple[int, int], ...]
    #: Spooled bytes of each input; empty text for inputs of format ``files``.
    spooled: tuple[Path, ...]
    #: Files of the batch, for the input of format ``files``.
    files: tuple[str, ...] = ()
    #: Bytes of the input files read up to the end of this batch.
    offset: int = 0
    #: Whether an input is gzip data of more than one member, as far as it was read by then.
    has_members: bool = False
    #: Where its bytes are in HDFS, if they were cut there and are not spooled yet.
    source: InputRange | None = None

    @property
    def n_records(self) -> int:
        return self.last - self.first

    @property
    def weight(self) -> float:
        """Return the amount of work, relative to other batches."""
        return float(self.units or self.n_records)


class SkippedRecords(msgspec.Struct, frozen=True):
    """Records that an earlier run has committed, read again and found unchanged."""

    first: int
    last: int
    units: int
    offset: int
    #: Its spooled bytes, if requested.
    batch: SpooledBatch | None = None


class EndOfInput(msgspec.Struct, frozen=True):
    """The end of the input, after ``records`` records in all."""

    records: int


class FileBatch(msgspec.Struct, frozen=True):
    """A batch of files, with the fields of a ``millrace._core.Batch``."""

    records: int
    bytes: int
    cost: int
    crc32c: int
    header: int = 0
    files: tuple[str, ...] = ()


class PieceCut(msgspec.Struct, frozen=True):
    """Consecutive records of a piece whose bytes are in HDFS, with the fields of a ``millrace._core.Batch``."""

    records: int
    bytes: int
    cost: int
    crc32c: int
    largest: int
    source: InputRange
    header: int = 0


class FileList:
    """An input in which each file is one record; only the tool reads its bytes.

    A file's digest is its size and modification time, so that a resume detects another file under the same name.
    """

    #: Batches of files have no header.
    header = b""
    #: The tool gets the files themselves.
    compression, has_members = "", False

    def __init__(self, paths: Sequence[str], cwd: Path) -> None:
        self.paths = [*paths]
        self._cwd = cwd
        #: (size in bytes, modification time in ns) of each, read at the start.
        self.stats = [_stat_file(os.path.join(cwd, path)) for path in paths]
        self._next = 0
        self.offset = 0
        self.total: int | None = sum(size for size, _ in self.stats)

    def cut(self, dest: str, max_records: int, max_cost: int, max_bytes: int) -> FileBatch | None:
        if self._next == len(self.paths):
            return None
        first, size, limit = self._next, 0, max_cost or max_bytes
        while self._next < len(self.paths):
            size += self.stats[self._next][0]
            self._next += 1
            if (max_records and self._next - first >= max_records) or (limit and size >= limit):
                break
        return self._build_batch(first, size)

    def skip(self, n_records: int) -> FileBatch | None:
        return self.cut("", n_records, 0, 0)

    def add_file(self, path: str) -> int:
        """Add one more file; return its bytes."""
        self.paths.append(path)
        self.stats.append(_stat_file(os.path.join(self._cwd, path)))
        return self.stats[-1][0]

    def _build_batch(self, first: int, size: int) -> FileBatch:
        self.offset += size
        files = tuple(self.paths[first : self._next])
        return FileBatch(len(files), size, size, _checksum_files(files, self.stats[first : self._next]), files=files)


def digest_files(paths: Sequence[str], cwd: Path) -> tuple[int, int]:
    """Return (bytes, checksum of names, sizes and modification times) of files that are one record each."""
    stats = [_stat_file(os.path.join(cwd, path)) for path in paths]
    return sum(size for size, _ in stats), _checksum_files(paths, stats)


def find_changed_files(batch: SpooledBatch, inputs: Sequence[InputUse], cwd: Path) -> str:
    """Describe a change to the files of a batch in which each is one record; empty: none."""
    for item, digest in zip(inputs, batch.digests, strict=True):
        if item.format == "files":
            try:
                same = digest_files(batch.files, cwd) == digest
            except OSError:
                same = False
            if not same:
                names = batch.files[0] if len(batch.files) == 1 else f"one of {batch.files[0]} to {batch.files[-1]}"
                return f"input {names}: is not what it was"
    return ""


def _stat_file(path: str) -> tuple[int, int]:
    found = os.stat(path)
    return found.st_size, found.st_mtime_ns


def _checksum_files(paths: Sequence[str], stats: Sequence[tuple[int, int]]) -> int:
    text = "\0".join(f"{path}\0{size}\0{changed}" for path, (size, changed) in zip(paths, stats, strict=True))
    return _core.crc32c(os.fsencode(text))


def split_spooled_batch(
    whole: SpooledBatch, records: int, inputs: Sequence[InputUse], cwd: Path, start: str, end: str
) -> list[SpooledBatch]:
    """Cut ``whole`` after its first ``records``, or near there if records stay together.

    Args:
        start, end: Record boundaries that the user defined, or empty.

    Returns:
        Two batches, with files of their own, in place of ``whole``; or ``whole`` alone, if it cannot be cut.
    """
    sides: list[list[_BatchSide]] = [[], []]
    for item, path in zip(inputs, whole.spooled, strict=True):
        head, tail = path.with_name(path.name + "a"), path.with_name(path.name + "b")
        if item.format == "files":
            for side, names in zip(sides, (whole.files[:records], whole.files[records:]), strict=True):
                size, crc = digest_files(names, cwd)
                side.append(_BatchSide(head if side is sides[0] else tail, len(names), size, size, (size, crc), names))
            continue
        reader = open_reader([str(path)], item, start, end)
        for side, dest, count in ((sides[0], head, records), (sides[1], tail, 0)):
            if found := reader.cut(str(dest), count, 0, 0):
                side.append(_BatchSide(dest, found.records, found.cost, found.bytes, digest_cut(found)))
    if not sides[1]:
        for part in sides[0]:
            part.path.unlink()
        return [whole] if records == 1 else split_spooled_batch(whole, 1, inputs, cwd, start, end)
    for path in whole.spooled:
        path.unlink(missing_ok=True)
    middle = whole.first + sides[0][0].records
    return [_build_batch(whole.first, sides[0], whole), _build_batch(middle, sides[1], whole)]


def recut_batches(
    batches: Sequence[SpooledBatch], sizes: Sequence[int], inputs: Sequence[InputUse], cwd: Path, start: str, end: str, name: Path
) -> list[SpooledBatch]:  # fmt: skip
    """Cut the records of adjacent batches into pieces of ``sizes`` records, or about that if records stay together.

    In the opposite order they are one piece, with the records of all of them.

    Args:
        start, end: As in ``split_spooled_batch``.
        name: Prefix of the new files.

    Returns:
        The pieces, with files of their own; none if a tool has changed the bytes of its batch, or other records begin
        where the batches meet, as behind a last line without an end.
    """
    sources: list[_core.Reader | FileList] = []
    for k, item in enumerate(inputs):
        if item.format == "files":
            sources.append(FileList([path for batch in batches for path in batch.files], cwd))
            continue
        together = name.with_name(f"{name.name}.{k}.all")
        contents = [batch.spooled[k].read_bytes() for batch in batches]
        found = [(len(content), _core.crc32c(content)) for content in contents]
        if found != [batch.digests[k] for batch in batches]:
            return []
        header = read_header(batches[0].spooled[k], item)
        together.write_bytes(header + b"".join(content[len(header) :] for content in contents))
        sources.append(open_reader([str(together)], item, start, end))
    pieces, first = list[SpooledBatch](), min(batch.first for batch in batches)
    for number, size in enumerate([*sizes[:-1], 0]):
        parts = list[_BatchSide]()
        for k, source in enumerate(sources):
            dest = name.with_name(f"{name.name}.{number}.{k}")
            if part := source.cut(str(dest), parts[0].records if parts else size, 0, 0):
                files = part.files if isinstance(part, FileBatch) else ()
                parts.append(_BatchSide(dest, part.records, part.cost, part.bytes, digest_cut(part), files))
        if parts:
            pieces.append(_build_batch(first, parts, batches[-1]))
            first = pieces[-1].last
    for k in range(len(inputs)):
        name.with_name(f"{name.name}.{k}.all").unlink(missing_ok=True)
    return pieces if first == max(batch.last for batch in batches) else []


class _BatchSide(NamedTuple):
    """One side of a split, for one input."""

    path: Path
    records: int
    units: int
    bytes: int
    digest: tuple[int, int]
    files: tuple[str, ...] = ()


def _build_batch(first: int, parts: list[_BatchSide], last: SpooledBatch) -> SpooledBatch:
    """Build a batch from its parts; ``last`` is the batch that they are cut from, or the last of several."""
    return SpooledBatch(
        first, first + parts[0].records, parts[0].units, sum(part.bytes for part in parts),
        tuple(part.digest for part in parts), tuple(part.path for part in parts),
        next((part.files for part in parts if part.files), ()), last.offset, last.has_members,
    )  # fmt: skip


def digest_cut(cut: _core.Batch | FileBatch | PieceCut) -> tuple[int, int]:
    """Return (bytes, checksum) of a cut, with its header."""
    return cut.header + cut.bytes, cut.crc32c


def read_header(path: Path, item: InputUse) -> bytes:
    """Return the header of a spooled batch of ``item``."""
    return open_reader([str(path)], item).header if record_formats.has_header(item.format) else b""


def open_reader(paths: list[str], item: InputUse, start: str = "", end: str = "") -> _core.Reader:
    """Open ``paths`` as one stream of the records of ``item``; ``start`` and ``end`` are for format ``regex`` alone."""
    if item.format != "regex":
        start = end = ""
    return _core.Reader(
        paths, item.format, record_start=start or None, record_end=end or None,
        content=(item.content.letters, item.content.least) if item.content else None, group_cost=item.pass_residues,
    )  # fmt: skip
