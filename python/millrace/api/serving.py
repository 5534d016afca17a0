"""The record protocol for Python programs that stay alive and take records one by one; see ``docs/records.md``."""

from __future__ import annotations

import os
from collections.abc import Iterator

from millrace.core.errors import RefusedError

#: Set in the environment of programs that are driven by the record protocol.
VARIABLE = "MILLRACE_RECORDS"

#: Bytes read at once.
PIECE_BYTES = 1 << 16


class RecordLink:
    """The two pipes to Millrace, taken from standard input and output.

    Afterwards the program's prints go to standard error, and its standard input is empty.
    """

    def __init__(self) -> None:
        self._from, self._to = os.dup(0), os.dup(1)
        os.dup2(2, 1)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)
        self._received = b""
        self._at = 0
        self._written: list[bytes] = []
        self._answers: list[bytes] = []
        self._is_asked = False

    def read_records(self) -> Iterator[bytes]:
        """Yield each record as it is in the input; all that is written before the next record is its answer."""
        while line := self._read_head():
            number, _, length = line.partition(b" ")
            record = self._read_bytes(int(length) + 1)
            self._is_asked = True
            yield record[:-1]
            self._is_asked = False
            answer = b"".join(self._written)
            self._written.clear()
            self._answers.append(b"%s %d\n%s\n" % (number, len(answer), answer))
        self._flush_answers()

    def add_answer(self, text: bytes | str) -> None:
        """Add to the answer; text is written as UTF-8.

        Raises:
            RefusedError: No record is open: none has come, or all are answered.
        """
        if not self._is_asked:
            raise _build_no_record_error()
        self._written.append(text.encode() if isinstance(text, str) else text)

    def _read_head(self) -> bytes:
        """Read the head line of the next record; empty at the end."""
        while (end := self._received.find(b"\n", self._at)) < 0:
            if not self._read_more():
                return b""
        line = self._received[self._at : end]
        self._at = end + 1
        return line

    def _read_bytes(self, length: int) -> bytes:
        """Read exactly ``length`` bytes."""
        while len(self._received) - self._at < length:
            if not self._read_more(length):
                raise EOFError("millrace: a record was cut off")
        found = self._received[self._at : self._at + length]
        self._at += length
        return found

    def _read_more(self, length: int = 0) -> bool:
        """Send the answers, then read until ``length`` bytes are buffered; return whether the input goes on."""
        self._flush_answers()
        pieces = [self._received[self._at :]]
        size, self._at = len(pieces[0]), 0
        while True:
            piece = os.read(self._from, max(PIECE_BYTES, min(length - size, 1 << 20)))
            pieces.append(piece)
            size += len(piece)
            if not piece or size >= length:
                break
        self._received = b"".join(pieces)
        return bool(piece)

    def _flush_answers(self) -> None:
        """Send the finished answers."""
        left = memoryview(b"".join(self._answers))
        self._answers.clear()
        while left:
            left = left[os.write(self._to, left) :]


def _build_no_record_error() -> RefusedError:
    return RefusedError(
        "millrace.write(): there is no record to answer", "call it inside of: for record in millrace.records()"
    )


_link: RecordLink | None = None


def records() -> Iterator[bytes]:
    r"""Yield each record that Millrace sends to this program (``millrace run --records -- python prog.py``).

    The answer to a record is all that ``write`` gets before the next record is taken. It must not depend on earlier
    records: Millrace decides during the run which process gets which records.

    Yields:
        The bytes of a record, as they are in the input.

    Raises:
        RefusedError: Millrace does not run this program.
    """
    global _link
    if _link is None:
        if VARIABLE not in os.environ:
            raise RefusedError(
                "millrace.records(): this program is not run by millrace",
                "start it by: millrace run --records --input FILE -- python PROGRAM",
            )
        _link = RecordLink()
    return _link.read_records()


def write(text: bytes | str) -> None:
    """Add to the answer to the latest record of ``records``; text is written as UTF-8.

    Raises:
        RefusedError: There is no such record.
    """
    if _link is None:
        raise _build_no_record_error()
    _link.add_answer(text)
