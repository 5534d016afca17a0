"""Number of tasks in which the candidates of one query are searched. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from millrace.schedule.finish.way import ReadyBatch, SlotCounts
from millrace.schedule.orders import TaskOrder
from millrace.task_numbers import MAX_SLICES
from millrace.tasks import RankTask, SliceTask

if TYPE_CHECKING:
    from millrace import _core

#: From this size of a list of hits on, about a hundred bytes for each hit, a search of its candidates takes much longer
#: than the tool's start.
MIN_SEARCH_BYTES = 1 << 18

#: Search time of a query, in all fragments, that is worth another slice: few candidates may have very many rows each,
#: too.
SECONDS_A_SLICE = 2.0

#: Slices for each idle slot: the number of rows of a subject is not known before.
SLICES_A_SLOT = 3

#: Factor by which a slice must be worth more while slots are busy: the query may take longer than their work.
WORTH_WHEN_BUSY = 32


def count_slices(found_bytes: int, seconds: float, idle: int, slots: int, passes: int = 1) -> int:
    """Return the number of slices in which the candidates of one query are searched; 1: no slices.

    Args:
        found_bytes: Size of the lists of hits of all fragments.
        seconds: Time of the searches of the fragments.
        idle: Number of slots for which no task waits.
        slots: Number of all slots.
        passes: How often each candidate is searched if there are slices.

    >>> count_slices(2 << 20, 3.0, 4, 8), count_slices(600 << 10, 9.0, 4, 8), count_slices(99 << 20, 9.0, 4, 8)
    (8, 4, 12)
    >>> count_slices(2 << 20, 3.0, 1, 8), count_slices(50 << 20, 3.0, 0, 8), count_slices(50 << 20, 999.0, 0, 8)
    (1, 6, 8)
    >>> count_slices(2 << 20, 3.0, 2, 8, passes=2), count_slices(2 << 20, 3.0, 3, 8, passes=2)
    (1, 8)
    """
    worth = max(found_bytes // MIN_SEARCH_BYTES, int(seconds / SECONDS_A_SLICE))
    if idle > passes:
        return max(1, min(worth, SLICES_A_SLOT * idle, MAX_SLICES))
    return max(1, min(worth // WORTH_WHEN_BUSY, slots, MAX_SLICES))


def count_worthwhile_slices(ready: ReadyBatch, slots: SlotCounts, passes: int) -> int:
    """Return the number of slices or shares in which ``ready`` is searched; 1: no slices.

    Only a single query is sliced; after a setback with slices, the next attempt has none.
    """
    if ready.n_records != 1 or ready.was_sliced:
        return 1
    return count_slices(ready.found_bytes, ready.seconds, slots.n_idle, slots.n, passes)


def make_share_orders(
    kind: type[RankTask | SliceTask], ready: ReadyBatch, n: int, found: Sequence[_core.BlockRef]
) -> list[TaskOrder]:
    """Make ``n`` tasks of one kind, one for each share, all based on ``found``."""
    return [TaskOrder(ready.batch, kind(number, n), ready.attempt, True, found) for number in range(n)]
