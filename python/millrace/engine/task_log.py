"""The log of tasks in a run's events."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from millrace.ids import TaskId
from millrace.node.batch import SpooledBatch
from millrace.report.event_log import EventLog
from millrace.report.events import TaskEvent
from millrace.schedule.protocol import OutputBatch, SchedulerAction, VerificationDone
from millrace.task_numbers import encode_task_kind
from millrace.tasks import SlotTask, TaskEnded, TaskEnding

#: Endings that are logged under their own name; all others are logged as failures.
TOLD_AS_THEY_ARE = (TaskEnding.DONE, TaskEnding.TIMEOUT, TaskEnding.KILLED, TaskEnding.MISPLACED)


class TaskLog:
    """A writer of one event for each task that ended.

    Args:
        units_of: Cost units of a batch.
    """

    def __init__(self, events: EventLog, units_of: Callable[[SpooledBatch], int]) -> None:
        self._events, self._units_of = events, units_of
        self._started: dict[TaskId, float] = {}

    def record_start(self, task: TaskId, at: float) -> None:
        """Record that a slot has started a task, ``at`` seconds after the start of the run."""
        self._started[task] = at

    def record_end(
        self, task: SlotTask, batch: SpooledBatch, ended: TaskEnded, at: float, actions: Sequence[SchedulerAction]
    ) -> None:
        """Write the event of a task that ended.

        Args:
            actions: The scheduler's actions for it.
        """
        status = ended.ending.value if ended.ending in TOLD_AS_THEY_ARE else "failed"
        if ended.is_done and any(isinstance(action, VerificationDone) for action in actions):
            status = "verified"
        is_result = any(isinstance(action, OutputBatch) for action in actions)
        written = sum(block.length for block in ended.committed.blocks) if ended.committed else 0
        self._events.write(
            TaskEvent(
                t=at, start=self._started.pop(task.id, 0.0), slot=ended.slot, first=batch.first, last=batch.last,
                units=self._units_of(batch), bytes=batch.bytes, cpu=ended.cpu_seconds, rss=ended.peak_rss_bytes,
                out=written, attempt=task.attempt, fragment=0 if is_result else encode_task_kind(task.kind), status=status,
                detail=ended.detail,
            ),
            at,
        )  # fmt: skip
