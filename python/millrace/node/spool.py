"""Splitting a spooled batch, on the way down to the record that fails."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from millrace import _core
from millrace.model import InputUse
from millrace.node.feed import Batch, digest_of_files


def split_batch(
    whole: Batch, records: int, inputs: Sequence[InputUse], cwd: Path, start: str, end: str
) -> tuple[Batch, Batch]:
    """Cut ``whole`` after its first ``records``; its spooled files are replaced by two sets.

    Args:
        start, end: Record boundaries that the user defined, or empty.
    """
    heads: list[Path] = []
    tails: list[Path] = []
    digests: tuple[list[tuple[int, int]], list[tuple[int, int]]] = ([], [])
    units = [0, 0]
    sizes = [0, 0]
    files = (whole.files[:records], whole.files[records:])
    for k, (item, path) in enumerate(zip(inputs, whole.spooled, strict=True)):
        heads.append(path.with_name(path.name + "a"))
        tails.append(path.with_name(path.name + "b"))
        if item.format == "files":
            for side, names in enumerate(files):
                digests[side].append(digest_of_files(names, cwd))
                sizes[side] += digests[side][-1][0]
                units[side] += digests[side][-1][0] if k == 0 else 0
            continue
        reader = open_reader([str(path)], item.format, start, end)
        for side, (dest, count) in enumerate(((heads[-1], records), (tails[-1], 0))):
            part = reader.cut(str(dest), count, 0, 0)
            assert part is not None  # both sides have at least one record
            digests[side].append((part.bytes, part.crc32c))
            sizes[side] += part.bytes
            units[side] += part.cost if k == 0 else 0
        path.unlink()
    middle = whole.first + records
    return (
        Batch(whole.first, middle, units[0], sizes[0], tuple(digests[0]), tuple(heads), files[0], whole.offset),
        Batch(middle, whole.last, units[1], sizes[1], tuple(digests[1]), tuple(tails), files[1], whole.offset),
    )


def open_reader(paths: list[str], record_format: str, start: str, end: str) -> _core.Reader:
    """A reader of ``paths`` as one stream; the boundaries are for format ``regex`` alone."""
    if record_format != "regex":
        start = end = ""
    return _core.Reader(paths, record_format, record_start=start or None, record_end=end or None)
