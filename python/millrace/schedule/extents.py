"""Who writes which part of an output that is the blocks of all batches, one after the other: what all ways have in common.

Pure: blocks in, writes out; the clock is an argument. The coordinator knows the length of each block, so it gives
places without having seen a byte. The ways (`millrace.cluster.write`) are those of mpiBLAST-PIO (Lin et al., "Coordinating
Computation and I/O in Massively Parallel Sequence Search", IEEE TPDS 22(4), 2011).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from typing import Generic, Protocol, TypeVar

import msgspec

#: Bytes of an extent: it waits for this many, at most `LONGEST_WAIT_SECONDS` seconds, and it ends with the block that brings it
#: to `MOST_BYTES`. Large enough that messages do not count; small enough that all ranks have their turn.
LEAST_BYTES = 4 << 20
MOST_BYTES = 32 << 20
LONGEST_WAIT_SECONDS = 0.5


class Sized(Protocol):
    """A block, as far as places go."""

    @property
    def length(self) -> int: ...


Block = TypeVar("Block", bound=Sized)


class Write(msgspec.Struct, Generic[Block], frozen=True):
    """What one rank is to write: blocks, each at its offset."""

    number: int
    rank: int
    pieces: tuple[tuple[int, Block], ...]
    #: Its bytes may be fetched, and written when `Extents.released` says so.
    held: bool = False

    @property
    def size(self) -> int:
        return sum(block.length for _, block in self.pieces)


class Lane(msgspec.Struct, Generic[Block]):
    """Blocks that wait for their turn, with their offsets and holders, in order."""

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
    """Hands out the writes of one output, and knows what became of them.

    Args:
        ranks: Who can write.
    """

    def __init__(self, ranks: Iterable[int]) -> None:
        self._ranks = set(ranks)
        #: Bytes of all blocks so far: where the next one begins.
        self.size = 0
        #: What is to be written again, as whoever wrote it is lost.
        self._again: deque[Write[Block]] = deque()
        #: Handed out and not yet written; written and not yet known to be on disk.
        self._in_flight: dict[int, Write[Block]] = {}
        self._unsafe: dict[int, Write[Block]] = {}
        #: Bytes that each rank was given to write.
        self._given: Counter[int] = Counter()
        self._number = 0

    # What a way decides

    @abstractmethod
    def _take_in(self, offset: int, block: Block, holder: int | None) -> None:
        """Let a block wait for its turn."""

    @abstractmethod
    def _begin(self, now: float, *, last: bool) -> list[Write[Block]]:
        """Hand out what is to be begun at ``now``; with ``last`` nothing waits for more."""

    @property
    @abstractmethod
    def _waits(self) -> bool:
        """Whether blocks wait for their turn."""

    def released(self) -> list[Write[Block]]:
        """Held writes whose turn has come."""
        return []

    # What all ways do

    def add(self, block: Block, holder: int | None) -> None:
        """The next block of the output, in order; ``holder`` is the rank in whose journal it is, if that still runs."""
        if block.length:
            self._take_in(self.size, block, holder)
            self.size += block.length

    def turn(self, now: float, *, last: bool = False) -> list[Write[Block]]:
        """What is to be begun at ``now``, in seconds; with ``last`` nothing waits for more."""
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

    # What became of it

    def written(self, number: int) -> None:
        """A write has come to its end; its bytes may still be in a memory that is lost with its node."""
        if write := self._in_flight.pop(number, None):
            self._unsafe[number] = write

    def safe(self, numbers: Iterable[int]) -> None:
        """These are on disk."""
        for number in numbers:
            self._unsafe.pop(number, None)

    def rank_is_safe(self, rank: int) -> None:
        """All that ``rank`` has written is on disk."""
        self._unsafe = {number: write for number, write in self._unsafe.items() if write.rank != rank}

    def lost(self, rank: int) -> None:
        """Somebody else is to write what ``rank`` had, unless it is on disk."""
        self._ranks.discard(rank)
        for writes in (self._unsafe, self._in_flight):
            for number in [number for number, write in writes.items() if write.rank == rank]:
                self._again.append(self._taken_back(writes.pop(number)))

    def _taken_back(self, write: Write[Block]) -> Write[Block]:
        """How it is to be written again."""
        return msgspec.structs.replace(write, held=False)

    @property
    def writing(self) -> bool:
        """Whether something is being written."""
        return bool(self._in_flight)

    @property
    def written_all(self) -> bool:
        """Whether nothing waits and nothing is being written."""
        return not (self._again or self._in_flight or self._waits)

    def unsafe(self) -> list[Write[Block]]:
        """What is written and not known to be on disk."""
        return [*self._unsafe.values()]
