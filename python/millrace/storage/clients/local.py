"""Plain files of the filesystems that the kernel has mounted."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator

from millrace.storage.clients.base import PIECE_BYTES, About, Location, LocationError


class Local(Location):
    """A file or folder by its path."""

    def about(self) -> About:
        try:
            return self._about(os.stat(self.url))
        except OSError as error:
            raise self._error(error) from error

    def stream(self, offset: int, length: int, about: About) -> Iterator[bytes]:
        try:
            with open(self.url, "rb", buffering=0) as file:
                if self._about(os.fstat(file.fileno())) != about:
                    raise self.changed()
                file.seek(offset)
                while length and (piece := file.read(min(PIECE_BYTES, length))):
                    length -= len(piece)
                    yield piece
                if self._about(os.fstat(file.fileno())) != about:
                    raise self.changed()
        except OSError as error:
            raise self._error(error) from error

    def names(self, folders: bool = False) -> list[str]:
        try:
            return sorted(
                entry.name for entry in os.scandir(self.url) if (entry.is_dir() if folders else entry.is_file())
            )
        except OSError as error:
            raise self._error(error) from error

    def forget(self, offset: int, length: int) -> None:
        """Drop this range of the file from the page cache, so that the next read comes from the filesystem."""
        with open(self.url, "rb", buffering=0) as file:
            os.posix_fadvise(file.fileno(), offset, length, os.POSIX_FADV_DONTNEED)

    def _about(self, about: os.stat_result) -> About:
        if not stat.S_ISREG(about.st_mode):
            raise self.not_a_file()
        version = f"{about.st_mtime_ns:x}.{about.st_ino:x}"
        return About(size=about.st_size, version=version, mtime_ns=about.st_mtime_ns)

    def _error(self, error: OSError) -> LocationError:
        if isinstance(error, FileNotFoundError | NotADirectoryError):
            return self.missing()
        if isinstance(error, PermissionError):
            return self.denied("see its owner and mode: ls -l")
        return LocationError(f"{self.shown}: {error.strerror or error}", "see whether its disk is mounted, and well")
