"""Which entries of a database each batch of queries has hit, as few bytes.

A batch is its number of queries and the ordinals of entries that any of them has hit, ascending: the first, then the
distances less one. All numbers are varints (LEB128), and the whole is compressed by whoever writes it.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from millrace.errors import CorruptError

#: Batches of a result at most: each takes a hundred bytes of memory, and three bytes or less of a pack.
MAX_BATCHES = 1 << 22

#: Numbers have at most so many bits.
_BITS = 62


class Hits(NamedTuple):
    """One batch: consecutive queries, and what regenerates their part of the result."""

    queries: int
    #: Ordinals of the entries, ascending, each once.
    entries: Sequence[int]
    #: What else the codec needs, for instance what filters counted.
    more: bytes = b""


def encode(batches: Sequence[Hits]) -> bytes:
    """Write batches.

    >>> [(each.queries, list(each.entries), each.more) for each in decode(encode([Hits(3, [0, 7, 300]), Hits(1, [], b"x")]), 301)]
    [(3, [0, 7, 300], b''), (1, [], b'x')]
    """
    counts, distances, more = bytearray(), bytearray(), bytearray()
    for batch in batches:
        for number in (batch.queries, len(batch.entries), len(batch.more)):
            _put(counts, number)
        last = -1
        for entry in batch.entries:
            _put(distances, entry - last - 1)
            last = entry
        more += batch.more
    # Like beside like compresses better.
    head = bytearray()
    for number in (len(batches), len(counts), len(distances)):
        _put(head, number)
    return bytes(head + counts + distances + more)


def decode(data: bytes, entries: int, max_batches: int = MAX_BATCHES) -> list[Hits]:
    """Read what `encode` has written.

    Args:
        entries: How many entries the database has.
        max_batches: More are not read, nor is memory taken for them.

    Raises:
        CorruptError: It is something else, or of entries that the database does not have.
    """
    numbers = _Numbers(data)
    n, n_counts, n_distances = (next(numbers) for _ in range(3))
    start = numbers.at
    end = start + n_counts + n_distances
    if end > len(data) or n > n_counts:
        raise _wrong()
    if n > max_batches:
        raise CorruptError("the pack has more batches of queries than any result")
    counts, distances = _Numbers(data[: start + n_counts], start), _Numbers(data[:end], start + n_counts)
    batches, at = [], end
    for _ in range(n):
        queries, n_entries, n_more = next(counts), next(counts), next(counts)
        if n_more > len(data) - at or not queries:
            raise _wrong()
        batches.append(Hits(queries, _ordinals(distances, n_entries, entries), data[at : at + n_more]))
        at += n_more
    if counts.left or distances.left or at != len(data):
        raise _wrong()
    return batches


def _ordinals(distances: Iterator[int], n: int, entries: int) -> Sequence[int]:
    """The next ``n`` ordinals; no memory is taken for what cannot be."""
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


def numbers(values: Sequence[int]) -> bytes:
    """Numbers as bytes, for `Hits.more`.

    >>> numbers_of(numbers([0, 127, 128, 70000]))
    [0, 127, 128, 70000]
    """
    out = bytearray()
    for value in values:
        _put(out, value)
    return bytes(out)


def numbers_of(data: bytes) -> list[int]:
    """What `numbers` was given.

    Raises:
        CorruptError: It did not write ``data``.
    """
    found, read = [], _Numbers(data)
    while read.left:
        found.append(next(read))
    return found


def _put(out: bytearray, number: int) -> None:
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)


class _Numbers(Iterator[int]):
    """Varints up to the end of ``data``."""

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
        raise _wrong()

    @property
    def left(self) -> int:
        return len(self._data) - self.at


def _wrong() -> CorruptError:
    return CorruptError("the pack's lists of entries are not what a pack holds")
