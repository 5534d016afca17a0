"""The strategy in which one task runs the user's command with all candidates as the database."""

from __future__ import annotations

from millrace.schedule.finish.way import FinishStrategy, ReadyBatch, SlotCounts
from millrace.schedule.orders import TaskOrder
from millrace.tasks import FinishTask


class WholeFinish(FinishStrategy):
    """Finishes any batch."""

    def plan_tasks(self, ready: ReadyBatch, slots: SlotCounts) -> list[TaskOrder]:
        return [self.make_order(ready)]

    def make_order(self, ready: ReadyBatch) -> TaskOrder:
        """Make the one task, which goes before those that wait: it ends a batch."""
        return TaskOrder(ready.batch, FinishTask(), ready.attempt, True, ready.found)
