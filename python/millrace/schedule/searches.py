"""Progress of each batch in the fragments of the database: candidates found, and searches left. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from millrace.ids import BatchId
from millrace.schedule.finish.way import ReadyBatch
from millrace.schedule.protocol import TaskFailure
from millrace.schedule.scan import SharedScan

if TYPE_CHECKING:
    from millrace import _core


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
    """

    n: int
    nodes: int = 1
    _batches: dict[BatchId, _SearchedBatch] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        self.scan = SharedScan(self.n, self.nodes)

    def begin_attempt(self, batch: BatchId, attempt: int, found: Mapping[int, _core.BlockRef]) -> bool:
        """Begin an attempt at ``batch``; earlier candidates count. Return whether they are complete."""
        item = self._batches.setdefault(batch, _SearchedBatch(dict(found)))
        item.attempt = attempt
        self.scan.add_batch(batch, [fragment for fragment in range(1, self.n + 1) if fragment not in item.found])
        return len(item.found) == self.n

    def get_attempt(self, batch: BatchId) -> int:
        """Return the number of the attempt to which searches of ``batch`` belong."""
        return self._batches[batch].attempt

    def pop_next_search(self) -> tuple[BatchId, int] | None:
        """Return the next search to issue, as (batch, fragment)."""
        search = self.scan.pop_next_search()
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
