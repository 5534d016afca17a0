"""The strategy in which several tasks write the rows of one query: a slice each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from millrace.committed import CommittedRecords, gather_slices
from millrace.schedule.finish.shares import count_worthwhile_slices, make_share_orders
from millrace.schedule.finish.way import ReadyBatch, SharedFinishStrategy, SlotCounts
from millrace.schedule.orders import TaskOrder
from millrace.tasks import SliceTask

if TYPE_CHECKING:
    from millrace import _core


class SlicedFinish(SharedFinishStrategy):
    """Writes the rows in slices: by the candidates, or by the ranks of the subjects once they are known.

    Args:
        needs_ranks: The candidates do not contain the ranks of subjects.
    """

    kind = SliceTask

    def __init__(self, *, needs_ranks: bool) -> None:
        self._needs_ranks = needs_ranks

    def plan_tasks(self, ready: ReadyBatch, slots: SlotCounts) -> list[TaskOrder] | None:
        if ready.ranks:
            n, found = len(ready.ranks), ready.ranks
        else:
            n, found = 1 if self._needs_ranks else count_worthwhile_slices(ready, slots, passes=1), ready.found
        return make_share_orders(SliceTask, ready, n, found) if n > 1 else None

    def combine_shares(self, shares: Mapping[int, _core.TaskRef]) -> CommittedRecords:
        return gather_slices(shares)
