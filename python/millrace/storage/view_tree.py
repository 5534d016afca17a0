"""Tree of a FUSE view: names in its folders, the version of each file as first seen, its bytes.

A file is read from the growing copy in the node's cache, or straight from its place.
"""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from millrace.core.errors import CorruptError, MillraceError
from millrace.core.replica_rules import redact_place
from millrace.storage import locations, url_files
from millrace.storage.cache import cache_download, cache_location
from millrace.storage.cache.copy_cache import NodeCache
from millrace.storage.clients.base import FileStatus, LocationError, MissingError, UnreachableError

#: Distance for which a read waits while the copy grows; bytes further ahead are requested directly.
AHEAD_BYTES = 8 << 20

#: Bytes of a direct request, and most such pieces of a file to keep.
PIECE_BYTES, MAX_KEPT_PIECES = 1 << 20, 16

#: Seconds between checks of the copy's length.
POLL_INTERVAL_SECONDS = 0.002


#: Files that are downloaded at the same time.
MAX_DOWNLOADS = 4


class DownloadPool:
    """The threads of a view that download files into the cache of the node."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(MAX_DOWNLOADS)
        self._lock = threading.Lock()
        self._begun: list[Future[None]] = []

    def start_download(self, download: Callable[[], None]) -> tuple[Future[None], bool]:
        """Start a download; return its future and whether it runs without waiting for others."""
        with self._lock:
            self._begun = [each for each in self._begun if not each.done()]
            self._begun.append(self._pool.submit(download))
            return self._begun[-1], len(self._begun) <= MAX_DOWNLOADS


class ViewFile:
    """A file of one version; for any number of threads.

    The first read starts a download into the cache, from the beginning of the file. A sequential reader waits for the
    next bytes; a read far ahead is a request of its own.

    Args:
        about: The version that the view shows.
        folder: The folder of the node's cache.
        downloads: Threads that download copies.
    """

    def __init__(self, place: str, about: FileStatus, folder: Path, downloads: DownloadPool) -> None:
        self.place, self.about = place, about
        self._folder, self._downloads = folder, downloads
        self._lock = threading.Lock()
        self._fetching: Future[None] | None = None
        self._is_next = False
        self._grows: tuple[Path, Path] | None = None  # while it grows, and when it is complete
        self._descriptor = -1
        self._cache: NodeCache | None = None
        self._pieces: OrderedDict[int, bytes] = OrderedDict()

    def read(self, offset: int, length: int) -> bytes:
        """Read the bytes [offset, offset + length), fewer at the end of the file.

        Raises:
            MillraceError: They cannot be read, or the file has changed.
        """
        end = min(offset + length, self.about.size)
        if offset >= end:
            return b""
        fetching = self._start_fetch()
        while True:
            over = fetching.done()  # before ``_count_present_bytes``: the length of a finished copy is final
            there = self._count_present_bytes()
            if there >= end:
                return os.pread(self._descriptor, end - offset, offset)
            if over:
                self._check_fetch_error(fetching)
            if over or not self._is_next or end - there > AHEAD_BYTES:
                return self._read_from_place(offset, end)
            time.sleep(POLL_INTERVAL_SECONDS)

    def _start_fetch(self) -> Future[None]:
        """Start the download, once; return its future."""
        with self._lock:
            if self._fetching is None:
                self._cache = NodeCache(self._folder, fetched=True)  # holds the copy as long as the view exists
                file = cache_download.make_remote_file(self.place, self.about)
                self._grows = self._cache.make_fetch_path(file), self._cache.make_copy_path(file)
                if self._cache.hold_copy(file):
                    self._fetching = Future()
                    self._fetching.set_result(None)
                else:
                    self._fetching, self._is_next = self._downloads.start_download(self._download_copy)
            return self._fetching

    def _download_copy(self) -> None:
        self._is_next = True
        assert self._cache
        cache_download.fetch_to_cache(
            self.place, self._cache, cache_location.compute_budget_bytes(self._cache), wanted=self.about
        )

    def _count_present_bytes(self) -> int:
        """Return the number of bytes at the beginning of the file that the copy has."""
        with self._lock:
            if self._descriptor >= 0:
                about = os.fstat(self._descriptor)
                if about.st_nlink:
                    return about.st_size
                os.close(self._descriptor)  # dropped by its process; another one may have started anew
                self._descriptor = -1
            for path in self._grows or ():
                with suppress(OSError):
                    self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                    return os.fstat(self._descriptor).st_size
        return 0

    def _check_fetch_error(self, fetching: Future[None]) -> None:
        """Raise the download's error if the copy is corrupt; ignore a failed or refused download."""
        if isinstance(error := fetching.exception(), CorruptError):
            raise error
        if error and not isinstance(error, MillraceError | OSError):
            raise error

    def _read_from_place(self, offset: int, end: int) -> bytes:
        """Read bytes straight from the place, in whole pieces."""
        with self._lock, closing(locations.open_location(self.place)) as location:
            found = bytearray()
            for k in range(offset // PIECE_BYTES, (end - 1) // PIECE_BYTES + 1):
                start = k * PIECE_BYTES
                if k not in self._pieces:
                    self._pieces[k] = location.read_bytes(start, min(PIECE_BYTES, self.about.size - start), self.about)
                self._pieces.move_to_end(k)
                found += self._pieces[k][max(0, offset - start) : end - start]
            while len(self._pieces) > MAX_KEPT_PIECES:
                self._pieces.popitem(last=False)
            return bytes(found)


@dataclass(frozen=True)
class FolderListing:
    """The names in a folder."""

    files: frozenset[str]
    folders: frozenset[str]


class ViewTree:
    """The files and folders below a URL; for any number of threads.

    A name or version stays as first seen, so that no program reads parts of two versions. A file that has changed since
    then cannot be read any more.

    Args:
        url: URL of a folder.
        cache: The folder in which the cache of the node is made.
    """

    def __init__(self, url: str, cache: Path) -> None:
        self._url = url if url.endswith("/") else url + "/"
        self._cache = cache
        self._downloads = DownloadPool()
        self._lock = threading.Lock()
        self._folders: dict[str, FolderListing | LocationError] = {}
        self._files: dict[str, ViewFile | LocationError] = {}

    def list_folder(self, path: str) -> FolderListing:
        """List a folder.

        Args:
            path: ``/``, or ``/name/...``.

        Raises:
            LocationError: It cannot be listed.
        """
        with self._lock:
            found = self._folders.get(path) or self._query_folder(path)
            # After a passing failure the place is asked again.
            if not isinstance(found, UnreachableError):
                self._folders[path] = found
        if isinstance(found, LocationError):
            raise found
        return found

    def is_folder(self, path: str) -> bool:
        """Tell whether a folder of this name exists, by the list of the folder above it."""
        above, _, name = path.rpartition("/")
        try:
            return not name or name in self.list_folder(above or "/").folders
        except LocationError:
            return False

    def find_file(self, path: str) -> ViewFile:
        """Return a file.

        Raises:
            MissingError: It does not exist.
            MillraceError: Its place cannot be asked.
        """
        with self._lock:
            known = self._files.get(path)
        found = known or self._query_file(path)
        with self._lock:
            if isinstance(found, ViewFile | MissingError):
                found = self._files.setdefault(path, found)
        if isinstance(found, LocationError):
            raise found
        return found

    def _query_file(self, path: str) -> ViewFile | LocationError:
        above, _, name = path.rpartition("/")
        place = self._make_url(path)
        try:
            if name not in self.list_folder(above or "/").files:
                return MissingError(f"{redact_place(place)}: no such file")
        except LocationError:
            pass  # a server that cannot list is asked for each file
        try:
            return ViewFile(place, locations.query_file_status(place), self._cache, self._downloads)
        except LocationError as error:
            return error

    def _query_folder(self, path: str) -> FolderListing | LocationError:
        try:
            with closing(locations.open_location(self._make_url(path).rstrip("/") + "/")) as folder:
                return FolderListing(frozenset(folder.list_names()), frozenset(folder.list_names(folders=True)))
        except LocationError as error:
            return error

    def _make_url(self, path: str) -> str:
        *folders, name = path[1:].split("/")
        url = self._url
        for folder in folders:
            url = url_files.make_sibling_url(url, folder) + "/"
        return url_files.make_sibling_url(url, name)
