"""Event logs as columns of integers, and back: text with separators, arrays of NumPy, OTF2 and CLOG-2.

A column is of numbers, all with as many decimals, or of words, numbered in the order of their first occurrence. The
caller compares, as a log may not be restored exactly. Events of the Open Trace Format 2, the file of one location
(``.evt``), have two columns: timestamps and records. Records of CLOG-2, which MPE writes, have three: time, rank and
the rest. Their bytes are parsed and written by ``millrace_core::trace``; words keep theirs, so a misread file is
restored, too.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, BinaryIO

import numpy as np

from millrace import _core
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

_SEPARATORS = b",;\t "
_MAX_DECIMALS = 9

#: See ``TraceColumn.decimals``.
FLOAT_BITS = -1
_MAX_BINARY_DIGITS = 52

#: Values from which the decimals of a column are guessed.
_TRIED = 4096


@dataclass(frozen=True)
class TraceColumn:
    """One column of a piece."""

    values: Numbers
    #: Decimals of each number; 0 for words. ``FLOAT_BITS``: the values are the bits of floats; below it: so many less
    #: than that are the binary digits after the point, as of clocks that count in such steps.
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
    #: NumPy's description of a row of an array, ``OTF2``, or ``CLOG2`` and its form; empty: text.
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
    if n_fields > MAX_COLUMNS:
        raise NotPackableError("its lines have too many columns")
    try:
        columns = _core.parse_trace_text(block, separator[0], n_fields)
    except ValueError as error:
        raise NotPackableError(str(error)) from error
    return TraceTable(head, [_make_column(*each) for each in columns], separator, block.endswith(b"\n"))


def _make_column(values: bytes, decimals: int, words: Sequence[bytes] | None) -> TraceColumn:
    return TraceColumn(np.frombuffer(values, dtype=np.int64), decimals, None if words is None else tuple(words))


def _list_columns(table: TraceTable) -> list[tuple[bytes, int, Sequence[bytes] | None]]:
    """Return the columns of a table as the functions of ``_core`` take them."""
    return [(each.values.tobytes(), max(each.decimals, 0), each.words) for each in table.columns]


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
        for decimals in (*range(_MAX_DECIMALS + 1), *range(FLOAT_BITS - 1, FLOAT_BITS - 1 - _MAX_BINARY_DIGITS, -1)):
            if _make_integers(values[:_TRIED], decimals) is not None:
                numbers = _make_integers(values, decimals)
                if numbers is not None:
                    return TraceColumn(numbers, decimals)
    bits = np.ascontiguousarray(values).view(f"{values.dtype.byteorder}i{values.dtype.itemsize}").astype(np.int64)
    return TraceColumn(bits, FLOAT_BITS)


def _make_integers(values: Any, decimals: int) -> Numbers | None:
    """Return floats as integers from which ``_restore_floats`` restores them; None: it would not."""
    floats = values.astype(np.float64)
    whole = np.rint(floats * 10.0**decimals if decimals >= 0 else np.ldexp(floats, FLOAT_BITS - decimals))
    if not (np.abs(whole) < 1 << 62).all():
        return None
    numbers: Numbers = whole.astype(np.int64)
    return numbers if _restore_floats(numbers, decimals, values.dtype).tobytes() == values.tobytes() else None


def _restore_floats(numbers: Numbers, decimals: int, dtype: Any) -> Any:
    floats = numbers.astype(np.float64)
    return (floats / 10.0**decimals if decimals >= 0 else np.ldexp(floats, decimals - FLOAT_BITS)).astype(dtype)


def encode_table(table: TraceTable) -> bytes:
    """Encode a table that a function of this module has read; raise ValueError or the like for any other table."""
    if table.dtype == OTF2:
        return _core.format_otf2(_list_columns(table), MAX_SECTION_BYTES)
    if table.dtype.startswith(CLOG2):
        return table.head + _encode_clog2(table)
    if table.dtype:
        return table.head + _encode_array(table)
    return table.head + _core.format_trace_text(_list_columns(table), table.separator, table.ended, MAX_SECTION_BYTES)


def _encode_array(table: TraceTable) -> bytes:
    row = np.dtype(ast.literal_eval(table.dtype))
    plain = all(row[name].kind in "iufb" and row[name].itemsize <= 8 for name in row.names or ())
    if not plain or row.itemsize > 8 * MAX_COLUMNS or row.itemsize * len(table.columns[0].values) > 2 * PIECE_BYTES:
        raise ValueError("no row of plain numbers")
    rows = np.empty(len(table.columns[0].values), dtype=row)
    for name, column in zip(row.names or (), table.columns, strict=True):
        kind = row[name]
        if kind.kind == "f" and column.decimals != FLOAT_BITS:
            rows[name] = _restore_floats(column.values, column.decimals, kind)
        elif kind.kind == "f":
            rows[name] = column.values.astype(f"{kind.byteorder}i{kind.itemsize}").view(kind)
        else:
            rows[name] = column.values.astype(kind)
    written: bytes = rows.tobytes()
    return written


#: The value of ``TraceTable.dtype`` for events of OTF2.
OTF2 = "otf2"

#: First bytes of a file: a chunk, and the byte order of its numbers (``B``: lowest byte first).
MAGIC = b"\x03B"


def read_otf2_tables(file: BinaryIO) -> Iterator[TraceTable]:
    """Yield the events of a file, one table for each piece.

    Raises:
        NotPackableError: The file has no such events.
    """
    block, rest = file.read(PIECE_BYTES), b""
    while block:
        try:
            columns, length = _core.parse_otf2(rest + block)
        except ValueError as error:
            raise NotPackableError(str(error)) from error
        rest = (rest + block)[length:]
        block = file.read(PIECE_BYTES)
        if rest and not block:
            raise NotPackableError("its last event is cut off")
        yield TraceTable(b"", [_make_column(*each) for each in columns], dtype=OTF2)


#: Begin of ``TraceTable.dtype`` for records of CLOG-2; after it ``>`` or ``<``, the byte order, and the bytes of a block.
CLOG2 = "clog2"

#: First bytes of a file of MPE.
CLOG2_MAGIC = b"CLOG-02."

#: Bytes of the preamble: texts with a zero byte after each.
_PREAMBLE_BYTES = 1024


def read_clog2_tables(file: BinaryIO) -> Iterator[TraceTable | bytes]:
    """Yield the records of a file, one table for each piece, and the bytes that follow the last one.

    Raises:
        NotPackableError: The file is not as MPE writes it.
    """
    preamble = file.read(_PREAMBLE_BYTES)
    texts = preamble.split(b"\0")
    named = dict(pairwise(texts))
    size, order = named.get(b"block_size=", b""), named.get(b"is_big_endian=", b"").strip()
    if len(preamble) < _PREAMBLE_BYTES or not size.isdigit() or order not in (b"TRUE", b"FALSE"):
        raise NotPackableError("its preamble is not as MPE writes it")
    block_bytes = int(size)
    dtype = f"{CLOG2}{'>' if order == b'TRUE' else '<'}{block_bytes}"
    if not 0 < block_bytes <= PIECE_BYTES:
        raise NotPackableError("its blocks are too large")
    head, is_over = preamble, False
    while not is_over:
        blocks = file.read(PIECE_BYTES // block_bytes * block_bytes)
        try:
            columns, length, is_over = _core.parse_clog2(blocks, block_bytes, order == b"TRUE")
        except ValueError as error:
            raise NotPackableError(str(error)) from error
        times, *others = [_make_column(*each) for each in columns]
        yield TraceTable(head, [_make_number_column(times.values.view(np.float64)), *others], dtype=dtype)
        head, rest = b"", blocks[length:]
        if rest and not is_over:
            raise NotPackableError("its last block is cut off")
    while rest:  # the communicators
        yield rest
        rest = file.read(PIECE_BYTES)


def _encode_clog2(table: TraceTable) -> bytes:
    times, *others = _list_columns(table)
    bits = times
    if table.columns[0].decimals != FLOAT_BITS:
        floats = _restore_floats(table.columns[0].values, table.columns[0].decimals, np.dtype(np.float64))
        bits = (floats.tobytes(), 0, None)
    order, block_bytes = table.dtype[len(CLOG2)], int(table.dtype[len(CLOG2) + 1 :])
    return _core.format_clog2([bits, *others], block_bytes, order == ">", MAX_SECTION_BYTES)
