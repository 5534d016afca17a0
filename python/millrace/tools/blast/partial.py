"""Byte ranges of entries in the files of a volume, by its index file alone.

The search of candidates reads only the sequence and the header of each candidate, so these two files may have holes
everywhere else.

Source: "BLAST Database Format" of the NCBI C++ Toolkit: the index has the offsets of the headers, then of the
sequences; the data on ambiguous bases stand between a sequence and the next one.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from typing import NamedTuple

from millrace.tools.blast.volumes import BlastVolume, read_offsets, read_volume

#: Bytes between two ranges up to which these are read as one: on a fast link they take less time than another request,
#: and on a slow one not much more.
MAX_GAP_BYTES = 1 << 12

#: Name of the file, in the folder of a database of candidates, with the ranges that its search needs.
RANGES = "ranges.json"


class FileRange(NamedTuple):
    """Bytes ``[first, last)`` of a file; ``name`` has no folders."""

    name: str
    first: int
    last: int


def write_ranges(
    bases: Sequence[str], letter: str, entries: Sequence[int], ordinals: Sequence[int], folder: Path
) -> None:
    """Write the ranges of the entries with these ordinals, counted over all volumes, into ``folder``.

    Args:
        bases: Paths of the volumes without ending. Only their index files are read.
        entries: Number of entries of each volume.
        ordinals: Ascending.
    """
    found: list[FileRange] = []
    for base, (first, last) in zip(bases, pairwise(accumulate(entries, initial=0)), strict=True):
        own = ordinals[bisect_left(ordinals, first) : bisect_left(ordinals, last)]
        if own:
            found += find_entry_ranges(read_volume(Path(base), letter), [ordinal - first for ordinal in own])
    (folder / RANGES).write_text(json.dumps(found))


def read_ranges(folder: Path) -> list[FileRange]:
    """Read the ranges that ``write_ranges`` wrote; none if there is no such file."""
    path = folder / RANGES
    return [FileRange(*each) for each in json.loads(path.read_text())] if path.exists() else []


def find_entry_ranges(volume: BlastVolume, ordinals: Sequence[int]) -> Iterator[FileRange]:
    """Find the ranges of the entries with these ascending ordinals of one volume."""
    headers, sequences = read_offsets(volume, "headers"), read_offsets(volume, "sequences")
    for suffix, table in (("hr", headers), ("sq", sequences)):
        # The sequence of a protein is read with the zero byte before it.
        edges = ((max(table[first] - 1, 0), table[last]) for first, last in _group_runs(ordinals))
        for first, last in _merge_near_ranges(edges):
            yield FileRange(f"{volume.base.name}.{volume.letter}{suffix}", first, last)


def _group_runs(ordinals: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Merge ascending numbers into half-open runs.

    >>> list(_group_runs([1, 2, 3, 7]))
    [(1, 4), (7, 8)]
    """
    begin = end = -1
    for ordinal in ordinals:
        if ordinal != end and end >= 0:
            yield begin, end
        begin, end = (begin if ordinal == end else ordinal), ordinal + 1
    if end >= 0:
        yield begin, end


def _merge_near_ranges(edges: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Merge ranges with at most ``MAX_GAP_BYTES`` bytes between them.

    >>> list(_merge_near_ranges([(0, 10), (12, 20), (900_000, 900_001)]))
    [(0, 20), (900000, 900001)]
    """
    begin, end = 0, -1
    for first, last in edges:
        if end >= 0 and first - end > MAX_GAP_BYTES:
            yield begin, end
        if end < 0 or first - end > MAX_GAP_BYTES:
            begin = first
        end = last
    if end >= 0:
        yield begin, end
