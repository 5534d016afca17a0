"""``--write individual``: all ranks write the blocks that they hold at once; the file has holes until the end."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from millrace import _core
from millrace.cluster.write.lazy import refuse_lazy
from millrace.cluster.write.strategy import WriteStrategy
from millrace.plan.plan import Plan
from millrace.schedule.extents import Block, Extents, Lane, Write


class Individual(WriteStrategy):
    """The strategy ``individual``; see the module."""

    def check(self, plan: Plan) -> None:
        """See ``WriteStrategy``."""
        refuse_lazy(plan, "individual")

    def extents(self, ranks: Iterable[int], *, in_turn: bool) -> Extents[_core.BlockRef]:
        """See ``WriteStrategy``."""
        return IndividualExtents(ranks)


class IndividualExtents(Extents[Block]):
    """The assignment of one output: a lane for each rank."""

    def __init__(self, ranks: Iterable[int]) -> None:
        super().__init__(ranks)
        self._lanes: dict[int, Lane[Block]] = defaultdict(Lane)

    def _take_in(self, offset: int, block: Block, holder: int | None) -> None:
        rank = holder if holder is not None and holder in self._ranks else self._idlest()
        self._given[rank] += block.length
        self._lanes[rank].add(offset, block, holder)

    @property
    def _waits(self) -> bool:
        return any(lane.blocks for lane in self._lanes.values())

    def _begin(self, now: float, *, last: bool) -> list[Write[Block]]:
        busy = {write.rank for write in self._in_flight.values()}
        return [
            self._hand(rank, [(at, block) for at, block, _ in lane.take()])
            for rank, lane in self._lanes.items()
            if rank not in busy and lane.blocks and (last or lane.is_ready(now))
        ]

    def lost(self, rank: int) -> None:
        """See ``Extents``."""
        super().lost(rank)
        if lane := self._lanes.pop(rank, None):
            heir = self._lanes[self._idlest()]
            heir.blocks.extend(lane.blocks)
            heir.size += lane.size
