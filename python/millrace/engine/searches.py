"""What each batch has found in the fragments of the database so far, and what it still has to search."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from millrace import _core
from millrace.schedule.scan import SharedScan
from millrace.slices import Slice, Whole, whole


@dataclass
class _Batch:
    """One batch from its first search to its end."""

    #: What was found, by fragment.
    found: dict[int, _core.BlockRef]
    #: Which attempt at the batch this is, from 1.
    attempt: int = 1
    #: Searches handed out that have not come to their end.
    running: int = 0
    #: Wall seconds of its searches in this run, and how many they were.
    seconds: float = 0.0
    searched: int = 0
    #: What has been written of the slices of its one record, or found of their ranks; None: it was never written in slices.
    slices: dict[int, _core.TaskRef] | None = None
    #: The ranks of all subjects, as soon as they are known and until slices are written by them.
    ranks: Sequence[_core.BlockRef] = ()
    #: What is to be done about a search that failed, as soon as the others of the batch have ended.
    failed: Callable[[], None] | None = None


@dataclass
class Searches:
    """The searches of all batches at work.

    Args:
        n: Number of fragments.
        nodes: Number of nodes that search them.
    """

    n: int
    nodes: int = 1
    scan: SharedScan = field(init=False)
    _batches: dict[int, _Batch] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.scan = SharedScan(self.n, self.nodes)

    def begin(self, batch: int, attempt: int, found: Mapping[int, _core.BlockRef]) -> bool:
        """An attempt at ``batch`` begins; what earlier ones found counts. Whether everything is found already."""
        item = self._batches.setdefault(batch, _Batch(dict(found)))
        item.attempt = attempt
        self.scan.add(batch, [fragment for fragment in range(1, self.n + 1) if fragment not in item.found])
        return len(item.found) == self.n

    def attempt(self, batch: int) -> int:
        """Which attempt at ``batch`` its searches belong to."""
        return self._batches[batch].attempt

    def next(self) -> tuple[int, int] | None:
        """The next search to hand out, as (batch, fragment)."""
        search = self.scan.next()
        if search:
            self._batches[search[0]].running += 1
        return search

    def found(self, batch: int, fragment: int, block: _core.BlockRef, seconds: float) -> bool:
        """A search is committed. Whether it was the last that the batch waited for."""
        item = self._batches[batch]
        item.running -= 1
        item.found[fragment] = block
        item.seconds += seconds
        item.searched += 1
        if item.failed:
            self._settle(item)
            return False
        return len(item.found) == self.n

    def failed(self, batch: int, then: Callable[[], None]) -> None:
        """A search failed: the batch searches nothing more, and ``then`` is called when its last search has ended."""
        item = self._batches[batch]
        item.running -= 1
        item.failed = item.failed or then
        self.scan.drop(batch)
        self._settle(item)

    def slice(self, batch: int, n: int) -> None:
        """``batch``, for which everything is found, is written in ``n`` slices, or the ranks of so many shares are found."""
        item = self._batches[batch]
        item.slices, item.running = {}, n

    def take_ranks(self, batch: int) -> Sequence[_core.BlockRef]:
        """The ranks of all subjects of ``batch``, by which it is written in as many slices; empty: they are not known."""
        item = self._batches[batch]
        ranks, item.ranks = item.ranks, ()
        return ranks

    def was_sliced(self, batch: int) -> bool:
        """Whether ``batch`` was to be written in slices before, of which something came in between."""
        return self._batches[batch].slices is not None

    def sliced(self, batch: int, part: Slice, task: _core.TaskRef) -> Whole | None:
        """A slice is committed; the result if it was the last."""
        slices = self._gathered(self._batches[batch], part, task)
        return whole(slices) if slices else None

    def ranked(self, batch: int, part: Slice, task: _core.TaskRef) -> bool:
        """The ranks of a share are committed. Whether they were the last."""
        item = self._batches[batch]
        shares = self._gathered(item, part, task)
        if shares:
            item.ranks = whole(shares).blocks
        return bool(shares)

    def _gathered(self, item: _Batch, part: Slice, task: _core.TaskRef) -> dict[int, _core.TaskRef] | None:
        """All of them, if ``part`` was the last one missing."""
        assert item.slices is not None  # see `slice`
        item.running -= 1
        item.slices[part.number] = task
        if item.failed:
            self._settle(item)
            return None
        return item.slices if len(item.slices) == part.of else None

    def _settle(self, item: _Batch) -> None:
        if item.failed and not item.running:
            then, item.failed = item.failed, None
            then()

    def blocks(self, batch: int) -> list[_core.BlockRef]:
        """What all fragments found, in their order."""
        found = self._batches[batch].found
        return [found[fragment] for fragment in sorted(found)]

    def found_bytes(self, batch: int) -> int:
        """Size of what all fragments found."""
        return sum(block.length for block in self._batches[batch].found.values())

    def divide(self, batch: int, shares: Mapping[int, float]) -> None:
        """``batch``, for which everything is found, goes on as parts of it, with their shares of its time."""
        whole = self._batches.pop(batch)
        for part, share in shares.items():
            self._batches[part] = _Batch(whole.found, whole.attempt, 0, whole.seconds * share, whole.searched)

    def seconds(self, batch: int) -> float | None:
        """Wall seconds that the searches of a batch take; None if an earlier run did them all."""
        item = self._batches[batch]
        return item.seconds * self.n / item.searched if item.searched else None

    def share(self, batch: int) -> float:
        """How much of the work on ``batch`` is done, the search of the candidates included."""
        item = self._batches.get(batch)
        return len(item.found) / (self.n + 1) if item else 0.0

    def forget(self, batch: int) -> None:
        """The batch is done, split or given up."""
        if self._batches.pop(batch, None):
            self.scan.drop(batch)
