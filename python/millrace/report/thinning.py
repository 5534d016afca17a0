"""Thinning of the event log: each task of a small run has a line; tasks of a large run share lines.

Beyond the first ones, tasks that one slot did one after the other share a line, ever more of them; failed tasks and
the slowest keep theirs. A million tasks make about ten thousand lines. Nothing here knows files.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappush, heappushpop

from millrace.report.events import TaskEvent, TasksEvent

#: Number of tasks with a line of their own, and of lines after which twice as many share one.
ALONE, STEP = 10_000, 5_000

#: The slowest tasks so far have lines of their own: this many at a time, and this many ever.
SLOWEST, MAX_SLOW_LINES = 20, 1_000


class TaskThinner:
    """Takes tasks, and returns the lines that stand for them."""

    def __init__(self) -> None:
        self._lines = self._slow = 0
        self._seconds: list[float] = []
        self._waiting: dict[tuple[int, str, bool], list[TaskEvent]] = {}

    def add_task(self, task: TaskEvent) -> TaskEvent | None:
        """Add the next task; return the line to write now, or None."""
        slow = self._is_among_slowest(task)
        if self._lines < ALONE or task.is_failure or slow:
            self._lines += 1
            return task
        key = (task.slot, task.status, task.fragment > 0)
        tasks = self._waiting.setdefault(key, [])
        tasks.append(task)
        if len(tasks) < 2 << (self._lines - ALONE) // STEP:
            return None
        self._lines += 1
        return sum_tasks(self._waiting.pop(key))

    def pop_waiting_lines(self) -> Iterator[TaskEvent]:
        """Yield the lines of tasks that still wait for others."""
        waiting, self._waiting = self._waiting, {}
        yield from map(sum_tasks, waiting.values())

    def _is_among_slowest(self, task: TaskEvent) -> bool:
        if len(self._seconds) < SLOWEST:
            heappush(self._seconds, task.seconds)
            return True
        slow = task.seconds > heappushpop(self._seconds, task.seconds) and self._slow < MAX_SLOW_LINES
        self._slow += slow
        return slow


def sum_tasks(tasks: list[TaskEvent]) -> TaskEvent:
    """Sum up tasks that a slot did one after the other, as one line."""
    if len(tasks) == 1:
        return tasks[0]
    first = tasks[0]
    return TasksEvent(
        t=max(task.t for task in tasks), start=min(task.start for task in tasks), slot=first.slot,
        first=min(task.first for task in tasks), last=max(task.last for task in tasks),
        units=sum(task.units for task in tasks), bytes=sum(task.bytes for task in tasks),
        cpu=sum(task.cpu for task in tasks), rss=max(task.rss for task in tasks), out=sum(task.out for task in tasks),
        attempt=max(task.attempt for task in tasks), fragment=first.fragment, status=first.status,
        n=len(tasks), n_records=sum(task.records for task in tasks), busy=sum(task.seconds for task in tasks),
    )  # fmt: skip
