"""Plain files of the filesystems that the kernel has mounted."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator

from millrace.storage.clients.base import PIECE_BYTES, FileLocation, FileStatus, LocationError


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
