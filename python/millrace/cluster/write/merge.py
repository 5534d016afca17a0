"""``--write merge``, the default: each extent (the blocks that are ready) is written by the rank that holds most of it.

That rank fetches the other bytes first. Several ranks write at the same time, each its own extent, where the filesystem
allows it. Elsewhere they write one after the other, so the file never has a hole; the next writers fetch in the meantime.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec

from millrace import _core
from millrace.cluster.write.strategy import WriteStrategy
from millrace.schedule.extents import MAX_EXTENT_BYTES, MIN_EXTENT_BYTES, Block, RankWrite, WriteExtents, WriteLane

#: Extents in flight where one is written after the other: the bytes of the next ones are fetched ahead.
MAX_EXTENTS_IN_FLIGHT = 3


class MergeWriteStrategy(WriteStrategy):
    """The strategy ``merge``; see the module."""

    def create_extents(self, ranks: Iterable[int], *, in_turn: bool) -> WriteExtents[_core.BlockRef]:
        """See ``WriteStrategy``."""
        return MergedExtents(ranks, in_turn=in_turn)


class MergedExtents(WriteExtents[Block]):
    """The assignment of one output: merged extents, each for the rank that holds most of it.

    Args:
        ranks: Ranks that can write.
        in_turn: Whether one extent is written after the other.
    """

    def __init__(self, ranks: Iterable[int], *, in_turn: bool = False) -> None:
        super().__init__(ranks)
        self._in_turn = in_turn
        self._line: WriteLane[Block] = WriteLane()
        #: Numbers of assigned extents that must not be written yet.
        self._held: set[int] = set()

    def _queue_block(self, offset: int, block: Block, holder: int | None) -> None:
        self._line.add_block(offset, block, holder)

    @property
    def _has_waiting_blocks(self) -> bool:
        return bool(self._line.blocks)

    def _begin_writes(self, now: float, *, last: bool) -> list[RankWrite[Block]]:
        found, line = [], self._line
        while line.blocks and (last or line.is_ready(now)) and (idle := self._find_idle_ranks()):
            # Spread the waiting blocks over all ranks that could write now.
            share = MAX_EXTENT_BYTES if self._in_turn else max(MIN_EXTENT_BYTES, line.size // len(idle))
            extent = [*line.pop_blocks(min(share, MAX_EXTENT_BYTES))]
            held = self._in_turn and bool(self._in_flight)
            pieces = [(at, block) for at, block, _ in extent]
            found.append(self._issue_write(self._choose_main_holder(extent, idle), pieces, held=held))
        return found

    def _find_idle_ranks(self) -> set[int]:
        """Return the ranks that may begin an extent now."""
        if self._in_turn and len(self._in_flight) >= MAX_EXTENTS_IN_FLIGHT:
            return set()
        return self._ranks - {write.rank for write in self._in_flight.values()}

    def _choose_main_holder(self, extent: Iterable[tuple[int, Block, int | None]], ranks: Iterable[int]) -> int:
        holds: Counter[int] = Counter()
        for _, block, holder in extent:
            if holder is not None:
                holds[holder] += block.length
        return max(ranks, key=lambda rank: (holds[rank], -self._given[rank], -rank))

    def _issue_write(self, rank: int, pieces: Iterable[tuple[int, Block]], *, held: bool = False) -> RankWrite[Block]:
        write = super()._issue_write(rank, pieces, held=held)
        self._given[rank] += write.size
        if held:
            self._held.add(write.number)
        return write

    def release_writes(self) -> list[RankWrite[Block]]:
        """Release the first held write if everything before it is written; return it, or none."""
        if self._again or not self._held or len(self._held) < len(self._in_flight):
            return []
        first = min(self._held, key=lambda number: self._in_flight[number].pieces[0][0])
        self._held.remove(first)
        return [self._in_flight[first]]

    def _prepare_rewrite(self, write: RankWrite[Block]) -> RankWrite[Block]:
        again = msgspec.structs.replace(write, held=write.number in self._held)
        self._held.discard(write.number)
        return again
