"""The lines of a file that grows."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

#: Bytes read at once.
BLOCK_BYTES = 1 << 20


class Tail:
    """Reads what is appended to a file; also the rest of one that is removed meanwhile, as it is kept open.

    Args:
        path: It may not be there yet. If another file takes its place, that one is read from its begin.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None
        self._rest = b""
        #: How many files have been read: with the next one, what was told before is over.
        self.n_files = 0

    def close(self) -> None:
        """Give the file back."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def lines(self) -> list[bytes]:
        """The lines that are whole now and were not given before."""
        found = self._more()
        if self._is_another():
            self.close()
            with suppress(OSError):
                self._file = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
                self._rest, found = b"", []
                self.n_files += 1
            found += self._more()
        return found

    def _is_another(self) -> bool:
        try:
            there = self._path.stat()
        except OSError:
            return False
        return self._file is None or not os.path.samestat(there, os.fstat(self._file))

    def _more(self) -> list[bytes]:
        blocks = [self._rest]
        with suppress(OSError):  # removed on a network filesystem: what it had to tell was read before
            while self._file is not None and (block := os.read(self._file, BLOCK_BYTES)):
                blocks.append(block)
        *whole, self._rest = b"".join(blocks).split(b"\n")
        return whole
