"""Durations of a job under other ways to divide it, for comparison."""

from __future__ import annotations

import heapq
import math
from itertools import pairwise

from millrace.simulate.trace import CostTrace


def compute_static_seconds(trace: CostTrace, records: int, cores: int) -> float:
    """Return the seconds of the job if equal numbers of records are assigned to the cores beforehand, in order."""
    bounds = [core * records // cores for core in range(cores + 1)]
    return trace.startup_seconds + max(
        trace.sum_seconds_before(last) - trace.sum_seconds_before(first) for first, last in pairwise(bounds)
    )


def compute_in_order_seconds(trace: CostTrace, records: int, cores: int) -> float:
    """Return the seconds of the job if cores take single records in their order, and nothing else costs time.

    No dispatcher that learns the cost of a record only by running it does better, except by luck: a long record at the
    end of the input ends last.
    """
    begun = max(records - math.ceil(4 * trace.longest_seconds / trace.mean_seconds) * cores, 0)
    last = begin = trace.sum_seconds_before(begun) / cores
    free = [begin] * cores
    for record in range(begun, records):
        end = free[0] + trace.sum_seconds_before(record + 1) - trace.sum_seconds_before(record)
        heapq.heapreplace(free, end)
        last = max(last, end)
    return last
