"""What each batch has found in the fragments of the database so far, and what it still has to search. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from millrace.ids import BatchId
from millrace.schedule.finish.way import Ready
from millrace.schedule.protocol import Failure
from millrace.schedule.scan import SharedScan

if TYPE_CHECKING:
    from millrace import _core


class Misplaced:
    """Subjects cannot be ranked, or a slice is not what it was taken for."""


#: Why a batch cannot go on as it was meant to.
Setback = Failure | Misplaced


class _Batch(msgspec.Struct):
    """One batch from its first search to its end."""

    #: What was found, by fragment.
    found: dict[int, _core.BlockRef]
    #: Which attempt at the batch this is, from 1.
    attempt: int = 1
    #: Its tasks that have not come to their end, of those of which it has several.
    running: int = 0
    #: Wall seconds of its searches in this run, and how many they were.
    seconds: float = 0.0
    searched: int = 0
    #: What has been written of the slices of its one record, or found of their ranks; None: it was never written in slices.
    shares: dict[int, _core.TaskRef] | None = None
    #: The ranks of all subjects, as soon as they are known and until slices are written by them.
    ranks: Sequence[_core.BlockRef] = ()
    #: The first setback, until its other tasks have ended.
    setback: Setback | None = None


class Searches(msgspec.Struct, dict=True):
    """The searches of all batches at work.

    Args:
        n: Number of fragments.
        nodes: Number of nodes that search them.
    """

    n: int
    nodes: int = 1
    _batches: dict[BatchId, _Batch] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        self.scan = SharedScan(self.n, self.nodes)

    def begin(self, batch: BatchId, attempt: int, found: Mapping[int, _core.BlockRef]) -> bool:
        """An attempt at ``batch`` begins; what earlier ones found counts. Whether everything is found already."""
        item = self._batches.setdefault(batch, _Batch(dict(found)))
        item.attempt = attempt
        self.scan.add(batch, [fragment for fragment in range(1, self.n + 1) if fragment not in item.found])
        return len(item.found) == self.n

    def attempt(self, batch: BatchId) -> int:
        """Which attempt at ``batch`` its searches belong to."""
        return self._batches[batch].attempt

    def next(self) -> tuple[BatchId, int] | None:
        """The next search to hand out, as (batch, fragment)."""
        search = self.scan.next()
        if not search:
            return None
        batch, fragment = BatchId(search[0]), search[1]
        self._batches[batch].running += 1
        return batch, fragment

    def found(self, batch: BatchId, fragment: int, block: _core.BlockRef, seconds: float) -> bool:
        """A search is committed. Whether everything is found."""
        item = self._batches[batch]
        item.running -= 1
        item.found[fragment] = block
        item.seconds += seconds
        item.searched += 1
        return not item.setback and len(item.found) == self.n

    def failed(self, batch: BatchId, setback: Setback) -> None:
        """A task of several failed: no more of the batch are handed out, and `settled` tells when the others have ended."""
        item = self._batches[batch]
        item.running -= 1
        item.setback = item.setback or setback
        self.scan.drop(batch)

    def settled(self, batch: BatchId) -> Setback | None:
        """The first setback of a batch of which nothing runs any more; told once."""
        item = self._batches[batch]
        if item.running or not item.setback:
            return None
        setback, item.setback = item.setback, None
        return setback

    def ready(self, batch: BatchId, n_records: int) -> Ready:
        """``batch``, for which everything is found; its ranks are taken."""
        item = self._batches[batch]
        ranks, item.ranks = item.ranks, ()
        found = [item.found[fragment] for fragment in sorted(item.found)]
        seconds = self.seconds(batch) or 0.0
        return Ready(batch, item.attempt, n_records, found, seconds, ranks, item.shares is not None)

    def begin_shares(self, batch: BatchId, n: int) -> None:
        """``batch``, for which everything is found, is finished by ``n`` tasks, a share each."""
        item = self._batches[batch]
        item.shares, item.running = {}, n

    def share_done(
        self, batch: BatchId, number: int, of: int, task: _core.TaskRef
    ) -> Mapping[int, _core.TaskRef] | None:
        """A share is committed; all of them, if this was the last one missing."""
        item = self._batches[batch]
        assert item.shares is not None  # see `begin_shares`
        item.running -= 1
        item.shares[number] = task
        return item.shares if len(item.shares) == of and not item.setback else None

    def ranked(self, batch: BatchId, ranks: Sequence[_core.BlockRef]) -> None:
        """The ranks of all subjects of ``batch`` are known."""
        self._batches[batch].ranks = ranks

    def divide(self, batch: BatchId, shares: Mapping[BatchId, float]) -> None:
        """``batch``, for which everything is found, goes on as parts of it, with their shares of its time."""
        whole = self._batches.pop(batch)
        for part, share in shares.items():
            self._batches[part] = _Batch(whole.found, whole.attempt, 0, whole.seconds * share, whole.searched)

    def seconds(self, batch: BatchId) -> float | None:
        """Wall seconds that the searches of a batch take; None if an earlier run did them all."""
        item = self._batches[batch]
        return item.seconds * self.n / item.searched if item.searched else None

    def share(self, batch: BatchId) -> float:
        """How much of the work on ``batch`` is done, the search of the candidates included."""
        item = self._batches.get(batch)
        return len(item.found) / (self.n + 1) if item else 0.0

    def forget(self, batch: BatchId) -> None:
        """The batch is done, split or given up."""
        if self._batches.pop(batch, None):
            self.scan.drop(batch)
