"""Limits of a run: CPU time of a task, tools side by side on a node, quarantined records. Pure.

CPU time: some programs never end on some input, and without ``--record-timeout`` nothing would stop them. A healthy
task must not be killed because its cost is unknown. So the limit is on CPU time alone, which does not pass while a
machine is suspended or its storage is slow; it follows from the slowest of at least ``MIN_RECORDS`` records that were
done in this run, with all of the shortest task counted as the start; and a task larger than those done has no limit,
as cost may grow faster than size.

Memory: while nothing is killed for lack of memory, nothing changes. A kill beside other tasks lowers the limit of
tools that run side by side, to between half and three quarters, by the memory of the tool and of the node. As long as
the measured memory of the tools leaves room for more, the limit grows again.

Quarantine: a failure of many records is not their fault, so the run stops.
"""

from __future__ import annotations

import math
from collections import Counter

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


#: Maximum share of the memory that tools may take together, as measured, for the limit to grow.
MAX_MEMORY_SHARE = 0.9

#: Tasks that must be done in a row, for each allowed tool, before the limit grows.
MIN_DONE_IN_A_ROW = 16


class MemoryAllowance(msgspec.Struct, dict=True):
    """Limit of the tools that may run side by side.

    Args:
        slots: Number of slots of the node.
        limit_bytes: Memory of the node, in bytes.
    """

    slots: int
    limit_bytes: int
    #: Number of tasks done in a row, and the peak memory of them, in bytes.
    _calm: int = 0
    _peak: int = 0

    def __post_init__(self) -> None:
        #: Maximum number of tools that run side by side.
        self.allowed = self.slots

    def record_task(self, *, out_of_memory: bool, side_by_side: int, peak_bytes: int) -> bool:
        """Learn from a task that ended; return whether ``allowed`` has changed.

        Args:
            out_of_memory: A process of it was killed for lack of memory.
            side_by_side: Maximum number of tools that ran at once while it did, itself included.
            peak_bytes: Its peak memory in bytes; if it was killed, up to then.
        """
        before = self.allowed
        if out_of_memory:
            self._calm = self._peak = 0
            if side_by_side > 1:
                self.allowed = min(self.allowed, self._compute_reduced(side_by_side, peak_bytes))
        elif self.allowed < self.slots:
            self._grow_allowed(peak_bytes)
        return self.allowed != before

    def _compute_reduced(self, side_by_side: int, peak_bytes: int) -> int:
        """Return the limit after a kill: less than ran, though one peak does not show what all others take."""
        fits = self.limit_bytes // max(peak_bytes, 1)
        return max(1, side_by_side // 2, min(fits, side_by_side * 3 // 4))

    def _grow_allowed(self, peak_bytes: int) -> None:
        self._calm += 1
        self._peak = max(self._peak, peak_bytes, 1)
        if self._calm >= MIN_DONE_IN_A_ROW * self.allowed:
            fits = int(MAX_MEMORY_SHARE * self.limit_bytes) // self._peak
            self.allowed = max(self.allowed, min(self.slots, 2 * self.allowed, fits))
            self._calm = self._peak = 0


#: By default a run stops when more than this share of the ended records, and more than this many, are quarantined.
SHARE = 0.01
MIN_GIVEN_UP_RECORDS = 100

#: It stops earlier if at least this many failed in the same way, and they are more than this share.
MIN_ALIKE_RECORDS = 10
ALIKE_SHARE = 0.1

#: It also stops if this many failed in the same way while no record was done, however many were done before.
MAX_FAILURES_IN_A_ROW = 50

#: It also stops if this many, and more than this share, died by a signal: the cause is a truncated database, memory, or
#: the tool.
MIN_DIED_RECORDS = 3
DIED_SHARE = 0.001


class QuarantineLimit(msgspec.Struct):
    """Counts records that are done and quarantined.

    Args:
        most: The user's maximum number of records; None: not set.
        share: The user's maximum share of the ended records, of a hundred at least; None: not set.
    """

    most: int | None = None
    share: float | None = None
    n_ended: int = 0
    n_given_up: int = 0
    #: Those of them on which the tool died by a signal.
    n_died: int = 0
    _alike: Counter[str] = msgspec.field(default_factory=Counter)
    #: Number of failures of each kind since a record was done.
    _in_a_row: Counter[str] = msgspec.field(default_factory=Counter)

    def count_done(self, n_records: int) -> None:
        """Count records that are done."""
        self.n_ended += n_records
        self._in_a_row.clear()

    @property
    def n_done(self) -> int:
        """Number of records that are done."""
        return self.n_ended - self.n_given_up

    def add_resumed(self, n_ended: int, n_given_up: int) -> None:
        """Add the ended and quarantined records of earlier runs."""
        self.n_ended += n_ended
        self.n_given_up += n_given_up

    def count_given_up(self, signature: str, *, died: bool = False) -> bool:
        """Count one more quarantined record, whose failure has this ``signature``; return whether that is too many.

        Args:
            died: The tool died by a signal.
        """
        self.n_ended += 1
        self.n_given_up += 1
        self.n_died += died
        self._alike[signature] += 1
        self._in_a_row[signature] += 1
        if self.most is not None:
            return self.n_given_up > self.most
        if self.share is not None:
            return self.n_given_up > self.share * max(self.n_ended, 100)
        if died and self.n_died >= MIN_DIED_RECORDS and self.n_died > DIED_SHARE * self.n_ended:
            return True
        alike = self._alike[signature]
        if alike >= MIN_ALIKE_RECORDS and alike > ALIKE_SHARE * self.n_ended:
            return True
        if self._in_a_row[signature] >= MAX_FAILURES_IN_A_ROW:
            return True
        return self.n_given_up > max(MIN_GIVEN_UP_RECORDS, SHARE * self.n_ended)
