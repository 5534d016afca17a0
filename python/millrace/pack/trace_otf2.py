"""Events of the Open Trace Format 2, one location's file (``.evt``), as two columns: when, and what.

A file is chunks of records one after another: a byte that says which, a byte that says how long it is (255: eight bytes more say
so), and its data. Before a record may stand when it happened, in eight bytes; a chunk begins with 18 bytes and ends with one. Source:
OTF2 3.0, ``OTF2_Buffer.c`` and ``OTF2_buffer.h``. Words keep their bytes, so what is read here in another way than it was meant
becomes the same file again.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import BinaryIO

import numpy as np

from millrace.pack.codec import NotPackable
from millrace.pack.layout import MOST_BYTES
from millrace.pack.trace_table import PIECE, ROWS, Column, Table

#: What stands in `Table.dtype`.
NAME = "otf2"

#: How a file begins: a chunk, and whether its numbers begin with the lowest byte (``B``) or the highest.
MAGIC = b"\x03B"

_CHUNK_HEADER, _TIMESTAMP, _FIRST_WITH_LENGTH = 3, 5, 10
_CHUNK_BYTES, _TIME, _STAMP = 18, struct.Struct("<Q"), bytes([_TIMESTAMP])
_LONG = 255

#: Most bytes of one record: more is no trace.
_LONGEST = 1 << 16

#: Events have no more than so many different words: else nothing recurs.
_MOST_WORDS = 1 << 20


def tables(file: BinaryIO) -> Iterator[Table]:
    """Read the events of a file, piece by piece.

    Raises:
        NotPackable: They are none.
    """
    block, rest = file.read(PIECE), b""
    while block:
        table, rest = _table(rest + block)
        block = file.read(PIECE)
        if rest and not block:
            raise NotPackable("its last event is cut off")
        yield table


def _table(block: bytes) -> tuple[Table, bytes]:
    """The whole records of a block, and what is left of it."""
    numbers: dict[bytes, int] = {}
    times, words, now, at = [], [], 0, 0
    while (end := _end(block, at)) <= len(block):
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
    if not times or len(numbers) > _MOST_WORDS or max(times) >= 1 << 63:
        raise NotPackable("its events are not as those of OTF2")
    columns = [
        Column(np.array(times, dtype=np.int64)),
        Column(np.array(words, dtype=np.int64), words=tuple(numbers)),
    ]
    return Table(b"", columns, dtype=NAME), block[at:]


def _end(block: bytes, at: int) -> int:
    """Where the record that begins there ends; behind the block if it goes on there."""
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
    if length > _LONGEST:
        raise NotPackable("its events are not as those of OTF2")
    return at + 2 + _TIME.size + int(length)


def written(table: Table) -> bytes:
    """What `tables` has read; ValueError or the like if the table is nobody's."""
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
        if len(events) > MOST_BYTES:
            raise ValueError("more than any piece has")
    return bytes(events)
