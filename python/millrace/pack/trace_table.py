"""Event logs as columns of integers, and back: text with separators, and arrays of NumPy.

A column is of numbers, all with as many decimals, or of words, numbered in the order of their first occurrence. The
caller compares, as a log may not be restored exactly.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from millrace.pack.codec import NotPackableError
from millrace.pack.layout import MAX_SECTION_BYTES

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
    #: NumPy's description of a row of an array, or ``trace_otf2.NAME``; empty: text.
    dtype: str = ""


def read_text_tables(file: Any) -> Iterator[TraceTable]:
    """Yield the tables of a log in text columns, one for each piece.

    Raises:
        NotPackable: The file is not such a log.
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
        NotPackable: The file is not an array of rows of plain numbers.
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
