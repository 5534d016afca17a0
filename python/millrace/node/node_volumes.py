"""Volumes of a database on shared storage, or pieces of its file, on the node that searches them.

A volume is fetched into the cache of the node at its first search, and may be evicted once its searches have ended. A
search also reads a little of the indices and ids of the other volumes; these are sent to the node. Searches of
candidates read a few entries of each volume: these are filled into sparse files, from the copy of the volume if this
node has it, else from the shared storage.
"""

from __future__ import annotations

import os
import threading
import zlib
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path

from millrace.core.tool_use import FetchedFile, FragmentPlan, RemoteFileView, StorageRead, VolumeIndex
from millrace.storage import hdfs_blocks, locations, url_files
from millrace.storage.cache import cache_download, cache_location
from millrace.storage.cache.copy_cache import NodeCache
from millrace.storage.clients.base import FileStatus

#: Bytes of a copy that are read at a time, at most.
PIECE_BYTES = 1 << 22


class SparseFile:
    """A file with some ranges filled in; the rest reads as zeros."""

    def __init__(self, path: Path, file: FetchedFile, distance: hdfs_blocks.HdfsLocality) -> None:
        self._path, self._file, self._distance = path, file, distance
        self._filled = FilledExtents()
        self._lock = threading.Lock()
        with path.open("xb") as made:
            os.truncate(made.fileno(), file.size)

    def write_known_pieces(self, pieces: Iterable[tuple[int, bytes]]) -> None:
        """Write pieces (offset, bytes) that are already known."""
        with self._lock, self._path.open("r+b") as file:
            for at, piece in pieces:
                cache_download.append_piece(file.fileno(), piece, at)
                self._filled.add_extent(at, at + len(piece))

    def fill_ranges(self, ranges: Iterable[tuple[int, int]], copy: Path | None) -> StorageRead:
        """Fill in half-open ranges; return the bytes that were read from the shared storage.

        Args:
            copy: Path where this node may have the whole file; None: nowhere.

        Raises:
            MillraceError: The ranges cannot be read, or the file has changed.
        """
        with self._lock:
            lacking = [each for first, last in ranges for each in self._filled.find_lacking(first, last)]
            if not lacking:
                return StorageRead()
            with self._path.open("r+b") as file:
                there = copy is not None and self._copy_ranges(file.fileno(), lacking, copy)
                read = StorageRead() if there else self._fetch_ranges(file.fileno(), lacking)
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
                        at += cache_download.append_piece(descriptor, piece, at)
                    if at < last:
                        return False
        except OSError:
            return False
        return True

    def _fetch_ranges(self, descriptor: int, lacking: Sequence[tuple[int, int]]) -> StorageRead:
        with closing(locations.open_location(self._file.place)) as location:
            about = FileStatus(size=self._file.size, version=self._file.version, mtime_ns=self._file.mtime_ns)
            for at, piece in location.stream_with_retries(lacking, about):
                cache_download.append_piece(descriptor, piece, at)
        n_bytes = sum(last - first for first, last in lacking)
        return StorageRead(0, n_bytes, self._distance.count_remote_bytes(self._file, lacking))


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


