"""Reading the lines of a growing file."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

#: Bytes read at once.
BLOCK_BYTES = 1 << 20


class FileTail:
    """A reader of lines appended to a file; it keeps the file open, so it can read the rest after the file is removed.

    Args:
        path: The file may not exist yet. If it is replaced, the new file is read from its beginning.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None
        self._rest = b""
        #: Number of files read so far; when it increases, earlier lines are out of date.
        self.n_files = 0

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def read_lines(self) -> list[bytes]:
        """Return the new complete lines, without their ends."""
        found = self._read_more_lines()
        if self._is_replaced():
            self.close()
            with suppress(OSError):
                self._file = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
                self._rest, found = b"", []
                self.n_files += 1
            found += self._read_more_lines()
        return found

    def _is_replaced(self) -> bool:
        """Tell whether the path now names another file than the open one."""
        try:
            there = self._path.stat()
        except OSError:
            return False
        return self._file is None or not os.path.samestat(there, os.fstat(self._file))

    def _read_more_lines(self) -> list[bytes]:
        """Read to the end of the open file and return the complete lines."""
        blocks = [self._rest]
        with suppress(OSError):  # removed on a network filesystem: its content was read before
            while self._file is not None and (block := os.read(self._file, BLOCK_BYTES)):
                blocks.append(block)
        *whole, self._rest = b"".join(blocks).split(b"\n")
        return whole
