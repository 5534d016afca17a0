"""Events of the Open Trace Format 2, the file of one location (``.evt``), as two columns: timestamps and records.

A file is a sequence of chunks of records: a byte for the kind, a byte for the length (255: it is in the next eight
bytes), and the data. A timestamp of eight bytes may precede a record; a chunk begins with 18 bytes and ends with one.
Source: OTF2 3.0, ``OTF2_Buffer.c`` and ``OTF2_buffer.h``. Words keep their bytes: a misread file is restored, too.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import BinaryIO

import numpy as np

from millrace.pack.codec import NotPackableError
from millrace.pack.layout import MAX_SECTION_BYTES
from millrace.pack.trace_table import PIECE_BYTES, ROWS, TraceColumn, TraceTable

#: The value of ``Table.dtype``.
NAME = "otf2"

#: First bytes of a file: a chunk, and the byte order of its numbers (``B``: lowest byte first).
MAGIC = b"\x03B"

_CHUNK_HEADER, _TIMESTAMP, _FIRST_WITH_LENGTH = 3, 5, 10
_CHUNK_BYTES, _TIME, _STAMP = 18, struct.Struct("<Q"), bytes([_TIMESTAMP])
_LONG = 255

#: Bytes of one record at most; a file with longer ones is not a trace.
_MAX_RECORD_BYTES = 1 << 16

#: Different words at most; with more of them nothing recurs.
_MAX_WORDS = 1 << 20


def read_otf2_tables(file: BinaryIO) -> Iterator[TraceTable]:
    """Yield the events of a file, one table for each piece.

    Raises:
        NotPackable: The file has no such events.
    """
    block, rest = file.read(PIECE_BYTES), b""
    while block:
        table, rest = _parse_table(rest + block)
        block = file.read(PIECE_BYTES)
        if rest and not block:
            raise NotPackableError("its last event is cut off")
        yield table


def _parse_table(block: bytes) -> tuple[TraceTable, bytes]:
    """Parse the complete records of a block; return them, and the remaining bytes."""
    numbers: dict[bytes, int] = {}
    times, words, now, at = [], [], 0, 0
    while (end := _find_record_end(block, at)) <= len(block):
        begin = at
        word = block[at:end]
        if block[at] == _TIMESTAMP:
            begin = at + 1 + _TIME.size
            (now,) = _TIME.unpack_from(block, at + 1)
            word = block[at : at + 1] + block[begin:end]
        times.append(now)
        words.append(numbers.setdefault(word, len(numbers)))
        at = end
        if at == len(block):
            break
    if not times or len(numbers) > _MAX_WORDS or max(times) >= 1 << 63:
        raise NotPackableError("its events are not as those of OTF2")
    columns = [
        TraceColumn(np.array(times, dtype=np.int64)),
        TraceColumn(np.array(words, dtype=np.int64), words=tuple(numbers)),
    ]
    return TraceTable(b"", columns, dtype=NAME), block[at:]


def _find_record_end(block: bytes, at: int) -> int:
    """Return the end of the record that begins at ``at``; a position behind the block if it is incomplete."""
    beyond = len(block) + 1
    if at < len(block) and block[at] == _TIMESTAMP:
        at += 1 + _TIME.size
    if at >= len(block):
        return beyond
    if block[at] == _CHUNK_HEADER:
        return at + _CHUNK_BYTES
    if block[at] < _FIRST_WITH_LENGTH:
        return at + 1
    if at + 1 >= len(block):
        return beyond
    if block[at + 1] != _LONG:
        return at + 2 + block[at + 1]
    if at + 2 + _TIME.size > len(block):
        return beyond
    (length,) = _TIME.unpack_from(block, at + 2)
    if length > _MAX_RECORD_BYTES:
        raise NotPackableError("its events are not as those of OTF2")
    return at + 2 + _TIME.size + int(length)


def encode_otf2_table(table: TraceTable) -> bytes:
    """Encode a table that ``read_otf2_tables`` has read; raise ValueError or the like for any other table."""
    times, words = table.columns
    if words.words is None or len(times.values) != len(words.values):
        raise ValueError("no events")
    known, events = words.words, bytearray()
    for at in range(0, len(words.values), ROWS):
        values: list[int] = words.values[at : at + ROWS].tolist()
        if min(values) < 0:
            raise ValueError("a word that is not there")
        for when, number in zip(times.values[at : at + ROWS].view(np.uint64).tolist(), values, strict=True):
            word = known[number]
            events += word[:1] + _TIME.pack(when) + word[1:] if word[:1] == _STAMP else word
        if len(events) > MAX_SECTION_BYTES:
            raise ValueError("more than any piece has")
    return bytes(events)
