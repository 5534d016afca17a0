"""The strategy that finishes a batch of several queries as several smaller ones, all at once."""

from __future__ import annotations

from millrace.schedule.finish.shares import MIN_SEARCH_BYTES
from millrace.schedule.finish.way import FinishStrategy, ReadyBatch, SlotCounts
from millrace.schedule.protocol import DivideBatch


def count_finish_parts(n_queries: int, found_bytes: int, idle: int) -> int:
    """Return the number of parts in which the candidates of a batch are searched, by query, all at once.

    More than one only for otherwise idle slots; the search of one query is never cut.

    Args:
        found_bytes: Size of the lists of hits of all fragments.
        idle: Number of slots for which no task waits.

    >>> count_finish_parts(100, 10 << 20, 4), count_finish_parts(3, 10 << 20, 4), count_finish_parts(100, 600 << 10, 4)
    (4, 3, 2)
    """
    return max(1, min(n_queries, idle, found_bytes // MIN_SEARCH_BYTES))


class DividedFinish(FinishStrategy):
    """Divides the batch by its queries, where slots would be idle; each part is then finished as a whole."""

    def plan_tasks(self, ready: ReadyBatch, slots: SlotCounts) -> DivideBatch | None:
        n_parts = count_finish_parts(ready.n_records, ready.found_bytes, slots.n_idle)
        return DivideBatch(ready.batch, n_parts) if n_parts > 1 else None
