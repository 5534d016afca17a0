"""Event logs as columns of integers, and back: text with separators, arrays of NumPy, and OTF2.

A column is of numbers, all with as many decimals, or of words, numbered in the order of their first occurrence. The
caller compares, as a log may not be restored exactly. Events of the Open Trace Format 2, the file of one location
(``.evt``), have two columns: timestamps and records.

An OTF2 file is a sequence of chunks of records: a byte for the kind, a byte for the length (255: it is in the next
eight bytes), and the data. A timestamp of eight bytes may precede a record; a chunk begins with 18 bytes and ends
with one. Source: OTF2 3.0, ``OTF2_Buffer.c`` and ``OTF2_buffer.h``. Words keep their bytes: a misread file is
restored, too.
"""

from __future__ import annotations

import ast
import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np

from millrace.extensions.pack.layout import MAX_SECTION_BYTES
from millrace.extensions.pack.result_codec import NotPackableError

#: Signed integers of 64 bits, shape (n_rows,).
Numbers = np.ndarray[Any, np.dtype[np.int64]]

#: Bytes of a log that become one piece.
PIECE_BYTES = 16 << 20

#: Columns of a log at most.
MAX_COLUMNS = 256

#: Letters at most of NumPy's description of a row: parsing takes hundreds of bytes of memory for each.
MAX_DTYPE_LETTERS = 1 << 16

#: Rows that are encoded as text or events at a time.
ROWS = 1 << 16

_SEPARATORS = b",;\t "
_NUMBER = re.compile(rb"-?(?:0|[1-9][0-9]{0,17})(?:\.[0-9]{1,9})?")
_MAX_DECIMALS = 9


@dataclass(frozen=True)
class TraceColumn:
    """One column of a piece."""

    values: Numbers
    #: Decimals of each number; -1: the values are the bits of floats. 0 for words.
    decimals: int = 0
    #: Words by number; None: a column of numbers.
    words: tuple[bytes, ...] | None = None


@dataclass(frozen=True)
class TraceTable:
    """A piece of a log."""

    #: Bytes before the rows.
    head: bytes
    columns: Sequence[TraceColumn]
    #: Separator of fields; empty: the rows are those of an array.
    separator: bytes = b""
    #: Whether the last row has an end of line.
    ended: bool = True
    #: NumPy's description of a row of an array, or ``NAME``; empty: text.
    dtype: str = ""


def read_text_tables(file: Any) -> Iterator[TraceTable]:
    """Yield the tables of a log in text columns, one for each piece.

    Raises:
        NotPackableError: The file is not such a log.
    """
    head: bytes = file.readline(PIECE_BYTES)  # names of columns, or the first row: kept apart
    second: bytes = file.readline(PIECE_BYTES)
    separator = max((second.count(bytes([each])), bytes([each])) for each in _SEPARATORS)[1]
    if not second or separator not in second:
        raise NotPackableError("it is neither text in columns nor an array of NumPy")
    rest, n_fields = second, second.count(separator) + 1
    while block := rest + file.read(PIECE_BYTES) + file.readline(PIECE_BYTES):
        rest = b""
        yield _parse_text(head, block, separator, n_fields)
        head = b""


def _parse_text(head: bytes, block: bytes, separator: bytes, n_fields: int) -> TraceTable:
    lines = block.split(b"\n")
    ended = not lines[-1]
    rows = [line.split(separator) for line in (lines[:-1] if ended else lines)]
    if n_fields > MAX_COLUMNS or any(len(row) != n_fields for row in rows):
        raise NotPackableError("its lines do not all have the same columns")
    return TraceTable(head, [_parse_column(fields) for fields in zip(*rows, strict=True)], separator, ended)


def _parse_column(fields: Sequence[bytes]) -> TraceColumn:
    """Return the column of these fields: of numbers if possible, else of words."""
    if all(map(_NUMBER.fullmatch, fields)):
        decimals = {len(field.partition(b".")[2]) for field in fields}
        whole = [int(field.replace(b".", b"")) for field in fields]
        signed_zero = any(field[:1] == b"-" and not number for field, number in zip(fields, whole, strict=True))
        if (
            not signed_zero
            and len(decimals) == 1
            and all(-(1 << 63) <= number < 1 << 63 for number in (min(whole), max(whole)))
        ):
            return TraceColumn(np.array(whole, dtype=np.int64), decimals.pop())
    numbers: dict[bytes, int] = {}
    values = np.array([numbers.setdefault(field, len(numbers)) for field in fields], dtype=np.int64)
    return TraceColumn(values, words=tuple(numbers))


