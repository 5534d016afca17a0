"""Cutting of spooled batches again: in two, to isolate a failing record, or at other boundaries."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from millrace import _core, formats
from millrace.model import InputUse
from millrace.node.batch import SpooledBatch
from millrace.node.file_list import FileBatch, FileList, digest_files


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

    Args:
        start, end: As in ``split_spooled_batch``.
        name: Prefix of the new files.

    Returns:
        The pieces, with files of their own; none if a tool has changed the bytes of its batch.
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
    pieces, first = list[SpooledBatch](), batches[0].first
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
    return pieces


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


def digest_cut(cut: _core.Batch | FileBatch) -> tuple[int, int]:
    """Return (bytes, checksum) of a cut, with its header."""
    return cut.header + cut.bytes, cut.crc32c


def read_header(path: Path, item: InputUse) -> bytes:
    """Return the header of a spooled batch of ``item``."""
    return open_reader([str(path)], item).header if formats.has_header(item.format) else b""


def open_reader(paths: list[str], item: InputUse, start: str = "", end: str = "") -> _core.Reader:
    """Open ``paths`` as one stream of the records of ``item``; ``start`` and ``end`` are for format ``regex`` alone."""
    if item.format != "regex":
        start = end = ""
    return _core.Reader(
        paths, item.format, record_start=start or None, record_end=end or None,
        content=(item.content.letters, item.content.least) if item.content else None, group_cost=item.pass_residues,
    )  # fmt: skip
