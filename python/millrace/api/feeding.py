"""Standard input of a run, written by the thread that reads its results, only as fast as the run reads it."""

from __future__ import annotations

import fcntl
import os
import select
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress

#: Bytes written and read at once.
PIECE_BYTES = 1 << 16

#: Capacity of the pipe, in bytes: the run has work while its caller handles a result.
PIPE_BYTES = 1 << 20

#: Longest time to fill a piece, in seconds; then it is sent as it is.
MAX_PIECE_SECONDS = 0.05


def feed_and_read_lines(results: int, into: int, lines: Iterable[bytes]) -> Iterator[bytes]:
    """Write ``lines`` into a pipe as its reader takes them, in this thread, and yield the lines of the results.

    An error of ``lines`` is raised after the results of all lines before it.

    Args:
        results: The reading end of the results; the caller closes it.
        into: The writing end of the pipe; closed at the end of ``lines``, or when the iteration ends.
    """
    with suppress(OSError):  # above this user's limit
        fcntl.fcntl(into, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    feed = _LineFeed(into, lines)
    poll = select.poll()
    poll.register(results, select.POLLIN)
    poll.register(into, select.POLLOUT)
    rest = b""
    try:
        while True:
            ready = dict(poll.poll())
            if results in ready:  # results first
                if not (block := os.read(results, PIECE_BYTES)):
                    break
                *whole, rest = (rest + block).split(b"\n")
                yield from (line + b"\n" for line in whole)
            if into in ready and not feed.write():
                poll.unregister(into)
                feed.close()
    finally:
        feed.close()
    if feed.error:
        raise feed.error


class _LineFeed:
    """The writing end of the pipe, and the lines still to be written."""

    def __init__(self, into: int, lines: Iterable[bytes]) -> None:
        self._into, self._lines = into, iter(lines)
        self._left = memoryview(b"")
        self._is_over = False
        #: The error that the lines have raised.
        self.error: Exception | None = None
        os.set_blocking(into, False)

    def write(self) -> bool:
        """Write as much as the pipe takes without blocking, and return whether more may follow."""
        if not self._left:
            self._left = memoryview(self._build_piece())
        if not self._left:
            return False
        try:
            self._left = self._left[os.write(self._into, self._left) :]
        except BlockingIOError:
            return True
        except BrokenPipeError:
            return False  # the run has ended, and reports why
        return True

    def close(self) -> None:
        """Close the pipe, which ends the input. May be called twice."""
        if self._into >= 0:
            os.close(self._into)
            self._into = -1

    def _build_piece(self) -> bytes:
        """Return the next lines, up to ``PIECE_BYTES`` bytes or ``MAX_PIECE_SECONDS``; empty at the end."""
        pieces, size, begun = list[bytes](), 0, time.monotonic()
        while not self._is_over and size < PIECE_BYTES and (not pieces or time.monotonic() - begun < MAX_PIECE_SECONDS):
            try:
                line = next(self._lines, None)
            except Exception as error:
                self.error, line = error, None
            if line is None:
                self._is_over = True
                break
            pieces.append(line)
            size += len(line)
        return b"".join(pieces)
