"""How an output differs from what is regenerated, where both come bit by bit and neither is kept."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from millrace.pack.difference import PIECE, READ, Appended, compiled, note, place, same_bytes, stripped
from millrace.pack.layout import Kind

#: Bytes of one side that wait for the other before whoever brings more of it has to wait.
MOST = 4 * READ

#: Bytes that both sides have before a difference is looked at, or else their end.
AHEAD = 3 * PIECE


class Between:
    """Writes as `millrace.pack.difference.write` does; two threads bring the two sides.

    Args:
        volatile: As for `strip`, for what is regenerated.
    """

    def __init__(self, writer: Appended, output: int, volatile: Sequence[str]) -> None:
        self._writer, self._output, self._patterns = writer, output, compiled(volatile)
        self._more = threading.Condition()
        #: Of the output, and of what is regenerated; and whether there is no more of them.
        self._ours, self._theirs = bytearray(), bytearray()
        self._ours_end = self._theirs_end = False
        self._error: BaseException | None = None
        #: Place in what is left of the regenerated, and where that begins.
        self._there = self._base = 0
        #: Bytes before this place that are the same and not told yet.
        self._same = 0
        #: The begin of a line.
        self._rest = b""

    def ours(self, data: bytes) -> None:
        """Take what comes next of the output; empty: there is no more.

        Raises:
            BaseException: The other side has failed.
        """
        with self._more:
            self._wait(lambda: len(self._ours) < MOST or self._theirs_end)
            self._ours += data
            self._ours_end = not data
            self._advance()

    def theirs(self, data: bytes) -> None:
        """Take what comes next of what is regenerated; empty: there is no more.

        Raises:
            BaseException: The other side has failed.
        """
        lines, end, rest = (self._rest + data).rpartition(b"\n")
        self._rest = rest
        whole = stripped(lines + end, self._patterns)
        if not data and rest:
            whole += stripped(rest, self._patterns)
        with self._more:
            self._wait(lambda: len(self._theirs) < MOST or self._ours_end)
            self._theirs += whole
            self._theirs_end = not data
            self._advance()

    def give_up(self, error: BaseException) -> None:
        """Let nobody wait any more: one side has failed, and from now on the other does."""
        with self._more:
            self._error = self._error or error
            self._more.notify_all()

    def _wait(self, ready: Callable[[], bool]) -> None:
        self._more.wait_for(lambda: self._error is not None or ready())
        if self._error:
            raise self._error

    def _advance(self) -> None:
        """Write what is certain."""
        while self._ours:
            same = same_bytes(self._ours, 0, self._theirs, self._there)
            del self._ours[:same]
            self._there, self._same = self._there + same, self._same + same
            lacking = len(self._ours) < AHEAD and not self._ours_end
            if not self._ours or lacking or (len(self._theirs) - self._there < AHEAD and not self._theirs_end):
                break
            self._put(bytes(self._ours[:PIECE]))
        if self._ours_end and not self._ours and self._same:
            self._put(b"")
        self._forget()
        self._more.notify_all()

    def _put(self, piece: bytes) -> None:
        begin = max(self._there - PIECE, 0)
        end = min(self._there + len(piece) + PIECE, len(self._theirs))
        reference = bytes(self._theirs[begin:end]) if piece else b""
        told = note(self._output, self._base + self._there - self._same, self._same, self._base + begin, len(reference))
        self._writer.add(Kind.DIFFERENCE, piece, reference, told)
        del self._ours[: len(piece)]
        self._same = 0
        if piece:
            self._there = place(piece, self._theirs, self._there, begin, end)

    def _forget(self) -> None:
        """Drop what no difference refers to any more."""
        if self._there > 2 * PIECE:
            gone = self._there - PIECE
            del self._theirs[:gone]
            self._base, self._there = self._base + gone, self._there - gone
