"""The strategy in which several tasks find the ranks of all subjects of one query: a share of its candidates each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from millrace.committed import gather_slices
from millrace.schedule.finish.shares import count_worthwhile_slices, make_share_orders
from millrace.schedule.finish.way import ReadyBatch, SharedFinishStrategy, SlotCounts, SubjectRanks
from millrace.schedule.orders import TaskOrder
from millrace.tasks import RankTask

if TYPE_CHECKING:
    from millrace import _core


class RankSharing(SharedFinishStrategy):
    """Finds the ranks by which slices are written, where the candidates do not contain them."""

    kind = RankTask

    def plan_tasks(self, ready: ReadyBatch, slots: SlotCounts) -> list[TaskOrder] | None:
        # Each candidate is searched for its rank, and once more for its rows.
        n = count_worthwhile_slices(ready, slots, passes=2)
        return make_share_orders(RankTask, ready, n, ready.found) if n > 1 else None

    def combine_shares(self, shares: Mapping[int, _core.TaskRef]) -> SubjectRanks:
        return SubjectRanks(gather_slices(shares).blocks)
