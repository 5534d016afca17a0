"""Search of batches in fragments of the database: order and progress of searches, finish. Pure."""

from __future__ import annotations

import heapq
from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

from millrace.core.tasks import (
    BatchId,
    CommittedRecords,
    RankTask,
    SearchTask,
    SliceTask,
    SlotTask,
    TaskEnded,
    WholeTask,
)
from millrace.core.tool_use import FragmentPlan
from millrace.scheduler.finish_strategies import (
    ReadyBatch,
    SharedFinishStrategy,
    SlotCounts,
    SubjectRanks,
    WholeFinish,
    list_finish_strategies,
)
from millrace.scheduler.protocol import BatchExtent, DivideBatch, TaskFailure, TaskOrder

if TYPE_CHECKING:
    from millrace import _core


#: A batch is searched whole if what is left for each slot takes at least this many times as long: where some take far
#: longer than the mean, as its time is estimated from one fragment, and it may have to wait for a slot; and where all are
#: alike. Then as many as half of the slots are shared: to finish more of them would cost more than idle slots.
MIN_LEFT_IF_SKEWED, MIN_LEFT_IF_ALIKE = 2.0, 0.5

#: Least longest time, in multiples of the mean, of batches that are not alike.
SKEWED_TIMES_MEAN = 3.0


class SearchOrder(Protocol):
    """The order in which searches (batch, fragment) are issued."""

    def add_batch(self, batch: int, fragments: Iterable[int]) -> None:
        """Queue the searches of ``batch`` in ``fragments``."""
        ...

    def drop_batch(self, batch: int) -> None:
        """Remove the waiting searches of ``batch``."""
        ...

    def observe_search(self, batch: int, fragment: int, seconds: float) -> None:
        """Learn from the time of a search."""
        ...

    def pop_next_search(self, *, is_idle: bool = True) -> tuple[int, int] | None:
        """Return the next search as (batch, fragment); None if no batch waits.

        Args:
            is_idle: A slot is idle, for which any search is better than none.
        """
        ...

    def pop_short_batch(self, slots: int, later_seconds: float) -> int | None:
        """Remove and return the batch of the next search if it is better searched in the whole database; else None.

        Args:
            slots: Number of slots.
            later_seconds: Time on one slot of all batches that were not added yet.
        """
        ...

    def __len__(self) -> int:
        """Return the number of searches not yet issued."""
        ...