def read_array_tables(file: Any) -> Iterator[TraceTable]:
    """Yield the tables of an array of NumPy, one for each piece.

    Raises:
        NotPackableError: The file is not an array of rows of plain numbers.
    """
    try:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = read(file)
    except ValueError as error:
        raise NotPackableError(f"it is no array of NumPy that can be read: {error}") from error
    row = (
        dtype if dtype.names else np.dtype([(f"c{each}", dtype) for each in range(shape[-1] if len(shape) == 2 else 1)])
    )
    names = row.names or ()
    fields = [row[name] for name in names]
    if (
        fortran
        or len(shape) > 2
        or len(names) > MAX_COLUMNS
        or any(each.kind not in "iufb" or each.itemsize > 8 for each in fields)
    ):
        raise NotPackableError("it is no array of rows of plain numbers")
    start = file.tell()
    file.seek(0)
    head: bytes = file.read(start)
    words = np.lib.format.dtype_to_descr(row)
    while block := file.read(max(PIECE_BYTES // row.itemsize, 1) * row.itemsize):
        if len(block) % row.itemsize:
            raise NotPackableError("it is cut off")
        rows = np.frombuffer(block, dtype=row)
        yield TraceTable(head, [_make_number_column(rows[name]) for name in names], dtype=repr(words))
        head = b""


def _make_number_column(values: Any) -> TraceColumn:
    """Return the column of a field of an array; floats with few decimals become integers."""
    if values.dtype.kind != "f":
        return TraceColumn(values.astype(np.int64))
    if np.isfinite(values).all() and (np.abs(values) < 1 << 52).all():
        for decimals in range(_MAX_DECIMALS + 1):
            whole = np.rint(values.astype(np.float64) * 10.0**decimals)
            if (np.abs(whole) < 1 << 62).all():
                numbers = whole.astype(np.int64)
                if _restore_floats(numbers, decimals, values.dtype).tobytes() == values.tobytes():
                    return TraceColumn(numbers, decimals)
    bits = np.ascontiguousarray(values).view(f"{values.dtype.byteorder}i{values.dtype.itemsize}").astype(np.int64)
    return TraceColumn(bits, -1)


def _restore_floats(numbers: Numbers, decimals: int, dtype: Any) -> Any:
    return (numbers.astype(np.float64) / 10.0**decimals).astype(dtype)


def encode_table(table: TraceTable) -> bytes:
    """Encode a table that ``read_text_tables`` or ``read_array_tables`` has read; raise ValueError or the like for any other table."""
    return table.head + (_encode_array(table) if table.dtype else _encode_text(table))


def _encode_text(table: TraceTable) -> bytes:
    text = bytearray()
    for at in range(0, len(table.columns[0].values), ROWS):
        fields = [_format_fields(column, at) for column in table.columns]
        text += b"\n" * bool(at) + b"\n".join(map(table.separator.join, zip(*fields, strict=True)))
        if len(text) > MAX_SECTION_BYTES:
            raise ValueError("more than any piece has")
    return bytes(text) + b"\n" * table.ended


def _format_fields(column: TraceColumn, at: int) -> list[bytes]:
    """Format the fields of the ``ROWS`` rows from ``at`` on: as Python numbers all of them would take much memory."""
    values: list[int] = column.values[at : at + ROWS].tolist()
    if column.words is not None:
        if values and min(values) < 0:
            raise ValueError("a word that is not there")
        return [column.words[each] for each in values]
    if not column.decimals:
        return [b"%d" % each for each in values]
    one = 10**column.decimals
    return [b"%s%d.%0*d" % (b"-" * (each < 0), abs(each) // one, column.decimals, abs(each) % one) for each in values]


def _encode_array(table: TraceTable) -> bytes:
    row = np.dtype(ast.literal_eval(table.dtype))
    plain = all(row[name].kind in "iufb" and row[name].itemsize <= 8 for name in row.names or ())
    if not plain or row.itemsize > 8 * MAX_COLUMNS or row.itemsize * len(table.columns[0].values) > 2 * PIECE_BYTES:
        raise ValueError("no row of plain numbers")
    rows = np.empty(len(table.columns[0].values), dtype=row)
    for name, column in zip(row.names or (), table.columns, strict=True):
        kind = row[name]
        if kind.kind == "f" and column.decimals >= 0:
            rows[name] = _restore_floats(column.values, column.decimals, kind)
        elif kind.kind == "f":
            rows[name] = column.values.astype(f"{kind.byteorder}i{kind.itemsize}").view(kind)
        else:
            rows[name] = column.values.astype(kind)
    written: bytes = rows.tobytes()
    return written


#: The value of ``TraceTable.dtype``.
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
        NotPackableError: The file has no such events.
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
