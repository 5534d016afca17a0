"""Sparse copies of remote files, filled in where they are needed."""

from __future__ import annotations

import os
import threading
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path

from millrace.model import FetchedFile, HdfsRead
from millrace.storage import blocks, fetch, locations
from millrace.storage.clients.base import FileStatus

#: Bytes of a copy that are read at a time, at most.
PIECE_BYTES = 1 << 22


class SparseFile:
    """A file with some ranges filled in; the rest reads as zeros."""

    def __init__(self, path: Path, file: FetchedFile, distance: blocks.HdfsLocality) -> None:
        self._path, self._file, self._distance = path, file, distance
        self._filled = FilledExtents()
        self._lock = threading.Lock()
        with path.open("xb") as made:
            os.truncate(made.fileno(), file.size)

    def write_known_pieces(self, pieces: Iterable[tuple[int, bytes]]) -> None:
        """Write pieces (offset, bytes) that are already known."""
        with self._lock, self._path.open("r+b") as file:
            for at, piece in pieces:
                fetch.append_piece(file.fileno(), piece, at)
                self._filled.add_extent(at, at + len(piece))

    def fill_ranges(self, ranges: Iterable[tuple[int, int]], copy: Path | None) -> HdfsRead:
        """Fill in half-open ranges; return the bytes that were read from HDFS.

        Args:
            copy: Path where this node may have the whole file; None: nowhere.

        Raises:
            MillraceError: The ranges cannot be read, or the file has changed.
        """
        with self._lock:
            lacking = [each for first, last in ranges for each in self._filled.find_lacking(first, last)]
            if not lacking:
                return HdfsRead()
            with self._path.open("r+b") as file:
                there = copy is not None and self._copy_ranges(file.fileno(), lacking, copy)
                read = HdfsRead() if there else self._fetch_ranges(file.fileno(), lacking)
            for first, last in lacking:
                self._filled.add_extent(first, last)
            return read

    def _copy_ranges(self, descriptor: int, lacking: Sequence[tuple[int, int]], copy: Path) -> bool:
        """Fill in ranges from a copy; return False if it is missing or incomplete."""
        try:
            with copy.open("rb") as whole:  # may be unlinked meanwhile, and stays readable
                for first, last in lacking:
                    at = first
                    while piece := os.pread(whole.fileno(), min(last - at, PIECE_BYTES), at):
                        at += fetch.append_piece(descriptor, piece, at)
                    if at < last:
                        return False
        except OSError:
            return False
        return True

    def _fetch_ranges(self, descriptor: int, lacking: Sequence[tuple[int, int]]) -> HdfsRead:
        with closing(locations.open_location(self._file.place)) as location:
            about = FileStatus(size=self._file.size, version=self._file.version, mtime_ns=self._file.mtime_ns)
            n_bytes = sum(last - first for first, last in lacking)
            n_read = sum(
                fetch.append_piece(descriptor, piece, at) for at, piece in location.stream_ranges(lacking, about)
            )
            if n_read < n_bytes:
                raise location.make_short_error(n_read, n_bytes)
        return HdfsRead(0, n_bytes, self._distance.count_remote_bytes(self._file, lacking))


class FilledExtents:
    """Half-open extents, merged where they touch.

    >>> there = FilledExtents(); there.add_extent(10, 20); there.add_extent(30, 40)
    >>> there.find_lacking(0, 50), there.find_lacking(12, 18)
    ([(0, 10), (20, 30), (40, 50)], [])
    """

    def __init__(self) -> None:
        self._parts: list[tuple[int, int]] = []

    def add_extent(self, first: int, last: int) -> None:
        """Add ``[first, last)``."""
        touching = [part for part in self._parts if part[0] <= last and first <= part[1]]
        for part in touching:
            self._parts.remove(part)
        first, last = min([first, *(part[0] for part in touching)]), max([last, *(part[1] for part in touching)])
        self._parts.insert(bisect_right(self._parts, (first, last)), (first, last))

    def find_lacking(self, first: int, last: int) -> list[tuple[int, int]]:
        """Return the parts of ``[first, last)`` that were not added."""
        found = []
        for begin, end in self._parts[max(bisect_right(self._parts, (first, first)) - 1, 0) :]:
            if begin >= last:
                break
            if begin > first:
                found.append((first, begin))
            first = max(first, end)
        return [*found, (first, last)] if first < last else found
