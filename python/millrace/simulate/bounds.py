"""What other ways to divide a job would take, to compare with."""

from __future__ import annotations

import heapq
import math
from itertools import pairwise

from millrace.simulate.trace import Trace


def static_seconds(trace: Trace, records: int, cores: int) -> float:
    """Seconds of the same job, were the records divided beforehand into equal numbers for the cores, in order."""
    bounds = [core * records // cores for core in range(cores + 1)]
    return trace.startup_seconds + max(trace.seconds(last) - trace.seconds(first) for first, last in pairwise(bounds))


def in_order_seconds(trace: Trace, records: int, cores: int) -> float:
    """Seconds of the same job if each core took one record after the other in their order, and nothing else cost time.

    No dispatcher does better that learns what a record takes by running it, except by luck: one that is long and comes
    last ends last.
    """
    begun = max(records - math.ceil(4 * trace.longest_seconds / trace.mean_seconds) * cores, 0)
    last = begin = trace.seconds(begun) / cores
    free = [begin] * cores
    for record in range(begun, records):
        end = free[0] + trace.seconds(record + 1) - trace.seconds(record)
        heapq.heapreplace(free, end)
        last = max(last, end)
    return last
