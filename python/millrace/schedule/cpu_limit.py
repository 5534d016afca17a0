"""How much CPU time a task may use before it is taken for one that never ends. Pure.

Some programs never end on some input, and without ``--record-timeout`` nobody would end them. A healthy task must not be
ended because its cost is unknown. So it is judged by CPU time alone, which does not pass while a machine is suspended or
its storage is slow; by the slowest of at least `MIN_RECORDS` records that were done in this run, with all of the shortest task
taken for the start; and not at all if it is larger than what was done, as cost may grow faster than size.
"""

from __future__ import annotations

import math

import msgspec

#: So many times what the slowest records measured let expect, and so much at least.
FACTOR = 100.0
MIN_LIMIT_SECONDS = 60.0

#: Records and tasks that must have been done before anything is expected of others.
MIN_RECORDS = 100
MIN_TASKS = 3


class CpuLimit(msgspec.Struct):
    """Learns from tasks that are done what CPU time others may use."""

    n_tasks: int = 0
    n_records: int = 0
    #: Units of the largest task.
    largest: int = 0
    #: CPU seconds of the task that took least: the start of the tool takes at most so long.
    shortest_seconds: float = math.inf
    #: The most CPU seconds a unit that a task took.
    slowest: float = 0.0

    def observe(self, units: int, cpu_seconds: float, n_records: int) -> None:
        """Learn from a task that is done."""
        if units < 1:
            return
        self.n_tasks += 1
        self.n_records += n_records
        self.largest = max(self.largest, units)
        self.shortest_seconds = min(self.shortest_seconds, cpu_seconds)
        self.slowest = max(self.slowest, cpu_seconds / units)

    def seconds(self, units: int) -> float | None:
        """CPU seconds that a task of so many ``units`` may use; None: any.

        >>> limit = CpuLimit()
        >>> limit.observe(50, 1.0, 100)
        >>> limit.observe(10, 1.0, 1)
        >>> limit.seconds(50) is None
        True
        >>> limit.observe(10, 0.5, 1)
        >>> limit.seconds(50), limit.seconds(1), limit.seconds(51) is None
        (550.0, 60.0, True)
        """
        if self.n_tasks < MIN_TASKS or self.n_records < MIN_RECORDS or units > self.largest:
            return None
        return max(MIN_LIMIT_SECONDS, FACTOR * (self.shortest_seconds + units * self.slowest))
