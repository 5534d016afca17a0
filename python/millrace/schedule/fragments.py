"""Search of batches in fragments of the database: which searches are issued, and how candidates are finished. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from millrace.committed import CommittedRecords
from millrace.ids import BatchId
from millrace.model import FragmentPlan
from millrace.schedule.finish.way import ReadyBatch, SharedFinishStrategy, SlotCounts, SubjectRanks
from millrace.schedule.finish.ways import list_finish_strategies
from millrace.schedule.finish.whole import WholeFinish
from millrace.schedule.orders import TaskOrder
from millrace.schedule.protocol import BatchExtent, DivideBatch
from millrace.schedule.searches import BatchSetback, MisplacedSlice, SearchProgress
from millrace.tasks import RankTask, SearchTask, SliceTask, SlotTask, TaskEnded

if TYPE_CHECKING:
    from millrace import _core

#: Candidates that an earlier run found in fragments, by the extent of the batch.
EarlierCandidates = Mapping[tuple[int, int], Mapping[int, "_core.BlockRef"]]


class FragmentSearch:
    """Drives batches from their first search to their result.

    Args:
        fragmented: How the database is searched.
        n_nodes: Machines with separate memory for fragments.
        begun: Candidates of an earlier run.
    """

    def __init__(self, fragmented: FragmentPlan, n_nodes: int, begun: EarlierCandidates) -> None:
        self._begun = begun
        self._searches = SearchProgress(len(fragmented.fragments), n_nodes)
        self._ways = list_finish_strategies(fragmented)
        self._in_shares = {way.kind: way for way in self._ways if isinstance(way, SharedFinishStrategy)}
        self._parts: dict[BatchId, BatchExtent] = {}
        #: Batches whose candidates are complete.
        self._found_all: list[BatchId] = []

    # Batches

    def begin_attempt(self, part: BatchExtent, attempt: int) -> None:
        """Begin an attempt at a batch."""
        self._parts[part.batch] = part
        if self._searches.begin_attempt(part.batch, attempt, self._begun.get((part.first, part.last), {})):
            self._found_all.append(part.batch)

    def finish_divided(self, whole: BatchId, parts: Sequence[BatchExtent]) -> list[TaskOrder]:
        """Finish the parts into which ``whole`` was divided, and return their tasks."""
        units = max(self._parts.pop(whole).units, 1)
        self._searches.divide_batch(whole, {part.batch: part.units / units for part in parts})
        self._parts.update({part.batch: part for part in parts})
        return [self._order_whole_finish(part.batch) for part in parts]

    def finish_undivided(self, batch: BatchId) -> list[TaskOrder]:
        """Finish ``batch`` as a whole, as its records belong together, and return its task."""
        return [self._order_whole_finish(batch)]

    def forget_batch(self, batch: BatchId) -> None:
        """Forget a batch that is done, split or quarantined."""
        self._parts.pop(batch, None)
        self._searches.forget_batch(batch)

    # Next tasks

    def pop_next_search(self) -> TaskOrder | None:
        """Return the next search to issue, or None."""
        search = self._searches.pop_next_search()
        return TaskOrder(search[0], SearchTask(search[1]), self._searches.get_attempt(search[0])) if search else None

    def finish_next_batch(self, slots: int, n_tasks: int, *, is_end: bool) -> DivideBatch | list[TaskOrder]:
        """Finish the next batch whose candidates are complete; empty: there is none. It goes before ``pop_next_search``.

        Args:
            slots: Number of all slots.
            n_tasks: Number of tasks that run or wait for a slot.
            is_end: There will be no more batches.
        """
        if not self._found_all:
            return []
        batch = self._found_all.pop(0)
        idle = slots - n_tasks - len(self._searches.scan) if is_end else 0
        ready, room = self._make_ready_batch(batch), SlotCounts(slots, idle)
        for way in self._ways:
            found = way.plan_tasks(ready, room)
            if found is not None:
                break
        else:
            raise AssertionError("the last way finishes any batch")
        if isinstance(way, SharedFinishStrategy) and not isinstance(found, DivideBatch):
            self._searches.begin_shares(batch, len(found))
        return found

    def _make_ready_batch(self, batch: BatchId) -> ReadyBatch:
        part = self._parts[batch]
        return self._searches.make_ready_batch(batch, part.last - part.first)

    def _order_whole_finish(self, batch: BatchId) -> TaskOrder:
        return WholeFinish().make_order(self._make_ready_batch(batch))

    # Ends of tasks

    def record_done(self, task: SlotTask, ended: TaskEnded) -> CommittedRecords | None:
        """Note that a task is done; return the result of its batch if this was the last missing task."""
        batch, committed = task.batch, ended.committed
        assert committed is not None  # a task that is done has been committed
        match task.kind:
            case SearchTask(fragment):
                if self._searches.record_search(batch, fragment, committed.blocks[0], ended.wall_seconds):
                    self._found_all.append(batch)
            case RankTask(number, of) | SliceTask(number, of):
                if shares := self._searches.record_share(batch, number, of, committed):
                    return self._combine_shares(batch, self._in_shares[type(task.kind)], shares)
            case _:
                return committed
        return None

    def _combine_shares(
        self, batch: BatchId, way: SharedFinishStrategy, shares: Mapping[int, _core.TaskRef]
    ) -> CommittedRecords | None:
        result = way.combine_shares(shares)
        if not isinstance(result, SubjectRanks):
            return result
        self._searches.record_ranks(batch, result.blocks)
        self._found_all.append(batch)
        return None

    def record_failure(self, batch: BatchId, setback: BatchSetback) -> None:
        """Note that one of several tasks of a batch gave no result: no more of them are issued."""
        self._searches.record_failure(batch, setback)

    def pop_setback(self, batch: BatchId) -> BatchSetback | None:
        """Return, once, why a batch must begin again, after all of its tasks have ended.

        After slices that could not be used, one task writes all rows.
        """
        setback = self._searches.pop_setback(batch)
        if isinstance(setback, MisplacedSlice):
            self._found_all.append(batch)
        return setback

    # State

    def estimate_seconds(self, batch: BatchId) -> float | None:
        """Return the wall seconds of a batch's searches; None if an earlier run did them all."""
        return self._searches.estimate_seconds(batch) if batch in self._parts else 0.0  # there was nothing to search

    def compute_done_share(self, batch: BatchId) -> float:
        """Return the fraction of the work on a batch that is done, from 0 to 1."""
        return self._searches.compute_done_share(batch)
