"""The strategy that finishes a batch of several queries as several smaller ones, all at once."""

from __future__ import annotations

from millrace.schedule.finish.shares import WORTH_A_SEARCH
from millrace.schedule.finish.way import Ready, Slots, Way
from millrace.schedule.protocol import Divide


def finish_parts(n_queries: int, found_bytes: int, idle: int) -> int:
    """Return the number of parts in which the candidates of a batch are searched, by query, all at once.

    More than one only for otherwise idle slots; the search of one query is never cut.

    Args:
        found_bytes: Size of the lists of hits of all fragments.
        idle: Number of slots for which no task waits.

    >>> finish_parts(100, 10 << 20, 4), finish_parts(3, 10 << 20, 4), finish_parts(100, 600 << 10, 4)
    (4, 3, 2)
    """
    return max(1, min(n_queries, idle, found_bytes // WORTH_A_SEARCH))


class Divided(Way):
    """Divides the batch by its queries, where slots would be idle; each part is then finished as a whole."""

    def begin(self, ready: Ready, slots: Slots) -> Divide | None:
        n_parts = finish_parts(ready.n_records, ready.found_bytes, slots.n_idle)
        return Divide(ready.batch, n_parts) if n_parts > 1 else None
