"""Distribution over ranks of the writes of an output that is the blocks of all batches in order: the common part.

Pure: blocks in, writes out; the clock is an argument. The coordinator knows the length of each block, so it computes
offsets without having seen a byte. The strategies (``millrace.cluster.write``) are those of mpiBLAST-PIO (Lin et al.,
"Coordinating Computation and I/O in Massively Parallel Sequence Search", IEEE TPDS 22(4), 2011).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from typing import Generic, Protocol, TypeVar

import msgspec

#: An extent waits for this many bytes, at most ``LONGEST_WAIT_SECONDS``, and ends with the block that brings it to
#: ``MOST_BYTES``. Large enough that the cost of messages is small; small enough that all ranks take part.
LEAST_BYTES = 4 << 20
MOST_BYTES = 32 << 20
LONGEST_WAIT_SECONDS = 0.5


class Sized(Protocol):
    """A block, as far as its offset is concerned."""

    @property
    def length(self) -> int: ...


Block = TypeVar("Block", bound=Sized)


class Write(msgspec.Struct, Generic[Block], frozen=True):
    """One write of a rank: blocks, each at its offset."""

    number: int
    rank: int
    pieces: tuple[tuple[int, Block], ...]
    #: Whether its bytes may only be fetched now, and written when ``Extents.released`` returns it.
    held: bool = False

    @property
    def size(self) -> int:
        return sum(block.length for _, block in self.pieces)


class Lane(msgspec.Struct, Generic[Block]):
    """Queue of blocks with their offsets and holders, in order."""

    blocks: deque[tuple[int, Block, int | None]] = msgspec.field(default_factory=deque)
    size: int = 0
    since: float | None = None

    def add(self, offset: int, block: Block, holder: int | None) -> None:
        self.blocks.append((offset, block, holder))
        self.size += block.length

    def is_ready(self, now: float) -> bool:
        if self.blocks and self.since is None:
            self.since = now
        return self.size >= LEAST_BYTES or (self.since is not None and now - self.since >= LONGEST_WAIT_SECONDS)

    def take(self, most: int = MOST_BYTES) -> Iterator[tuple[int, Block, int | None]]:
        taken = 0
        while self.blocks and taken < most:
            taken += self.blocks[0][1].length
            yield self.blocks.popleft()
        self.size -= taken
        self.since = None


class Extents(ABC, Generic[Block]):
    """Distributes the writes of one output over ranks, and tracks their state.

    Args:
        ranks: Ranks that can write.
    """

    def __init__(self, ranks: Iterable[int]) -> None:
        self._ranks = set(ranks)
        #: Bytes of all blocks so far: offset of the next one.
        self.size = 0
        #: Writes to repeat, as their rank was lost.
        self._again: deque[Write[Block]] = deque()
        #: Issued and not yet written; written and not yet known to be on disk.
        self._in_flight: dict[int, Write[Block]] = {}
        self._unsafe: dict[int, Write[Block]] = {}
        #: Bytes assigned to each rank so far.
        self._given: Counter[int] = Counter()
        self._number = 0

    # Decisions of a strategy

    @abstractmethod
    def _take_in(self, offset: int, block: Block, holder: int | None) -> None:
        """Queue a block."""

    @abstractmethod
    def _begin(self, now: float, *, last: bool) -> list[Write[Block]]:
        """Issue the writes to begin at ``now``, in seconds; with ``last``, nothing waits for more blocks."""

    @property
    @abstractmethod
    def _waits(self) -> bool:
        """Whether blocks are queued."""

    def released(self) -> list[Write[Block]]:
        """Return held writes that may be written now."""
        return []

    # Common to all strategies

    def add(self, block: Block, holder: int | None) -> None:
        """Add the next block of the output, in order; ``holder`` is the live rank with its journal, or None."""
        if block.length:
            self._take_in(self.size, block, holder)
            self.size += block.length

    def turn(self, now: float, *, last: bool = False) -> list[Write[Block]]:
        """Return the writes to begin at ``now``, in seconds; with ``last``, nothing waits for more blocks."""
        found = []
        while self._again:
            write = self._again.popleft()
            found.append(self._hand(self._idlest(), write.pieces, held=write.held))
        return found + self._begin(now, last=last)

    def _hand(self, rank: int, pieces: Iterable[tuple[int, Block]], *, held: bool = False) -> Write[Block]:
        self._number += 1
        write = Write(self._number, rank, tuple(pieces), held)
        self._in_flight[write.number] = write
        return write

    def _idlest(self) -> int:
        return min(self._ranks, key=lambda rank: (self._given[rank], rank))

    # State of writes

    def written(self, number: int) -> None:
        """Note that a write has ended; its bytes may still be lost from memory with its node."""
        if write := self._in_flight.pop(number, None):
            self._unsafe[number] = write

    def safe(self, numbers: Iterable[int]) -> None:
        """Note that these writes are on disk."""
        for number in numbers:
            self._unsafe.pop(number, None)

    def rank_is_safe(self, rank: int) -> None:
        """Note that all writes of ``rank`` are on disk."""
        self._unsafe = {number: write for number, write in self._unsafe.items() if write.rank != rank}

    def lost(self, rank: int) -> None:
        """Remove a lost rank, and reassign its writes that are not known to be on disk."""
        self._ranks.discard(rank)
        for writes in (self._unsafe, self._in_flight):
            for number in [number for number, write in writes.items() if write.rank == rank]:
                self._again.append(self._taken_back(writes.pop(number)))

    def _taken_back(self, write: Write[Block]) -> Write[Block]:
        """Return the write as it is to be repeated."""
        return msgspec.structs.replace(write, held=False)

    @property
    def writing(self) -> bool:
        """Whether a write is in flight."""
        return bool(self._in_flight)

    @property
    def written_all(self) -> bool:
        """Whether nothing is queued and no write is in flight."""
        return not (self._again or self._in_flight or self._waits)

    def unsafe(self) -> list[Write[Block]]:
        """Return writes that have ended and are not known to be on disk."""
        return [*self._unsafe.values()]