class LongestFirst:
    """Issues one search of each batch, whose time tells what the others will take, then those of the longest batches.

    For a database in memory, where no order of fragments is cheaper than another. So a record whose length does not
    tell that it takes long is known after its first fragment, the last one, which is the smallest. A batch that turns
    out to end before those behind it can keep all slots busy is searched in the whole database instead.

    Args:
        sizes: Relative sizes of the fragments, in their order.

    >>> searches = LongestFirst((1, 1))
    >>> searches.add_batch(7, [1, 2]); searches.add_batch(8, [1, 2]); searches.add_batch(9, [1, 2])
    >>> [searches.pop_next_search() for _ in range(3)]
    [(7, 2), (8, 2), (9, 2)]
    >>> for batch, seconds in ((7, 1.0), (8, 5.0), (9, 1.0)): searches.observe_search(batch, 2, seconds)
    >>> searches.pop_short_batch(3, 0.0), searches.pop_next_search(), searches.pop_short_batch(3, 0.0)
    (None, (8, 1), 7)
    >>> searches.pop_short_batch(3, 0.0), searches.pop_next_search(), searches.pop_next_search()
    (None, (9, 1), None)
    """

    def __init__(self, sizes: Sequence[int]) -> None:
        self._sizes = sizes
        self._waiting: dict[int, deque[int]] = {}
        #: Batches without a search so far, and those whose first search runs while others wait, oldest first.
        self._fresh: OrderedDict[int, None] = OrderedDict()
        self._unmeasured: OrderedDict[int, None] = OrderedDict()
        #: Measured batches: a heap of (-seconds of the first search for each unit of its fragment's size, batch).
        self._measured: list[tuple[float, int]] = []
        #: Their estimated seconds for each waiting search, and the sum over all these searches.
        self._search_seconds: dict[int, float] = {}
        self._left_seconds = 0.0
        #: Number of batches measured so far, and their estimated seconds: of all, and of the longest.
        self._n_measured, self._measured_seconds, self._longest_seconds = 0, 0.0, 0.0
        self._count = 0

    def add_batch(self, batch: int, fragments: Iterable[int]) -> None:
        self.drop_batch(batch)
        self._waiting[batch] = deque(fragments)
        self._count += len(self._waiting[batch])
        if self._waiting[batch]:
            self._fresh[batch] = None

    def drop_batch(self, batch: int) -> None:
        waiting = len(self._waiting.pop(batch, ()))
        self._count -= waiting
        self._left_seconds -= waiting * self._search_seconds.pop(batch, 0.0)
        self._fresh.pop(batch, None)
        self._unmeasured.pop(batch, None)

    def observe_search(self, batch: int, fragment: int, seconds: float) -> None:
        if batch not in self._unmeasured:
            return
        del self._unmeasured[batch]
        pace = seconds / max(self._sizes[fragment - 1], 1)
        heapq.heappush(self._measured, (-pace, batch))
        left = pace * sum(self._sizes[other - 1] for other in self._waiting[batch])
        self._search_seconds[batch] = left / len(self._waiting[batch])
        self._left_seconds += left
        self._n_measured += 1
        self._measured_seconds += left
        self._longest_seconds = max(self._longest_seconds, left)

    def pop_next_search(self, *, is_idle: bool = True) -> tuple[int, int] | None:
        if self._fresh:
            batch, _ = self._fresh.popitem(last=False)
            self._unmeasured[batch] = None
            return self._pop_search(batch, self._waiting[batch].pop())
        found = self._peek_longest()
        if found is None and is_idle:
            found = next(iter(self._unmeasured), None)
        return None if found is None else self._pop_search(found, self._waiting[found].popleft())

    def pop_short_batch(self, slots: int, later_seconds: float) -> int | None:
        batch = None if self._fresh else self._peek_longest()
        if batch is None or len(self._waiting[batch]) < len(self._sizes) - 1 or batch not in self._search_seconds:
            return None
        seconds = len(self._waiting[batch]) * self._search_seconds[batch]
        mean = self._measured_seconds / self._n_measured
        is_skewed = self._longest_seconds > SKEWED_TIMES_MEAN * mean
        least = MIN_LEFT_IF_SKEWED if is_skewed else MIN_LEFT_IF_ALIKE
        if least * seconds * slots > self._left_seconds + len(self._unmeasured) * mean + later_seconds:
            return None
        self.drop_batch(batch)
        return batch

    def _peek_longest(self) -> int | None:
        while self._measured and not self._waiting.get(self._measured[0][1]):
            heapq.heappop(self._measured)
        return self._measured[0][1] if self._measured else None

    def _pop_search(self, batch: int, fragment: int) -> tuple[int, int]:
        self._count -= 1
        self._left_seconds -= self._search_seconds.get(batch, 0.0)
        if not self._waiting[batch]:
            self._unmeasured.pop(batch, None)
        return batch, fragment

    def __len__(self) -> int:
        return self._count


