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

#: An extent waits for this many bytes, at most ``MAX_WAIT_SECONDS``, and ends with the block that brings it to
#: ``MAX_EXTENT_BYTES``. Large enough that the cost of messages is small; small enough that all ranks take part.
MIN_EXTENT_BYTES = 4 << 20
MAX_EXTENT_BYTES = 32 << 20
MAX_WAIT_SECONDS = 0.5


class SizedBlock(Protocol):
    """A block, as far as its offset is concerned."""

    @property
    def length(self) -> int: ...


Block = TypeVar("Block", bound=SizedBlock)


class RankWrite(msgspec.Struct, Generic[Block], frozen=True):
    """One write of a rank: blocks, each at its offset."""

    number: int
    rank: int
    pieces: tuple[tuple[int, Block], ...]
    #: Whether its bytes may only be fetched now, and written when ``WriteExtents.release_writes`` returns it.
    held: bool = False

    @property
    def size(self) -> int:
        return sum(block.length for _, block in self.pieces)


class WriteLane(msgspec.Struct, Generic[Block]):
    """Queue of blocks with their offsets and holders, in order."""

    blocks: deque[tuple[int, Block, int | None]] = msgspec.field(default_factory=deque)
    size: int = 0
    since: float | None = None

    def add_block(self, offset: int, block: Block, holder: int | None) -> None:
        self.blocks.append((offset, block, holder))
        self.size += block.length

    def is_ready(self, now: float) -> bool:
        if self.blocks and self.since is None:
            self.since = now
        return self.size >= MIN_EXTENT_BYTES or (self.since is not None and now - self.since >= MAX_WAIT_SECONDS)

    def pop_blocks(self, most: int = MAX_EXTENT_BYTES) -> Iterator[tuple[int, Block, int | None]]:
        taken = 0
        while self.blocks and taken < most:
            taken += self.blocks[0][1].length
            yield self.blocks.popleft()
        self.size -= taken
        self.since = None


class WriteExtents(ABC, Generic[Block]):
    """Distributes the writes of one output over ranks, and tracks their state.

    Args:
        ranks: Ranks that can write.
    """

    def __init__(self, ranks: Iterable[int]) -> None:
        self._ranks = set(ranks)
        #: Bytes of all blocks so far: offset of the next one.
        self.size = 0
        #: Writes to repeat, as their rank was lost.
        self._again: deque[RankWrite[Block]] = deque()
        #: Issued and not yet written; written and not yet known to be on disk.
        self._in_flight: dict[int, RankWrite[Block]] = {}
        self._unsafe: dict[int, RankWrite[Block]] = {}
        #: Bytes assigned to each rank so far.
        self._given: Counter[int] = Counter()
        self._number = 0

    # Decisions of a strategy

    @abstractmethod
    def _queue_block(self, offset: int, block: Block, holder: int | None) -> None:
        """Queue a block."""

    @abstractmethod
    def _begin_writes(self, now: float, *, last: bool) -> list[RankWrite[Block]]:
        """Issue the writes to begin at ``now``, in seconds; with ``last``, nothing waits for more blocks."""

    @property
    @abstractmethod
    def _has_waiting_blocks(self) -> bool:
        """Whether blocks are queued."""

    def release_writes(self) -> list[RankWrite[Block]]:
        """Return held writes that may be written now."""
        return []

    # Common to all strategies

    def add_block(self, block: Block, holder: int | None) -> None:
        """Add the next block of the output, in order; ``holder`` is the live rank with its journal, or None."""
        if block.length:
            self._queue_block(self.size, block, holder)
            self.size += block.length

    def issue_writes(self, now: float, *, last: bool = False) -> list[RankWrite[Block]]:
        """Return the writes to begin at ``now``, in seconds; with ``last``, nothing waits for more blocks."""
        found = []
        while self._again:
            write = self._again.popleft()
            found.append(self._issue_write(self._choose_rank(), write.pieces, held=write.held))
        return found + self._begin_writes(now, last=last)

    def _issue_write(self, rank: int, pieces: Iterable[tuple[int, Block]], *, held: bool = False) -> RankWrite[Block]:
        self._number += 1
        write = RankWrite(self._number, rank, tuple(pieces), held)
        self._in_flight[write.number] = write
        return write

    def _choose_rank(self) -> int:
        return min(self._ranks, key=lambda rank: (self._given[rank], rank))

    # State of writes

    def mark_written(self, number: int) -> None:
        """Note that a write has ended; its bytes may still be lost from memory with its node."""
        if write := self._in_flight.pop(number, None):
            self._unsafe[number] = write

    def mark_synced(self, numbers: Iterable[int]) -> None:
        """Note that these writes are on disk."""
        for number in numbers:
            self._unsafe.pop(number, None)

    def mark_rank_synced(self, rank: int) -> None:
        """Note that all writes of ``rank`` are on disk."""
        self._unsafe = {number: write for number, write in self._unsafe.items() if write.rank != rank}

    def remove_rank(self, rank: int) -> None:
        """Remove a lost rank, and reassign its writes that are not known to be on disk."""
        self._ranks.discard(rank)
        for writes in (self._unsafe, self._in_flight):
            for number in [number for number, write in writes.items() if write.rank == rank]:
                self._again.append(self._prepare_rewrite(writes.pop(number)))

    def _prepare_rewrite(self, write: RankWrite[Block]) -> RankWrite[Block]:
        """Return the write as it is to be repeated."""
        return msgspec.structs.replace(write, held=False)

    @property
    def is_writing(self) -> bool:
        """Whether a write is in flight."""
        return bool(self._in_flight)

    @property
    def has_written_all(self) -> bool:
        """Whether nothing is queued and no write is in flight."""
        return not (self._again or self._in_flight or self._has_waiting_blocks)

    def list_unsynced(self) -> list[RankWrite[Block]]:
        """Return writes that have ended and are not known to be on disk."""
        return [*self._unsafe.values()]


class OneLaneExtents(WriteExtents[Block]):
    """Base of the strategies that queue all blocks of an output in one lane."""

    def __init__(self, ranks: Iterable[int]) -> None:
        super().__init__(ranks)
        self._line: WriteLane[Block] = WriteLane()

    def _queue_block(self, offset: int, block: Block, holder: int | None) -> None:
        self._line.add_block(offset, block, holder)

    @property
    def _has_waiting_blocks(self) -> bool:
        return bool(self._line.blocks)
