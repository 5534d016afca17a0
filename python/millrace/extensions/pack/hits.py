"""A compact encoding of hits: the entries of a database that each batch of queries has hit.

A batch is its number of queries and the ordinals of the entries that any of them has hit, ascending: the first, then
the distances less one. All numbers are varints (LEB128); the writer of the section compresses them.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from millrace.core.errors import CorruptError

#: Most batches of a result: each takes about 100 bytes of memory, but 3 bytes or less of a pack.
MAX_BATCHES = 1 << 22

#: Most bits of a number.
_BITS = 62


class BatchHits(NamedTuple):
    """The hits of one batch of consecutive queries."""

    queries: int
    #: Ordinals of the entries, ascending, each once.
    entries: Sequence[int]
    #: Other bytes that the codec needs, for instance the counts of filters.
    more: bytes = b""


def encode_hits(batches: Sequence[BatchHits]) -> bytes:
    """Encode batches.

    >>> [(each.queries, list(each.entries), each.more) for each in decode_hits(encode_hits([BatchHits(3, [0, 7, 300]), BatchHits(1, [], b"x")]), 301)]
    [(3, [0, 7, 300], b''), (1, [], b'x')]
    """
    counts, distances, more = bytearray(), bytearray(), bytearray()
    for batch in batches:
        for number in (batch.queries, len(batch.entries), len(batch.more)):
            _append_varint(counts, number)
        last = -1
        for entry in batch.entries:
            _append_varint(distances, entry - last - 1)
            last = entry
        more += batch.more
    # Numbers of one kind side by side compress better.
    head = bytearray()
    for number in (len(batches), len(counts), len(distances)):
        _append_varint(head, number)
    return bytes(head + counts + distances + more)


def decode_hits(data: bytes, entries: int, max_batches: int = MAX_BATCHES) -> list[BatchHits]:
    """Decode the batches that ``encode_hits`` has written.

    Args:
        entries: Number of entries in the database.
        max_batches: More are refused before memory is allocated for them.

    Raises:
        CorruptError: The data is malformed, or names entries that the database does not have.
    """
    numbers = _VarintReader(data)
    n, n_counts, n_distances = (next(numbers) for _ in range(3))
    start = numbers.at
    end = start + n_counts + n_distances
    if end > len(data) or n > n_counts:
        raise _make_format_error()
    if n > max_batches:
        raise CorruptError("the pack has more batches of queries than any result")
    counts, distances = _VarintReader(data[: start + n_counts], start), _VarintReader(data[:end], start + n_counts)
    batches, at = [], end
    for _ in range(n):
        queries, n_entries, n_more = next(counts), next(counts), next(counts)
        if n_more > len(data) - at or not queries:
            raise _make_format_error()
        batches.append(BatchHits(queries, _decode_ordinals(distances, n_entries, entries), data[at : at + n_more]))
        at += n_more
    if counts.n_bytes_left or distances.n_bytes_left or at != len(data):
        raise _make_format_error()
    return batches


def _decode_ordinals(distances: Iterator[int], n: int, entries: int) -> Sequence[int]:
    """Return the next ``n`` ordinals; check ``n`` before memory is allocated."""
    if n > entries:
        raise CorruptError("the pack has hits of entries that its database does not have")
    if not n:
        return ()
    found, last = array("I" if entries <= 1 << 32 else "Q"), -1
    for _ in range(n):
        last += next(distances) + 1
        if last >= entries:
            raise CorruptError("the pack has hits of entries that its database does not have")
        found.append(last)
    return found


def encode_numbers(values: Sequence[int]) -> bytes:
    """Encode numbers as bytes, for ``BatchHits.more``.

    >>> decode_numbers(encode_numbers([0, 127, 128, 70000]))
    [0, 127, 128, 70000]
    """
    out = bytearray()
    for value in values:
        _append_varint(out, value)
    return bytes(out)


def decode_numbers(data: bytes) -> list[int]:
    """Decode the numbers that ``encode_numbers`` has encoded.

    Raises:
        CorruptError: The data is malformed.
    """
    found, read = [], _VarintReader(data)
    while read.n_bytes_left:
        found.append(next(read))
    return found


def _append_varint(out: bytearray, number: int) -> None:
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)


class _VarintReader(Iterator[int]):
    """The varints of ``data``, from ``at`` to its end."""

    def __init__(self, data: bytes, at: int = 0) -> None:
        self._data, self.at = data, at

    def __next__(self) -> int:
        number = 0
        for shift in range(0, _BITS, 7):
            if self.at >= len(self._data):
                break
            byte = self._data[self.at]
            self.at += 1
            number |= (byte & 127) << shift
            if byte < 128:
                return number
        raise _make_format_error()

    @property
    def n_bytes_left(self) -> int:
        return len(self._data) - self.at


def _make_format_error() -> CorruptError:
    return CorruptError("the pack's lists of entries are not what a pack holds")
