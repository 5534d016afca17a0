"""Search of batches in fragments of the database: which searches are issued, and how candidates are finished. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from millrace.committed import Committed
from millrace.ids import BatchId
from millrace.model import Fragmented
from millrace.schedule.finish.way import Ranks, Ready, Slots, WayInShares
from millrace.schedule.finish.ways import ways_of
from millrace.schedule.finish.whole import Whole
from millrace.schedule.orders import Order
from millrace.schedule.protocol import Divide, Part
from millrace.schedule.searches import Misplaced, Searches, Setback
from millrace.tasks import Ended, Rank, Search, Slice, Task

if TYPE_CHECKING:
    from millrace import _core

#: Candidates that an earlier run found in fragments, by the extent of the batch.
FoundBefore = Mapping[tuple[int, int], Mapping[int, "_core.BlockRef"]]


class FragmentSearch:
    """Drives batches from their first search to their result.

    Args:
        fragmented: How the database is searched.
        n_nodes: Machines with separate memory for fragments.
        begun: Candidates of an earlier run.
    """

    def __init__(self, fragmented: Fragmented, n_nodes: int, begun: FoundBefore) -> None:
        self._begun = begun
        self._searches = Searches(len(fragmented.fragments), n_nodes)
        self._ways = ways_of(fragmented)
        self._in_shares = {way.kind: way for way in self._ways if isinstance(way, WayInShares)}
        self._parts: dict[BatchId, Part] = {}
        #: Batches whose candidates are complete.
        self._found_all: list[BatchId] = []

    # Batches

    def begin(self, part: Part, attempt: int) -> None:
        """Begin an attempt at a batch."""
        self._parts[part.batch] = part
        if self._searches.begin(part.batch, attempt, self._begun.get((part.first, part.last), {})):
            self._found_all.append(part.batch)

    def divided(self, whole: BatchId, parts: Sequence[Part]) -> list[Order]:
        """Finish the parts into which ``whole`` was divided, and return their tasks."""
        units = max(self._parts.pop(whole).units, 1)
        self._searches.divide(whole, {part.batch: part.units / units for part in parts})
        self._parts.update({part.batch: part for part in parts})
        return [self._finish_in_one(part.batch) for part in parts]

    def not_divided(self, batch: BatchId) -> list[Order]:
        """Finish ``batch`` as a whole, as its records belong together, and return its task."""
        return [self._finish_in_one(batch)]

    def forget(self, batch: BatchId) -> None:
        """Forget a batch that is done, split or quarantined."""
        self._parts.pop(batch, None)
        self._searches.forget(batch)

    # Next tasks

    def next_search(self) -> Order | None:
        """Return the next search to issue, or None."""
        search = self._searches.next()
        return Order(search[0], Search(search[1]), self._searches.attempt(search[0])) if search else None

    def finish_next(self, slots: int, n_tasks: int, *, is_end: bool) -> Divide | list[Order]:
        """Finish the next batch whose candidates are complete; empty: there is none. It goes before ``next_search``.

        Args:
            slots: Number of all slots.
            n_tasks: Number of tasks that run or wait for a slot.
            is_end: There will be no more batches.
        """
        if not self._found_all:
            return []
        batch = self._found_all.pop(0)
        idle = slots - n_tasks - len(self._searches.scan) if is_end else 0
        ready, room = self._ready(batch), Slots(slots, idle)
        for way in self._ways:
            found = way.begin(ready, room)
            if found is not None:
                break
        else:
            raise AssertionError("the last way finishes any batch")
        if isinstance(way, WayInShares) and not isinstance(found, Divide):
            self._searches.begin_shares(batch, len(found))
        return found

    def _ready(self, batch: BatchId) -> Ready:
        part = self._parts[batch]
        return self._searches.ready(batch, part.last - part.first)

    def _finish_in_one(self, batch: BatchId) -> Order:
        return Whole().order(self._ready(batch))

    # Ends of tasks

    def done(self, task: Task, ended: Ended) -> Committed | None:
        """Note that a task is done; return the result of its batch if this was the last missing task."""
        batch, committed = task.batch, ended.committed
        assert committed is not None  # a task that is done has been committed
        match task.kind:
            case Search(fragment):
                if self._searches.found(batch, fragment, committed.blocks[0], ended.wall_seconds):
                    self._found_all.append(batch)
            case Rank(number, of) | Slice(number, of):
                if shares := self._searches.share_done(batch, number, of, committed):
                    return self._shares_done(batch, self._in_shares[type(task.kind)], shares)
            case _:
                return committed
        return None

    def _shares_done(self, batch: BatchId, way: WayInShares, shares: Mapping[int, _core.TaskRef]) -> Committed | None:
        result = way.end(shares)
        if not isinstance(result, Ranks):
            return result
        self._searches.ranked(batch, result.blocks)
        self._found_all.append(batch)
        return None

    def failed(self, batch: BatchId, setback: Setback) -> None:
        """Note that one of several tasks of a batch gave no result: no more of them are issued."""
        self._searches.failed(batch, setback)

    def settled(self, batch: BatchId) -> Setback | None:
        """Return, once, why a batch must begin again, after all of its tasks have ended.

        After slices that could not be used, one task writes all rows.
        """
        setback = self._searches.settled(batch)
        if isinstance(setback, Misplaced):
            self._found_all.append(batch)
        return setback

    # State

    def seconds(self, batch: BatchId) -> float | None:
        """Return the wall seconds of a batch's searches; None if an earlier run did them all."""
        return self._searches.seconds(batch) if batch in self._parts else 0.0  # there was nothing to search

    def share(self, batch: BatchId) -> float:
        """Return the fraction of the work on a batch that is done, from 0 to 1."""
        return self._searches.share(batch)