class NodeVolumes:
    """The volumes of one database on this node.

    Args:
        copies: The other files of the database on this node, by name.
        folder: Folder for links and sparse files; it is made.
        shared: Folder that all nodes see, for files that the coordinator makes for all.

    Raises:
        RefusedError: There is no space for volumes here.
        OSError: The folder cannot be made.
    """

    def __init__(
        self, fragmented: FragmentPlan, view: RemoteFileView | None, copies: Mapping[str, str], folder: Path, shared: Path
    ) -> None:  # fmt: skip
        self.shared = shared
        kept = fragmented.kept
        #: Whether the files of the database are on storage that this node mounts.
        self.is_in_place = bool(kept.in_place)
        copies = {**kept.in_place, **copies}
        #: Empty on the coordinator, which has all of them.
        self._indices = [index for index in fragmented.indices if index.file.name not in copies]
        lacking = [index.file for index in self._indices]
        own = [[file for file in files if file.name not in copies] for files in fragmented.volumes]
        self._files = [[*files, *_select_volume_indices(files, lacking)] for files in own]
        self._place = url_files.choose_cache_folder(
            view.stage if view else kept.stage, round(kept.share * sum(file.size for files in own for file in files))
        )
        #: Names of files in pieces that are not here as a whole.
        self.in_pieces = {file.name for files in own for file in files if file.is_piece}
        #: Folder with all files of the database; those of volumes are sparse.
        self.whole = folder / "whole"
        #: Has ``partN`` with the files of the volume of fragment N, from 0.
        self.parts = folder
        self.whole.mkdir(parents=True)
        copies = {**_write_carried(fragmented, copies, folder / "carried"), **copies}
        for name, copy in copies.items():
            _replace_link(self.whole, name, copy)
        self._distance = hdfs_blocks.HdfsLocality()
        self._with_holes: dict[str, SparseFile] = {}
        later = view.later if view else tuple(file for files in own for file in files)
        for file in (*later, *lacking):
            self._with_holes[file.name] = SparseFile(self.whole / file.name, file, self._distance)
        #: The same for the search of another volume; the subfolder ``others`` of ``parts``.
        self.others = folder / "others"
        self.others.mkdir()
        self._link_other_volumes(copies)
        #: Paths of whole files while they are on this node.
        self._copies_of: dict[str, Path] = {}
        # Volumes that were made together have one list of ids, which BLAST needs beside each.
        of_all = drop_volume_files(copies, fragmented)
        for number, files in enumerate(self._files):
            part = folder / f"part{number}"
            part.mkdir()
            self._copies_of |= {file.name: part / file.name for file in files if not file.is_piece}
            stems = {f"{file.name.rpartition('.')[0]}." for file in files}
            for name, copy in copies.items():
                if name in of_all or name.startswith(tuple(stems)):
                    _replace_link(part, name, copy)
        self._locks: dict[int, threading.Lock] = defaultdict(threading.Lock)
        self._lock = threading.Lock()
        #: Caches with copies in use, and number of searches that use them, by fragment.
        self._caches: dict[int, NodeCache] = {}
        self._users: dict[int, int] = defaultdict(int)
        #: Bytes read from the shared storage.
        self.read = StorageRead()

    def _link_other_volumes(self, copies: Iterable[str]) -> None:
        """Link the files that the search of another volume reads: sparse ones, or others where ids are missing."""
        for index in self._indices:
            path = self.others / index.file.name
            if index.is_part:
                self._with_holes[index.file.name].write_known_pieces(_unpack_pieces(index))
            else:
                _write_sparse(path, index.file.size, _unpack_pieces(index))
        apart = {index.file.name for index in self._indices if not index.is_part}
        for name in {*copies, *self._with_holes} - apart:
            _replace_link(self.others, name, self.whole / name)

    def list_kept_fragments(self) -> list[int]:
        """List the fragments, from 1, whose volumes this node has kept from earlier jobs."""
        with closing(NodeCache(self._place, fetched=True)) as cache:
            there = {entry.path.name for entry in cache.list_entries() if entry.is_whole}
        return [
            number for number, files in enumerate(self._files, 1) if files and {each.key for each in files} <= there
        ]

    def acquire_volume(self, fragment: int) -> None:
        """Fetch the volume of ``fragment``, from 1, unless it is here; ``NodeVolumes.release_volume`` ends one call's use.

        Raises:
            MillraceError: It cannot be read, has changed, or does not fit.
        """
        number = fragment - 1
        with self._lock:
            self._users[number] += 1
            lock = self._locks[number]
        with lock:
            if number not in self._caches:
                self._caches[number] = self._fetch_volume(number)

    def _fetch_volume(self, number: int) -> NodeCache:
        with ExitStack() as stack:
            cache = NodeCache(self._place, fetched=True)
            stack.callback(cache.close)
            there = {entry.path.name for entry in cache.list_entries() if entry.is_whole}
            for file in self._files[number]:
                path = cache_download.fetch_to_cache(
                    file.place,
                    cache,
                    cache_location.compute_budget_bytes(cache),
                    wanted=_build_about(file),
                    first=file.first,
                )
                _replace_link(self.parts / f"part{number}", file.name, path)
                if path.name not in there:
                    self._count_read(StorageRead(file.size, 0, self._distance.count_remote_bytes(file, [file.extent])))
            stack.pop_all()
            return cache

    def release_volume(self, fragment: int) -> None:
        """End a use of the volume of ``fragment``; after the last one it may be evicted."""
        number = fragment - 1
        with self._lock:
            self._users[number] -= 1
            cache = self._caches.pop(number, None) if not self._users[number] else None
        if cache:
            cache.close()

    def fill_all_files(self) -> None:
        """Fill in all files, for a search of the whole database.

        Raises:
            MillraceError: They cannot be read, or have changed.
        """
        self.fill_ranges((file.name, *file.extent) for files in self._files for file in files)
        self.fill_ranges((index.file.name, 0, index.file.size) for index in self._indices)

    def fill_ranges(self, ranges: Iterable[tuple[str, int, int]]) -> None:
        """Fill in (name, first, last) ranges of files that are not here as a whole.

        Raises:
            MillraceError: They cannot be read, or have changed.
        """
        wanted: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for name, first, last in ranges:
            wanted[name].append((first, last))
        for name, own in wanted.items():
            if name in self._with_holes:
                self._count_read(self._with_holes[name].fill_ranges(own, self._copies_of.get(name)))

    def _count_read(self, read: StorageRead) -> None:
        with self._lock:
            self.read += read

    def close(self) -> None:
        """Release the cached copies."""
        for cache in self._caches.values():
            cache.close()
        self._caches.clear()


