"""The codec of periodic event traces: it stores one period, and the differences of the later ones.

A trace is an event log in text columns, an array of NumPy, the events of a location in the Open Trace Format 2, or a
file of MPE (CLOG-2), and is encoded in pieces, on several threads. Columns become integers; events of one rank or thread
are grouped if that helps; each column becomes differences from period to period, whose bytes are grouped by weight for
zstd. The period is found by FFT, and within the first one a shorter period in the same way. The packer checks all.

Source: ParaMEDIC's packing of MPE traces (Balaji, Feng, Archuleta, Lin, 2007).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np

from millrace.core.errors import CorruptError
from millrace.core.tool_use import FrozenValue
from millrace.extensions.pack import trace_tables
from millrace.extensions.pack.layout import MAX_SECTION_BYTES, map_in_threads
from millrace.extensions.pack.result_codec import NotPackableError
from millrace.extensions.pack.trace_tables import (
    MAX_COLUMNS,
    MAX_DTYPE_LETTERS,
    PIECE_BYTES,
    Numbers,
    TraceColumn,
    TraceTable,
)

#: Events from which the period is found.
SAMPLE_EVENTS = 1 << 18

#: Events from which a grouping is chosen; all of ``SAMPLE_EVENTS`` if no period is seen in these.
GROUPING_EVENTS = 1 << 15

#: Last numbers of a column from which its differences are chosen.
WAY_EVENTS = 1 << 16

#: Fewest events of a period in which a shorter one is looked for, and most periods within periods.
MIN_OUTER_EVENTS, MAX_NESTED = 16, 8

#: Least autocorrelation of the columns at the period.
MIN_RECURRING_SHARE = 0.3

#: The period is the shortest lag with at least this share of the correlation of the best lag.
MIN_SHARE_OF_BEST_LAG = 0.95

#: Values at most of a column by which events are grouped, such as a rank or a thread.
MAX_GROUPS = 4096


def find_period(columns: Sequence[TraceColumn]) -> int:
    """Return the number of events after which the columns recur; 0: there is no period.

    >>> import numpy as np
    >>> find_period([TraceColumn(np.array([5, 1, 1, 9] * 50))]), find_period([TraceColumn(np.arange(200))])
    (4, 0)
    """
    signals = [signal for each in columns if (signal := _make_signal(each)) is not None]
    if not signals:
        return 0
    n = len(signals[0])
    size = 1 << (2 * n - 1).bit_length()
    # The mean autocorrelation of all columns: 1 if each is the same after the lag.
    power = sum(np.abs(np.fft.rfft(signal, size)) ** 2 for signal in signals)
    lags = np.fft.irfft(power, size)[: n // 2]
    shares = lags / np.arange(n, n - len(lags), -1) / len(signals)
    best = float(shares[1:].max()) if len(shares) > 1 else 0.0
    if best < MIN_RECURRING_SHARE:
        return 0
    return 1 + int(np.argmax(shares[1:] >= MIN_SHARE_OF_BEST_LAG * best))


def _make_signal(column: TraceColumn) -> Any:
    """Return the steps or words of a column as a signal with mean 0 and variance 1; None: it is constant or short."""
    values = column.values[: SAMPLE_EVENTS + 1]
    if len(values) < 4:
        return None
    if column.words is None:
        steps = np.diff(values).astype(np.float64)
        low, high = np.percentile(steps, (1, 99))
        signal = np.clip(steps, low, high)
    else:  # a hash, so that each word has its own level
        scattered = (values[1:].astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        signal = (scattered >> np.uint64(40)).astype(np.float64)
    signal = signal - signal.mean()
    spread = float(signal.std())
    return signal / spread if spread > 0 else None


def find_periods(columns: Sequence[TraceColumn]) -> tuple[int, ...]:
    """Return the period of the columns, then the shorter one within its first occurrence, and so on; empty: none.

    >>> import numpy as np
    >>> inner = [5, 1, 1, 9] * 20
    >>> find_periods([TraceColumn(np.array((inner + [70, 80, 90, 0]) * 30))])
    (84, 4)
    """
    found: list[int] = []
    while len(found) < MAX_NESTED and (period := find_period(columns)):
        found.append(period)
        if period < MIN_OUTER_EVENTS:
            break
        columns = [TraceColumn(each.values[:period], each.decimals, each.words) for each in columns]
    return tuple(found)


def find_groupings(columns: Sequence[TraceColumn]) -> Iterator[int]:
    """Yield the indices of columns by which events may be grouped, after -1 for no grouping."""
    yield -1
    for index, column in enumerate(columns):
        if 2 <= len(np.unique(column.values)) <= min(MAX_GROUPS, len(column.values) // 8):
            yield index


def compute_differences(values: Numbers, periods: Sequence[int], *, by_steps: bool) -> Numbers:
    """Return the differences of values from those a period before, modulo 2**64.

    The values of the first period are differences by the next of ``periods``, which is shorter, and so on; those of the
    last one stay.

    Args:
        by_steps: Take differences of the steps from value to value, not of the values.
    """
    with np.errstate(over="ignore"):
        base = np.diff(values, prepend=np.int64(0)) if by_steps else values
        out, end = base.copy(), len(base)
        for period in periods:
            out[period:end] -= base[: end - period]
            end = period
    return out


def sum_differences(found: Numbers, periods: Sequence[int], *, by_steps: bool) -> Numbers:
    """Restore the values from which ``compute_differences`` has made ``found``."""
    out = found
    with np.errstate(over="ignore"):
        for period, end in reversed(list(zip(periods, (len(found), *periods), strict=False))):
            padded = np.zeros(-(-end // period) * period, dtype=np.int64)
            padded[:end] = out[:end]
            out = np.concatenate((padded.reshape(-1, period).cumsum(axis=0).ravel()[:end], out[end:]))
        return out.cumsum() if by_steps else out


#: Unsigned integers, or their bytes.
Unsigned = np.ndarray[Any, np.dtype[Any]]

Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_SECTION_BYTES)]


class ColumnHeader(FrozenValue, frozen=True):
    """Description of one column in the head of a piece."""

    #: Bytes of each number.
    width: Annotated[int, msgspec.Meta(ge=0, le=8)]
    by_steps: bool
    by_period: bool
    decimals: Annotated[int, msgspec.Meta(ge=-64, le=9)]
    #: Bytes of each word; None: a column of numbers.
    words: tuple[Count, ...] | None = None


class PieceHeader(FrozenValue, frozen=True):
    """The JSON at the begin of a piece."""

    rows: Count
    period: Count
    #: Index of the column by whose values events are grouped; -1: none.
    group: Annotated[int, msgspec.Meta(ge=-1, le=255)]
    columns: Annotated[tuple[ColumnHeader, ...], msgspec.Meta(min_length=1, max_length=256)]
    #: Number of bytes before the rows; the separator of fields; whether the last line has an end.
    head: Count
    separator: Annotated[str, msgspec.Meta(max_length=1)]
    ended: bool
    dtype: Annotated[str, msgspec.Meta(max_length=MAX_DTYPE_LETTERS)]
    #: Shorter periods within the first one, each within the one before it.
    within: Annotated[tuple[Count, ...], msgspec.Meta(max_length=MAX_NESTED)] = ()

    @property
    def periods(self) -> tuple[int, ...]:
        return (self.period, *self.within) if self.period else ()


#: Fields of a piece at most, as each takes a byte or more of the log: it bounds the memory that a pack can demand.
MAX_PIECE_FIELDS = PIECE_BYTES + MAX_COLUMNS

_LENGTH = struct.Struct("<I")


class TraceCodec:
    """The ``millrace.extensions.pack.difference.FileCodec`` of periodic traces."""

    def encode(self, path: Path) -> Iterator[bytes]:
        """Implement ``FileCodec.encode``."""
        yield from map_in_threads(_encode_table, _read_tables(path))

    def decode(self, piece: bytes) -> bytes:
        """Implement ``FileCodec.decode``."""
        try:
            with np.errstate(all="ignore"):
                return _decode_piece(piece)
        except (msgspec.MsgspecError, struct.error, ValueError, LookupError, OverflowError, TypeError, SyntaxError, RecursionError, MemoryError) as error:  # fmt: skip
            raise CorruptError("the pack has a piece of a trace that is none") from error


class VerbatimCodec:
    """The codec of other files beside traces: pieces without a head, which ``TraceCodec.decode`` returns unchanged."""

    def encode(self, path: Path) -> Iterator[bytes]:
        """Implement ``FileCodec.encode``."""
        with path.open("rb") as file:
            while data := file.read(MAX_SECTION_BYTES - _LENGTH.size):
                yield _LENGTH.pack(0) + data

    def decode(self, piece: bytes) -> bytes:
        """Implement ``FileCodec.decode``."""
        return piece[_LENGTH.size :]


def _read_tables(path: Path) -> Iterator[TraceTable | bytes]:
    """Yield the tables of a trace, one for each piece; bytes that belong to none as they are."""
    with path.open("rb") as file:
        magic = file.read(len(np.lib.format.MAGIC_PREFIX))
        file.seek(0)
        if magic == np.lib.format.MAGIC_PREFIX:
            yield from trace_tables.read_array_tables(file)
        elif magic.startswith(trace_tables.MAGIC):
            yield from trace_tables.read_otf2_tables(file)
        elif file.read(len(trace_tables.CLOG2_MAGIC)) == trace_tables.CLOG2_MAGIC:
            file.seek(0)
            yield from trace_tables.read_clog2_tables(file)
        else:
            file.seek(0)
            yield from trace_tables.read_text_tables(file)


def _encode_table(table: TraceTable | bytes) -> bytes:
    if isinstance(table, bytes):
        return _LENGTH.pack(0) + table
    return _encode_piece(table, _group_table(table.columns, _choose_grouping(table.columns)))


def _choose_grouping(columns: Sequence[TraceColumn]) -> int:
    """Return the index of the column by which to group events, from the first of them; -1: none."""
    n_rows = len(columns[0].values)
    for n_events in (GROUPING_EVENTS, SAMPLE_EVENTS):
        sample = [TraceColumn(each.values[:n_events], each.decimals, each.words) for each in columns]
        sizes = {group: _estimate_table_bits(_group_table(sample, group)) for group in find_groupings(sample)}
        best = min(sizes, key=lambda group: sizes[group])
        if sizes[best] < float("inf") or n_rows <= n_events:
            break
    return best


class _GroupedTable:
    """A table whose events are grouped by a column, as differences."""

    def __init__(self, group: int, periods: tuple[int, ...], columns: list[tuple[ColumnHeader, Unsigned]]) -> None:
        self.group, self.periods, self.columns = group, periods, columns


def _group_table(columns: Sequence[TraceColumn], group: int) -> _GroupedTable:
    if group >= 0:
        order = np.argsort(columns[group].values, kind="stable")
        columns = [
            each if index == group else TraceColumn(each.values[order], each.decimals, each.words)
            for index, each in enumerate(columns)
        ]
    periods = find_periods([each for index, each in enumerate(columns) if index != group])
    return _GroupedTable(group, periods, [_encode_column(each, periods) for each in columns])


def _encode_column(column: TraceColumn, periods: tuple[int, ...]) -> tuple[ColumnHeader, Unsigned]:
    """Encode a column by the differences that take fewest bytes."""
    ways = [
        (by_steps, by_period, compute_differences(column.values, periods if by_period else (), by_steps=by_steps))
        for by_steps in (False, True) for by_period in ((False, True) if periods else (False,))
    ]  # fmt: skip
    by_steps, by_period, best = min(ways, key=lambda way: _measure_entropy_bits(_encode_zigzag(way[2][-WAY_EVENTS:])))
    numbers = _encode_zigzag(best)
    width = (int(numbers.max()).bit_length() + 7) // 8 if len(numbers) else 0
    lengths = tuple(map(len, column.words)) if column.words is not None else None
    told = ColumnHeader(width=width, by_steps=by_steps, by_period=by_period, decimals=column.decimals, words=lengths)
    return told, numbers


def _estimate_table_bits(grouped: _GroupedTable) -> float:
    if not grouped.periods:
        return float("inf")
    return sum(_measure_entropy_bits(numbers) for _, numbers in grouped.columns)


def _measure_entropy_bits(numbers: Unsigned) -> float:
    """Return the entropy of the bytes of numbers, weight by weight, in bits: about their size when compressed."""
    total = 0.0
    for plane in _split_byte_planes(numbers, 8):
        counts = np.bincount(plane, minlength=256)
        counts = counts[counts > 0]
        total += float((counts * np.log2(len(plane) / counts)).sum())
    return total


def _split_byte_planes(numbers: Unsigned, width: int) -> Sequence[Unsigned]:
    by_weight = numbers.view(np.uint8).reshape(-1, 8)
    return [by_weight[:, weight] for weight in range(width)]


def _encode_zigzag(values: Numbers) -> Unsigned:
    """Encode signed numbers as unsigned ones (zigzag): 0, -1, 1, -2 become 0, 1, 2, 3."""
    return ((values << 1) ^ (values >> 63)).view(np.uint64)


def _decode_zigzag(numbers: Unsigned) -> Numbers:
    return ((numbers >> np.uint64(1)) ^ (np.uint64(0) - (numbers & np.uint64(1)))).view(np.int64)


def _encode_piece(table: TraceTable, found: _GroupedTable) -> bytes:
    if not found.periods:
        raise NotPackableError("no period is seen in its events")
    head = PieceHeader(
        rows=len(table.columns[0].values), period=found.periods[0], within=found.periods[1:], group=found.group, columns=tuple(told for told, _ in found.columns),
        head=len(table.head), separator=table.separator.decode(), ended=table.ended, dtype=table.dtype,
    )  # fmt: skip
    if head.rows * len(head.columns) > MAX_PIECE_FIELDS or len(head.dtype) > MAX_DTYPE_LETTERS:
        raise NotPackableError("its events have more fields than a piece may have")
    told = msgspec.json.encode(head)
    parts = [_LENGTH.pack(len(told)), told, table.head]
    parts += [word for column in table.columns for word in column.words or ()]
    parts += [plane.tobytes() for told, numbers in found.columns for plane in _split_byte_planes(numbers, told.width)]
    piece = b"".join(parts)
    if len(piece) > MAX_SECTION_BYTES:
        raise NotPackableError("it has columns of many different words")
    return piece


class _TracePieceReader:
    """A reader of the parts of a piece, in order."""

    def __init__(self, piece: bytes) -> None:
        self._piece, self._at = piece, 0

    def read_bytes(self, size: int) -> bytes:
        if size > len(self._piece) - self._at:
            raise ValueError("cut off")
        self._at += size
        return self._piece[self._at - size : self._at]

    def check_end(self) -> None:
        if self._at != len(self._piece):
            raise ValueError("too long")


def _decode_piece(piece: bytes) -> bytes:
    parts = _TracePieceReader(piece)
    if piece.startswith(_LENGTH.pack(0)):
        return piece[_LENGTH.size :]
    head = msgspec.json.decode(parts.read_bytes(_LENGTH.unpack(parts.read_bytes(_LENGTH.size))[0]), type=PieceHeader)
    if head.rows * len(head.columns) > MAX_PIECE_FIELDS or head.period > head.rows:
        raise ValueError("more than any piece has")
    if not all(0 < inner < outer for outer, inner in pairwise(head.periods)):
        raise ValueError("no period within another")
    if any(len(each.words or ()) > head.rows for each in head.columns):
        raise ValueError("words that do not come")
    start = parts.read_bytes(head.head)
    words = [None if each.words is None else tuple(map(parts.read_bytes, each.words)) for each in head.columns]
    numbers = [_read_numbers(parts, head.rows, each.width) for each in head.columns]
    parts.check_end()
    columns = [
        TraceColumn(sum_differences(_decode_zigzag(each), head.periods if told.by_period else (), by_steps=told.by_steps), told.decimals, known)
        for told, known, each in zip(head.columns, words, numbers, strict=True)
    ]  # fmt: skip
    _check_word_bytes(columns)
    if head.group >= 0:
        order = np.argsort(columns[head.group].values, kind="stable")
        columns = [each if index == head.group else _restore_order(each, order) for index, each in enumerate(columns)]
    return trace_tables.encode_table(TraceTable(start, columns, head.separator.encode(), head.ended, head.dtype))


def _read_numbers(parts: _TracePieceReader, rows: int, width: int) -> Unsigned:
    by_weight = np.zeros((rows, 8), dtype=np.uint8)
    for weight in range(width):
        by_weight[:, weight] = np.frombuffer(parts.read_bytes(rows), dtype=np.uint8)
    return by_weight.view(np.uint64).ravel()


def _restore_order(column: TraceColumn, order: Numbers) -> TraceColumn:
    values = np.empty_like(column.values)
    values[order] = column.values
    return TraceColumn(values, column.decimals, column.words)


def _check_word_bytes(columns: Sequence[TraceColumn]) -> None:
    """Check that the words, repeated for each row, are not longer than a piece may be."""
    size = 0
    for column in columns:
        if column.words is not None and len(column.values):
            lengths = np.array([len(word) for word in column.words], dtype=np.int64)
            size += int(lengths[column.values].sum())
    if size > MAX_SECTION_BYTES:
        raise ValueError("more than any piece has")


#: The codec of traces, and that of other files beside them.
CODEC, KEPT = TraceCodec(), VerbatimCodec()
