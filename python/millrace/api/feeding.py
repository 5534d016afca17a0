"""Standard input of a run that is made while its results are read: never more of it than the run takes."""

from __future__ import annotations

import fcntl
import os
import select
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress

#: Bytes written and read at once.
PIECE = 1 << 16

#: Bytes that wait in the pipe, so that the run has work while its caller is busy with a result.
PIPE_BYTES = 1 << 20

#: Seconds after which a piece is sent that is not full.
PIECE_SECONDS = 0.05


def lines_while_feeding(results: int, into: int, lines: Iterable[bytes]) -> Iterator[bytes]:
    """Write ``lines`` into a pipe as its reader takes them, in this thread, and yield the lines that come as results.

    What ``lines`` raises is raised behind the results of what came before. Both descriptors stay the caller's.

    Args:
        into: The writing end; it is closed at the end of ``lines``.
    """
    with suppress(OSError):  # more than this user may have
        fcntl.fcntl(into, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    feed = _Feed(into, lines)
    poll = select.poll()
    poll.register(results, select.POLLIN)
    poll.register(into, select.POLLOUT)
    rest = b""
    try:
        while True:
            ready = dict(poll.poll())
            if results in ready:  # first, as they are there
                if not (block := os.read(results, PIECE)):
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


class _Feed:
    """The writing end of the pipe, and what is to be written."""

    def __init__(self, into: int, lines: Iterable[bytes]) -> None:
        self._into, self._lines = into, iter(lines)
        self._left = memoryview(b"")
        self._is_over = False
        #: What the lines have raised.
        self.error: Exception | None = None
        os.set_blocking(into, False)

    def write(self) -> bool:
        """Write what there is room for; returns whether there is more."""
        if not self._left:
            self._left = memoryview(self._next_piece())
        if not self._left:
            return False
        try:
            self._left = self._left[os.write(self._into, self._left) :]
        except BlockingIOError:
            return True
        except BrokenPipeError:
            return False  # the run has ended, and says why
        return True

    def close(self) -> None:
        """End the input; twice is fine."""
        if self._into >= 0:
            os.close(self._into)
            self._into = -1

    def _next_piece(self) -> bytes:
        pieces, size, begun = list[bytes](), 0, time.monotonic()
        while not self._is_over and size < PIECE and (not pieces or time.monotonic() - begun < PIECE_SECONDS):
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
