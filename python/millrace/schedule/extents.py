"""Who writes which part of an output that is the blocks of all batches, one after the other.

Pure: blocks in, writes out; the clock is an argument. The coordinator knows the length of each block, so it gives
places without having seen a byte. The ways are those of mpiBLAST-PIO (Lin et al., "Coordinating Computation and I/O in
Massively Parallel Sequence Search", IEEE TPDS 22(4), 2011):

``merge``: an extent, all that has become ready in the meantime, is written by the rank that holds most of its bytes, after
it has fetched the others. Several ranks write side by side, each an extent of its own, if the filesystem bears it; else
one after the other, so that the file never has a hole, and those who write next fetch in the meantime.
``individual``: each rank writes what it holds. All write side by side, so the file has holes until the end.
``collective``: as ``merge``, but all ranks write an extent together, each what it holds. None may be lost.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Generic, Literal, Protocol, TypeVar

WriteStrategy = Literal["merge", "individual", "collective"]

#: Bytes of an extent: it waits for this many, at most `LONGEST_WAIT_SECONDS` seconds, and it ends with the block that brings it
#: to `MOST_BYTES`. Large enough that messages do not count; small enough that all ranks have their turn.
LEAST_BYTES = 4 << 20
MOST_BYTES = 32 << 20
LONGEST_WAIT_SECONDS = 0.5

#: Extents that are under way where one is written after the other: the bytes of the next ones are fetched.
AHEAD = 3


class Sized(Protocol):
    """A block, as far as places go."""

    @property
    def length(self) -> int: ...


Block = TypeVar("Block", bound=Sized)


@dataclass(frozen=True)
class Write(Generic[Block]):
    """What one rank is to write: blocks, each at its offset."""

    number: int
    rank: int
    pieces: tuple[tuple[int, Block], ...]
    #: Its bytes may be fetched, and written when `Extents.released` says so.
    held: bool = False

    @property
    def size(self) -> int:
        return sum(block.length for _, block in self.pieces)


@dataclass
class _Lane(Generic[Block]):
    """Blocks that wait for their turn, with their offsets and holders, in order."""

    blocks: deque[tuple[int, Block, int | None]] = field(default_factory=deque)
    size: int = 0
    since: float | None = None

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


class Extents(Generic[Block]):
    """Hands out the writes of one output.

    Args:
        ranks: Who can write.
        in_turn: Whether ``merge`` writes one extent after the other.
    """

    def __init__(self, way: WriteStrategy, ranks: Iterable[int], *, in_turn: bool = False) -> None:
        self._way, self._ranks, self._in_turn = way, set(ranks), in_turn
        #: Bytes of all blocks so far: where the next one begins.
        self.size = 0
        self._lanes: dict[int | None, _Lane[Block]] = {}
        #: What is to be written again, as whoever wrote it is lost.
        self._again: deque[Write[Block]] = deque()
        #: Handed out and not yet written; written and not yet known to be on disk.
        self._flying: dict[int, Write[Block]] = {}
        self._unsafe: dict[int, Write[Block]] = {}
        #: Those handed out that must not be written yet.
        self._held: set[int] = set()
        self._given: Counter[int] = Counter()
        self._number = 0

    def add(self, block: Block, holder: int | None) -> None:
        """The next block of the output, in order; ``holder`` is the rank in whose journal it is, if that still runs."""
        if block.length:
            key = None
            if self._way == "individual":
                key = holder if holder is not None and holder in self._ranks else self._idlest()
                self._given[key] += block.length
            lane = self._lanes.setdefault(key, _Lane())
            lane.blocks.append((self.size, block, holder))
            lane.size += block.length
            self.size += block.length

    def turn(self, now: float, *, last: bool = False) -> list[Write[Block]]:
        """What is to be begun at ``now``, in seconds; with ``last`` nothing waits for more."""
        found = []
        while self._again:
            write = self._again.popleft()
            found.append(self._hand(self._idlest(), write.pieces, held=write.held))
        if self._way == "individual":
            busy = {write.rank for write in self._flying.values()}
            for rank, lane in self._lanes.items():
                if rank is not None and rank not in busy and lane.blocks and (last or lane.is_ready(now)):
                    found.append(self._hand(rank, [(at, block) for at, block, _ in lane.take()]))
        elif line := self._lanes.get(None):
            while line.blocks and (last or line.is_ready(now)) and (idle := self._idle()):
                if self._way == "collective":
                    found += self._together([*line.take()])
                    continue
                # What has piled up is for all who could write now.
                share = MOST_BYTES if self._in_turn else max(LEAST_BYTES, line.size // len(idle))
                extent = [*line.take(min(share, MOST_BYTES))]
                held = self._in_turn and bool(self._flying)
                pieces = [(at, block) for at, block, _ in extent]
                found.append(self._hand(self._holder_of_most(extent, idle), pieces, held=held))
        return found

    def released(self) -> list[Write[Block]]:
        """Held writes whose turn has come: everything before them is written."""
        if self._again or not self._held or len(self._held) < len(self._flying):
            return []
        first = min(self._held, key=lambda number: self._flying[number].pieces[0][0])
        self._held.remove(first)
        return [self._flying[first]]

    def _idle(self) -> set[int]:
        """Who may begin another extent now."""
        if self._way == "collective":
            return set() if self._flying else self._ranks
        if self._in_turn and len(self._flying) >= AHEAD:
            return set()
        return self._ranks - {write.rank for write in self._flying.values()}

    def _hand(self, rank: int, pieces: Iterable[tuple[int, Block]], *, held: bool = False) -> Write[Block]:
        self._number += 1
        write = Write(self._number, rank, tuple(pieces), held)
        self._flying[write.number] = write
        if held:
            self._held.add(write.number)
        if self._way != "individual":
            self._given[rank] += write.size
        return write

    def _holder_of_most(self, extent: Iterable[tuple[int, Block, int | None]], ranks: Iterable[int]) -> int:
        holds: Counter[int] = Counter()
        for _, block, holder in extent:
            if holder is not None:
                holds[holder] += block.length
        return max(ranks, key=lambda rank: (holds[rank], -self._given[rank], -rank))

    def _together(self, extent: Iterable[tuple[int, Block, int | None]]) -> list[Write[Block]]:
        shares: dict[int, list[tuple[int, Block]]] = {rank: [] for rank in sorted(self._ranks)}
        for at, block, holder in extent:
            shares[holder if holder in self._ranks and holder is not None else self._idlest()].append((at, block))
        return [self._hand(rank, pieces) for rank, pieces in shares.items()]

    def _idlest(self) -> int:
        return min(self._ranks, key=lambda rank: (self._given[rank], rank))

    # What became of it

    def written(self, number: int) -> None:
        """A write has come to its end; its bytes may still be in a memory that is lost with its node."""
        if write := self._flying.pop(number, None):
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
        for writes in (self._unsafe, self._flying):
            for number in [number for number, write in writes.items() if write.rank == rank]:
                self._again.append(replace(writes.pop(number), held=number in self._held))
                self._held.discard(number)
        if lane := self._lanes.pop(rank, None):
            heir = self._lanes.setdefault(self._idlest(), _Lane())
            heir.blocks.extend(lane.blocks)
            heir.size += lane.size

    @property
    def writing(self) -> bool:
        """Whether something is being written."""
        return bool(self._flying)

    @property
    def written_all(self) -> bool:
        """Whether nothing waits and nothing is being written."""
        return not (self._again or self._flying or any(lane.blocks for lane in self._lanes.values()))

    def unsafe(self) -> list[Write[Block]]:
        """What is written and not known to be on disk."""
        return [*self._unsafe.values()]
