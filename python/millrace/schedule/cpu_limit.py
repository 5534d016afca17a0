"""Limit of the CPU time of a task, beyond which it is taken to be endless. Pure.

Some programs never end on some input, and without ``--record-timeout`` nothing would stop them. A healthy task must not
be killed because its cost is unknown. So the limit is on CPU time alone, which does not pass while a machine is
suspended or its storage is slow; it follows from the slowest of at least ``MIN_RECORDS`` records that were done in this
run, with all of the shortest task counted as the start; and a task larger than those done has no limit, as cost may
grow faster than size.
"""

from __future__ import annotations

import math

import msgspec

#: The limit as a multiple of what the slowest measured records predict, and its minimum.
FACTOR = 100.0
MIN_LIMIT_SECONDS = 60.0

#: Numbers of records and tasks that must be done before the limit applies.
MIN_RECORDS = 100
MIN_TASKS = 3


class CpuLimit(msgspec.Struct):
    """Learns from tasks that are done how much CPU time others may use."""

    n_tasks: int = 0
    n_records: int = 0
    #: Units of the largest task.
    largest: int = 0
    #: CPU seconds of the shortest task: an upper bound of the tool's start.
    shortest_seconds: float = math.inf
    #: Maximum CPU seconds per unit of a task.
    slowest: float = 0.0

    def observe_task(self, units: int, cpu_seconds: float, n_records: int) -> None:
        """Learn from a task that is done."""
        if units < 1:
            return
        self.n_tasks += 1
        self.n_records += n_records
        self.largest = max(self.largest, units)
        self.shortest_seconds = min(self.shortest_seconds, cpu_seconds)
        self.slowest = max(self.slowest, cpu_seconds / units)

    def compute_limit_seconds(self, units: int) -> float | None:
        """Return the CPU seconds that a task of ``units`` may use; None: no limit.

        >>> limit = CpuLimit()
        >>> limit.observe_task(50, 1.0, 100)
        >>> limit.observe_task(10, 1.0, 1)
        >>> limit.compute_limit_seconds(50) is None
        True
        >>> limit.observe_task(10, 0.5, 1)
        >>> limit.compute_limit_seconds(50), limit.compute_limit_seconds(1), limit.compute_limit_seconds(51) is None
        (550.0, 60.0, True)
        """
        if self.n_tasks < MIN_TASKS or self.n_records < MIN_RECORDS or units > self.largest:
            return None
        return max(MIN_LIMIT_SECONDS, FACTOR * (self.shortest_seconds + units * self.slowest))
