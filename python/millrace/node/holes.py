"""Sparse copies of remote files, filled in where they are needed."""

from __future__ import annotations

import os
import threading
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path

from millrace.model import Fetched, HdfsRead
from millrace.storage import blocks, fetch, locations
from millrace.storage.clients.base import About

#: Bytes of a copy that are read at a time, at most.
PIECE = 1 << 22


class FileWithHoles:
    """A file with some ranges filled in; the rest reads as zeros."""

    def __init__(self, path: Path, file: Fetched, distance: blocks.Distance) -> None:
        self._path, self._file, self._distance = path, file, distance
        self._filled = Extents()
        self._lock = threading.Lock()
        with path.open("xb") as made:
            os.truncate(made.fileno(), file.size)

    def begin(self, pieces: Iterable[tuple[int, bytes]]) -> None:
        """Write pieces (offset, bytes) that are already known."""
        with self._lock, self._path.open("r+b") as file:
            for at, piece in pieces:
                fetch.append(file.fileno(), piece, at)
                self._filled.add(at, at + len(piece))

    def fill(self, ranges: Iterable[tuple[int, int]], copy: Path | None) -> HdfsRead:
        """Fill in half-open ranges; return the bytes that were read from HDFS.

        Args:
            copy: Path where this node may have the whole file; None: nowhere.

        Raises:
            MillraceError: The ranges cannot be read, or the file has changed.
        """
        with self._lock:
            lacking = [each for first, last in ranges for each in self._filled.lacking(first, last)]
            if not lacking:
                return HdfsRead()
            with self._path.open("r+b") as file:
                there = copy is not None and self._copied(file.fileno(), lacking, copy)
                read = HdfsRead() if there else self._read(file.fileno(), lacking)
            for first, last in lacking:
                self._filled.add(first, last)
            return read

    def _copied(self, descriptor: int, lacking: Sequence[tuple[int, int]], copy: Path) -> bool:
        """Fill in ranges from a copy; return False if it is missing or incomplete."""
        try:
            with copy.open("rb") as whole:  # may be unlinked meanwhile, and stays readable
                for first, last in lacking:
                    at = first
                    while piece := os.pread(whole.fileno(), min(last - at, PIECE), at):
                        at += fetch.append(descriptor, piece, at)
                    if at < last:
                        return False
        except OSError:
            return False
        return True

    def _read(self, descriptor: int, lacking: Sequence[tuple[int, int]]) -> HdfsRead:
        with closing(locations.at(self._file.place)) as location:
            about = About(size=self._file.size, version=self._file.version, mtime_ns=self._file.mtime_ns)
            n_bytes = sum(last - first for first, last in lacking)
            n_read = sum(fetch.append(descriptor, piece, at) for at, piece in location.pieces(lacking, about))
            if n_read < n_bytes:
                raise location.short(n_read, n_bytes)
        return HdfsRead(0, n_bytes, self._distance.far(self._file, lacking))


class Extents:
    """Half-open extents, merged where they touch.

    >>> there = Extents(); there.add(10, 20); there.add(30, 40)
    >>> there.lacking(0, 50), there.lacking(12, 18)
    ([(0, 10), (20, 30), (40, 50)], [])
    """

    def __init__(self) -> None:
        self._parts: list[tuple[int, int]] = []

    def add(self, first: int, last: int) -> None:
        """Add ``[first, last)``."""
        touching = [part for part in self._parts if part[0] <= last and first <= part[1]]
        for part in touching:
            self._parts.remove(part)
        first, last = min([first, *(part[0] for part in touching)]), max([last, *(part[1] for part in touching)])
        self._parts.insert(bisect_right(self._parts, (first, last)), (first, last))

    def lacking(self, first: int, last: int) -> list[tuple[int, int]]:
        """Return the parts of ``[first, last)`` that were not added."""
        found = []
        for begin, end in self._parts[max(bisect_right(self._parts, (first, first)) - 1, 0) :]:
            if begin >= last:
                break
            if begin > first:
                found.append((first, begin))
            first = max(first, end)
        return [*found, (first, last)] if first < last else found
