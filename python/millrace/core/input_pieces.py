"""Pieces of an input that nodes cut into records where its bytes lie: requests, answers, and sums of checksums. Values only."""

from __future__ import annotations

from functools import cache

from millrace.core.tool_use import FrozenValue

#: Formats whose records are found from any offset.
CUT_BY_NODES = ("fasta", "fastq", "lines", "sdf", "mol2")

#: Bytes of the records that are described together.
CHUNK_BYTES = 256 << 10

#: Maximum bytes of a piece: larger blocks are several pieces.
PIECE_BYTES = 32 << 20


class InputPieceRequest(FrozenValue, frozen=True, array_like=True):
    """A piece to be cut: the records that begin in ``[first, last)``."""

    #: From 1.
    number: int
    first: int
    last: int
    #: Offset of its first record, as the end of the piece before has shown it; None: to be found.
    start: int | None = None


class PieceChunk(FrozenValue, frozen=True, array_like=True):
    """Consecutive records of a piece, with the numbers of a ``millrace._core.Batch``."""

    records: int
    bytes: int
    cost: int
    crc32c: int
    largest: int


class PieceIndex(FrozenValue, frozen=True, array_like=True):
    """The records of a piece."""

    number: int
    #: Offset of its first record; None: no record begins in it.
    start: int | None = None
    chunks: tuple[PieceChunk, ...] = ()
    #: Problem with the record behind the last chunk, in words; empty: none.
    problem: str = ""

    @property
    def end(self) -> int | None:
        """The end of its last record; None: no record begins in it."""
        return None if self.start is None else self.start + sum(chunk.bytes for chunk in self.chunks)


def combine_crc32c(first: int, second: int, n_bytes: int) -> int:
    """Return the CRC-32C of two texts in a row from that of each; ``n_bytes``: length of the second.

    >>> from millrace._core import crc32c
    >>> combine_crc32c(crc32c(b"ACGT"), crc32c(b"TTG"), 3) == crc32c(b"ACGTTTG")
    True

    Source: ``crc32_combine`` of zlib, with the polynomial of Castagnoli.
    """
    bit = 0
    while n_bytes >> bit:
        if n_bytes >> bit & 1:
            first = _multiply(_build_zeros_operator(bit), first)
        bit += 1
    return first ^ second


def _multiply(matrix: tuple[int, ...], vector: int) -> int:
    """Multiply over GF(2)."""
    found, row = 0, 0
    while vector:
        if vector & 1:
            found ^= matrix[row]
        vector, row = vector >> 1, row + 1
    return found


@cache
def _build_zeros_operator(bit: int) -> tuple[int, ...]:
    """Build the matrix that appends ``2**bit`` zero bytes to a text."""
    return _square(_build_zeros_operator(bit - 1) if bit else _square(_square(_ONE_BIT)))


def _square(matrix: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(_multiply(matrix, row) for row in matrix)


#: The matrix that appends one zero bit.
_ONE_BIT = (0x82F63B78, *(1 << bit for bit in range(31)))