class SharedScan:
    """Issues searches (batch, fragment) so that all batches use a fragment while it is in memory.

    The scan stays at one fragment until no batch waits for it, then goes on to the next one that a batch waits for,
    round and round. A batch joins at the current fragment, and has seen every fragment after one round: no batch waits
    longer, as the number of batches in progress is limited.

    On several nodes, each of which keeps some fragments in its memory, the scan has as many positions at once, which
    take turns: so each node finds tasks for its fragments.

    Source: circular shared scans, as in QPipe (Harizopoulos, Shkapenyuk, Ailamaki, SIGMOD 2005).

    >>> scan = SharedScan(3)
    >>> scan.add_batch(7, [1, 2, 3]); scan.pop_next_search()
    (7, 1)
    >>> scan.add_batch(8, [1, 2, 3]); [scan.pop_next_search() for _ in range(6)]
    [(8, 1), (7, 2), (8, 2), (7, 3), (8, 3), None]

    Args:
        n_fragments: Fragments are numbered from 1 to this.
        places: Maximum number of positions of the scan.
    """

    def __init__(self, n_fragments: int, places: int = 1) -> None:
        self._waiting: list[deque[int]] = [deque() for _ in range(n_fragments)]
        places = min(places, n_fragments)
        self._at = deque(place * n_fragments // places for place in range(places))

    def add_batch(self, batch: int, fragments: Iterable[int]) -> None:
        """Queue the searches of ``batch`` in ``fragments``."""
        for fragment in fragments:
            self._waiting[fragment - 1].append(batch)

    def drop_batch(self, batch: int) -> None:
        """Remove the waiting searches of ``batch``."""
        for waiting in self._waiting:
            if batch in waiting:
                waiting.remove(batch)

    def observe_search(self, batch: int, fragment: int, seconds: float) -> None:
        """Do nothing: the order does not depend on times."""

    def pop_short_batch(self, slots: int, later_seconds: float) -> int | None:
        """Return None: the database is larger than the memory, so every batch is searched in fragments."""

    def pop_next_search(self, *, is_idle: bool = True) -> tuple[int, int] | None:
        """Return the next search as (batch, fragment); None if no batch waits."""
        at = self._at.popleft()
        waits = [at] if self._waiting[at] else [each for each in self._list_from(at) if self._waiting[each]]
        # A fragment without another position is preferred; one with another position is better than none.
        at = next((each for each in waits if each not in self._at), waits[0] if waits else at)
        self._at.append(at)
        return (self._waiting[at].popleft(), at + 1) if waits else None

    def _list_from(self, at: int) -> Iterable[int]:
        """Return all fragments, beginning with ``at``."""
        return (*range(at, len(self._waiting)), *range(at))

    def __len__(self) -> int:
        """Return the number of searches not yet issued."""
        return sum(map(len, self._waiting))


class MisplacedSlice:
    """A setback: subjects cannot be ranked, or a slice is not the expected one."""


#: Reason why a batch cannot go on as planned.
BatchSetback = TaskFailure | MisplacedSlice


class _SearchedBatch(msgspec.Struct):
    """One batch from its first search to its end."""

    #: Candidates by fragment.
    found: dict[int, _core.BlockRef]
    #: Number of the attempt at the batch, from 1.
    attempt: int = 1
    #: Number of its tasks that have not ended, of searches, ranks or slices.
    running: int = 0
    #: Wall seconds, and number, of its searches in this run.
    seconds: float = 0.0
    searched: int = 0
    #: Slices or ranks of its one record that are committed, by number; None: it was never written in slices.
    shares: dict[int, _core.TaskRef] | None = None
    #: The ranks of all subjects, from when they are known until slices are written by them.
    ranks: Sequence[_core.BlockRef] = ()
    #: The first setback, until its other tasks have ended.
    setback: BatchSetback | None = None


class SearchProgress(msgspec.Struct, dict=True):
    """The searches of all batches in progress.

    Args:
        n: Number of fragments.
        nodes: Number of nodes that search them.
        tail_sizes: Sizes of the fragments if only batches that could end last are searched in them; else empty.
    """

    n: int
    nodes: int = 1
    tail_sizes: Sequence[int] = ()
    _batches: dict[BatchId, _SearchedBatch] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        self.scan: SearchOrder = LongestFirst(self.tail_sizes) if self.tail_sizes else SharedScan(self.n, self.nodes)

    def begin_attempt(self, batch: BatchId, attempt: int, found: Mapping[int, _core.BlockRef]) -> bool:
        """Begin an attempt at ``batch``; earlier candidates count. Return whether they are complete."""
        item = self._batches.setdefault(batch, _SearchedBatch(dict(found)))
        item.attempt = attempt
        self.scan.add_batch(batch, [fragment for fragment in range(1, self.n + 1) if fragment not in item.found])
        return len(item.found) == self.n

    def get_attempt(self, batch: BatchId) -> int:
        """Return the number of the attempt to which searches of ``batch`` belong."""
        return self._batches[batch].attempt

    def pop_short_batch(self, slots: int, later_seconds: float) -> BatchId | None:
        """Return the next batch to search in the whole database; see ``SearchOrder.pop_short_batch``."""
        batch = self.scan.pop_short_batch(slots, later_seconds)
        return None if batch is None else BatchId(batch)

    def pop_next_search(self, *, is_idle: bool = True) -> tuple[BatchId, int] | None:
        """Return the next search to issue, as (batch, fragment); see ``SearchOrder.pop_next_search``."""
        search = self.scan.pop_next_search(is_idle=is_idle)
        if not search:
            return None
        batch, fragment = BatchId(search[0]), search[1]
        self._batches[batch].running += 1
        return batch, fragment

    def record_search(self, batch: BatchId, fragment: int, block: _core.BlockRef, seconds: float) -> bool:
        """Note that a search is committed; return whether the candidates are complete."""
        item = self._batches[batch]
        item.running -= 1
        item.found[fragment] = block
        item.seconds += seconds
        item.searched += 1
        self.scan.observe_search(batch, fragment, seconds)
        return not item.setback and len(item.found) == self.n

    def record_failure(self, batch: BatchId, setback: BatchSetback) -> None:
        """Note that one of several tasks failed: no more of the batch are issued. ``pop_setback`` returns it in the end."""
        item = self._batches[batch]
        item.running -= 1
        item.setback = item.setback or setback
        self.scan.drop_batch(batch)

    def pop_setback(self, batch: BatchId) -> BatchSetback | None:
        """Return, once, the first setback of a batch none of whose tasks runs any more."""
        item = self._batches[batch]
        if item.running or not item.setback:
            return None
        setback, item.setback = item.setback, None
        return setback

    def make_ready_batch(self, batch: BatchId, n_records: int) -> ReadyBatch:
        """Return ``batch``, whose candidates are complete, ready to be finished; its ranks are removed here."""
        item = self._batches[batch]
        ranks, item.ranks = item.ranks, ()
        found = [item.found[fragment] for fragment in sorted(item.found)]
        seconds = self.estimate_seconds(batch) or 0.0
        return ReadyBatch(batch, item.attempt, n_records, found, seconds, ranks, item.shares is not None)

    def begin_shares(self, batch: BatchId, n: int) -> None:
        """Begin to finish ``batch``, whose candidates are complete, by ``n`` tasks with a share each."""
        item = self._batches[batch]
        item.shares, item.running = {}, n

    def record_share(
        self, batch: BatchId, number: int, of: int, task: _core.TaskRef
    ) -> Mapping[int, _core.TaskRef] | None:
        """Note that a share is committed; return all of them if this was the last one missing."""
        item = self._batches[batch]
        assert item.shares is not None  # see ``begin_shares``
        item.running -= 1
        item.shares[number] = task
        return item.shares if len(item.shares) == of and not item.setback else None

    def record_ranks(self, batch: BatchId, ranks: Sequence[_core.BlockRef]) -> None:
        """Set the ranks of all subjects of ``batch``."""
        self._batches[batch].ranks = ranks

    def divide_batch(self, batch: BatchId, shares: Mapping[BatchId, float]) -> None:
        """Replace ``batch``, whose candidates are complete, by its parts, with their shares of its time."""
        whole = self._batches.pop(batch)
        for part, share in shares.items():
            self._batches[part] = _SearchedBatch(whole.found, whole.attempt, 0, whole.seconds * share, whole.searched)

    def estimate_seconds(self, batch: BatchId) -> float | None:
        """Return the wall seconds of the searches of a batch; None if an earlier run did them all."""
        item = self._batches[batch]
        return item.seconds * self.n / item.searched if item.searched else None

    def compute_done_share(self, batch: BatchId) -> float:
        """Return the fraction of the work on ``batch`` that is done, the search of the candidates included."""
        item = self._batches.get(batch)
        return len(item.found) / (self.n + 1) if item else 0.0

    def forget_batch(self, batch: BatchId) -> None:
        """Forget a batch that is done, split or quarantined."""
        if self._batches.pop(batch, None):
            self.scan.drop_batch(batch)


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
        sizes = [each.size for each in fragmented.fragments] if fragmented.is_for_tail else []
        self._searches = SearchProgress(len(fragmented.fragments), n_nodes, sizes)
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

    def has_begun(self, part: BatchExtent) -> bool:
        """Tell whether an attempt at a batch began in fragments, in this run or an earlier one."""
        return part.batch in self._parts or (part.first, part.last) in self._begun

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

    def pop_next_task(self, slots: int, n_tasks: int, later_seconds: float) -> TaskOrder | None:
        """Return the next search to issue, of a fragment or the whole database, or None.

        Args:
            slots: Number of all slots.
            n_tasks: Number of tasks that run or wait for a slot.
            later_seconds: Time on one slot of all batches that were not added yet.
        """
        short = self._searches.pop_short_batch(slots, later_seconds)
        if short is not None:
            # It goes before those that wait, as it takes longer than any of them.
            return TaskOrder(short, WholeTask(), self._searches.get_attempt(short), urgent=True)
        search = self._searches.pop_next_search(is_idle=n_tasks < slots)
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
