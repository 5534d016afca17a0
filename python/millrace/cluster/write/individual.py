"""``--write individual``: all ranks write the blocks that they hold at once; the file has holes until the end."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from millrace import _core
from millrace.cluster.write.lazy import refuse_lazy_filesystem
from millrace.cluster.write.strategy import WriteStrategy
from millrace.plan.plan import RunPlan
from millrace.schedule.extents import Block, RankWrite, WriteExtents, WriteLane


class IndividualWriteStrategy(WriteStrategy):
    """The strategy ``individual``; see the module."""

    def check_filesystem(self, plan: RunPlan) -> None:
        """See ``WriteStrategy``."""
        refuse_lazy_filesystem(plan, "individual")

    def create_extents(self, ranks: Iterable[int], *, in_turn: bool) -> WriteExtents[_core.BlockRef]:
        """See ``WriteStrategy``."""
        return IndividualExtents(ranks)


class IndividualExtents(WriteExtents[Block]):
    """The assignment of one output: a lane for each rank."""

    def __init__(self, ranks: Iterable[int]) -> None:
        super().__init__(ranks)
        self._lanes: dict[int, WriteLane[Block]] = defaultdict(WriteLane)

    def _queue_block(self, offset: int, block: Block, holder: int | None) -> None:
        rank = holder if holder is not None and holder in self._ranks else self._choose_rank()
        self._given[rank] += block.length
        self._lanes[rank].add_block(offset, block, holder)

    @property
    def _has_waiting_blocks(self) -> bool:
        return any(lane.blocks for lane in self._lanes.values())

    def _begin_writes(self, now: float, *, last: bool) -> list[RankWrite[Block]]:
        busy = {write.rank for write in self._in_flight.values()}
        return [
            self._issue_write(rank, [(at, block) for at, block, _ in lane.pop_blocks()])
            for rank, lane in self._lanes.items()
            if rank not in busy and lane.blocks and (last or lane.is_ready(now))
        ]

    def remove_rank(self, rank: int) -> None:
        """See ``Extents``."""
        super().remove_rank(rank)
        if lane := self._lanes.pop(rank, None):
            heir = self._lanes[self._choose_rank()]
            heir.blocks.extend(lane.blocks)
            heir.size += lane.size
