"""Locations: one small interface to files at paths and URLs, and to pieces of them; files that the kernel has mounted.

No library's cache is in between: ``millrace.storage.cache.copy_cache`` keeps all copies.
"""

from __future__ import annotations

import importlib
import os
import stat
from collections.abc import Iterator
from contextlib import closing
from urllib.parse import unquote, urlsplit

import msgspec

from millrace.core.replica_rules import check_place, is_url, redact_place
from millrace.storage.clients.base import PIECE_BYTES, FileLocation, FileStatus, LocationError


class PieceLocation(FileLocation):
    """A range of bytes of a file, with the version of the file.

    Args:
        first: Offset of the first byte; ``size``: number of bytes.
    """

    def __init__(self, whole: FileLocation, first: int, size: int) -> None:
        super().__init__(whole.url, whole.shown)
        self._whole, self._first, self._size = whole, first, size
        #: Status of the whole file, once asked.
        self._about: FileStatus | None = None

    def query_status(self) -> FileStatus:
        self._about = self._whole.query_status()
        if self._about.size < self._first + self._size:
            raise self.make_changed_error()
        return msgspec.structs.replace(self._about, size=self._size, checksum="")

    def stream_bytes(self, offset: int, length: int, about: FileStatus) -> Iterator[bytes]:
        assert self._about  # set by ``query_status``
        return self._whole.stream_bytes(self._first + offset, length, self._about)

    def list_names(self, folders: bool = False) -> list[str]:
        return self._whole.list_names(folders)

    def close(self) -> None:
        self._whole.close()


#: Module and class, by the scheme of the URL.
CLIENTS = {
    "ftp": ("ftp", "FtpLocation"),
    "hdfs": ("hdfs", "HdfsLocation"),
    "http": ("http", "HttpLocation"),
    "https": ("http", "HttpLocation"),
    "s3": ("s3", "S3Location"),
    "sftp": ("sftp", "SftpLocation"),
}


def open_location(place: str) -> FileLocation:
    """Open the location of a path or URL, a file or folder. Sends no request yet.

    Raises:
        RefusedError: It is not a readable place, or its client is not installed.
    """
    check_place(place)
    parts = urlsplit(place, allow_fragments=False)
    if not is_url(place) or parts.scheme == "file":
        return LocalLocation(unquote(parts.path) if is_url(place) else place, place)
    module, name = CLIENTS[parts.scheme]
    made: FileLocation = getattr(importlib.import_module(f"millrace.storage.clients.{module}"), name)(
        place, redact_place(place)
    )
    return made


def query_file_status(place: str) -> FileStatus:
    """Ask for the current size and version of the file at a place.

    Raises:
        MillraceError: The place cannot be asked, and why.
    """
    with closing(open_location(place)) as location:
        return location.query_status()


class LocalLocation(FileLocation):
    """A file or folder by its path."""

    def query_status(self) -> FileStatus:
        try:
            return self._make_status(os.stat(self.url))
        except OSError as error:
            raise self._translate_error(error) from error

    def stream_bytes(self, offset: int, length: int, about: FileStatus) -> Iterator[bytes]:
        try:
            with open(self.url, "rb", buffering=0) as file:
                if self._make_status(os.fstat(file.fileno())) != about:
                    raise self.make_changed_error()
                file.seek(offset)
                while length and (piece := file.read(min(PIECE_BYTES, length))):
                    length -= len(piece)
                    yield piece
                if self._make_status(os.fstat(file.fileno())) != about:
                    raise self.make_changed_error()
        except OSError as error:
            raise self._translate_error(error) from error

    def list_names(self, folders: bool = False) -> list[str]:
        try:
            return sorted(
                entry.name for entry in os.scandir(self.url) if (entry.is_dir() if folders else entry.is_file())
            )
        except OSError as error:
            raise self._translate_error(error) from error

    def drop_page_cache(self, offset: int, length: int) -> None:
        """Drop this range of the file from the page cache, so that the next read comes from the filesystem."""
        with open(self.url, "rb", buffering=0) as file:
            os.posix_fadvise(file.fileno(), offset, length, os.POSIX_FADV_DONTNEED)

    def _make_status(self, about: os.stat_result) -> FileStatus:
        if not stat.S_ISREG(about.st_mode):
            raise self.make_not_a_file_error()
        version = f"{about.st_mtime_ns:x}.{about.st_ino:x}"
        return FileStatus(size=about.st_size, version=version, mtime_ns=about.st_mtime_ns)

    def _translate_error(self, error: OSError) -> LocationError:
        if isinstance(error, FileNotFoundError | NotADirectoryError):
            return self.make_missing_error()
        if isinstance(error, PermissionError):
            return self.make_denied_error("see its owner and mode: ls -l")
        return LocationError(f"{self.shown}: {error.strerror or error}", "see whether its disk is mounted, and well")