def find_absent_files(fragmented: FragmentPlan, copies: Mapping[str, str]) -> dict[str, int]:
    """Return the bytes of files that this node has at most in pieces, by name. Pure."""
    whole = {index.file.name: index.file.size for index in fragmented.indices}
    pieces = {file.name for files in fragmented.volumes for file in files if file.is_piece}
    return {name: whole[name] for name in pieces - {*copies}}


def _write_carried(fragmented: FragmentPlan, copies: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Write the files that come with the command and are not here; return their paths, by name."""
    folder.mkdir()
    lacking = [each for each in fragmented.carried if each.name not in copies]
    for each in lacking:
        (folder / each.name).write_bytes(zlib.decompress(each.packed))
    return {each.name: str(folder / each.name) for each in lacking}


def _select_volume_indices(files: Sequence[FetchedFile], indices: Sequence[FetchedFile]) -> list[FetchedFile]:
    """Return those of ``indices`` that belong to the volume of these files."""
    stems = {file.name.rpartition(".")[0] for file in files if not file.is_piece}
    return [index for index in indices if index.name.rpartition(".")[0] in stems]


def _unpack_pieces(index: VolumeIndex) -> list[tuple[int, bytes]]:
    return [(at, zlib.decompress(packed)) for at, packed in index.pieces]


def _write_sparse(path: Path, size: int, pieces: Iterable[tuple[int, bytes]]) -> None:
    """Write a file that is zero except for these pieces."""
    with path.open("xb") as file:
        os.truncate(file.fileno(), size)
        for at, piece in pieces:
            file.seek(at)
            file.write(piece)


def _replace_link(folder: Path, name: str, to: str | Path) -> None:
    """Make a link, in place of an earlier one."""
    new = folder / f".{name}"
    new.symlink_to(to)
    new.rename(folder / name)


def drop_volume_files(names: Mapping[str, str], fragmented: FragmentPlan) -> dict[str, str]:
    """Return those of ``names`` that are not of a volume, which BLAST would read from its working directory."""
    stems = tuple(
        {f"{file.name.rpartition('.')[0]}." for files in fragmented.volumes for file in files if not file.is_piece}
    )
    return {name: copy for name, copy in names.items() if not name.startswith(stems)}


def _build_about(file: FetchedFile) -> FileStatus:
    return FileStatus(size=file.size, version=file.version, mtime_ns=file.mtime_ns)
