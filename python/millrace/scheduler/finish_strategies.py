"""Strategies to finish a batch whose candidates are complete, in the order of their trial. Pure.

Several queries: smaller batches, all at once, where slots would be idle. One query: tasks that each write a slice of
its rows; where the candidates do not contain the ranks of subjects, tasks that each find the ranks of a share of its
candidates come first. Any batch: one task that runs the user's command with all candidates as the database.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from millrace.core.tasks import MAX_SLICES, BatchId, CommittedRecords, FinishTask, RankTask, SliceTask, gather_slices
from millrace.core.tool_use import FragmentPlan
from millrace.scheduler.protocol import DivideBatch, TaskOrder

if TYPE_CHECKING:
    from millrace import _core


class ReadyBatch(NamedTuple):
    """A batch whose candidates are complete."""

    batch: BatchId
    #: Number of the attempt to which its tasks belong, from 1.
    attempt: int
    n_records: int
    #: Candidates of all fragments, in their order.
    found: Sequence[_core.BlockRef]
    #: Wall seconds of its searches; 0: an earlier run did them all.
    seconds: float = 0.0
    #: The ranks of all subjects, share by share; empty: not known.
    ranks: Sequence[_core.BlockRef] = ()
    #: Whether an earlier plan to write it in slices had a setback.
    was_sliced: bool = False

    @property
    def found_bytes(self) -> int:
        """Size of the candidates of all fragments, in bytes."""
        return sum(block.length for block in self.found)


class SlotCounts(NamedTuple):
    """Numbers of slots."""

    n: int
    #: Number of slots for which no task waits; below 0: more tasks wait than there are slots.
    n_idle: int


class SubjectRanks(NamedTuple):
    """The ranks of all subjects of a batch, by which it is finished."""

    blocks: Sequence[_core.BlockRef]


class FinishStrategy(ABC):
    """A strategy to finish a batch."""

    @abstractmethod
    def plan_tasks(self, ready: ReadyBatch, slots: SlotCounts) -> DivideBatch | list[TaskOrder] | None:
        """Return the tasks that finish ``ready``; None: this strategy does not apply."""


class SharedFinishStrategy(FinishStrategy):
    """A strategy with several tasks of one kind, each of which does a share."""

    #: The kind of its tasks, which no other strategy has.
    kind: type[RankTask | SliceTask]

    @abstractmethod
    def combine_shares(self, shares: Mapping[int, _core.TaskRef]) -> CommittedRecords | SubjectRanks:
        """Combine all shares of a batch, by their numbers from 0, into its result or its ranks."""


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


class WholeFinish(FinishStrategy):
    """Finishes any batch."""

    def plan_tasks(self, ready: ReadyBatch, slots: SlotCounts) -> list[TaskOrder]:
        return [self.make_order(ready)]

    def make_order(self, ready: ReadyBatch) -> TaskOrder:
        """Make the one task, which goes before those that wait: it ends a batch."""
        return TaskOrder(ready.batch, FinishTask(), ready.attempt, True, ready.found)


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


class RankSharing(SharedFinishStrategy):
    """Finds the ranks by which slices are written, where the candidates do not contain them."""

    kind = RankTask

    def plan_tasks(self, ready: ReadyBatch, slots: SlotCounts) -> list[TaskOrder] | None:
        # Each candidate is searched for its rank, and once more for its rows.
        n = count_worthwhile_slices(ready, slots, passes=2)
        return make_share_orders(RankTask, ready, n, ready.found) if n > 1 else None

    def combine_shares(self, shares: Mapping[int, _core.TaskRef]) -> SubjectRanks:
        return SubjectRanks(gather_slices(shares).blocks)


class SlicedFinish(SharedFinishStrategy):
    """Writes the rows in slices: by the candidates, or by the ranks of the subjects once they are known.

    Args:
        needs_ranks: The candidates do not contain the ranks of subjects.
    """

    kind = SliceTask

    def __init__(self, *, needs_ranks: bool) -> None:
        self._needs_ranks = needs_ranks

    def plan_tasks(self, ready: ReadyBatch, slots: SlotCounts) -> list[TaskOrder] | None:
        if ready.ranks:
            n, found = len(ready.ranks), ready.ranks
        else:
            n, found = 1 if self._needs_ranks else count_worthwhile_slices(ready, slots, passes=1), ready.found
        return make_share_orders(SliceTask, ready, n, found) if n > 1 else None

    def combine_shares(self, shares: Mapping[int, _core.TaskRef]) -> CommittedRecords:
        return gather_slices(shares)


def list_finish_strategies(fragmented: FragmentPlan) -> Sequence[FinishStrategy]:
    """Return the strategies that a database in fragments allows; the last one finishes any batch."""
    ways: list[FinishStrategy] = [DividedFinish()] if fragmented.divisible else []
    if ranked := fragmented.ranked:
        needs_ranks = bool(ranked.argv)
        ways += [SlicedFinish(needs_ranks=needs_ranks), *([RankSharing()] if needs_ranks else [])]
    return [*ways, WholeFinish()]
