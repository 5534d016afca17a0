"""Inputs in which each file is one record."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from millrace import _core
from millrace.model import InputUse
from millrace.node.batch import SpooledBatch


class FileBatch(msgspec.Struct, frozen=True):
    """A batch of files, with the fields of a ``millrace._core.Batch``."""

    records: int
    bytes: int
    cost: int
    crc32c: int
    header: int = 0
    files: tuple[str, ...] = ()


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
