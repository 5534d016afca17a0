"""Reordering of batches that arrive in any order into input order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

import msgspec

from millrace import _core
from millrace.committed import CommittedRecords, gather_slices
from millrace.task_numbers import decode_task_kind
from millrace.tasks import SliceTask, WholeTask

Item = TypeVar("Item")


class ReorderBuffer(msgspec.Struct, Generic[Item]):
    """A buffer that delays items until all earlier ones have arrived."""

    next: int = 0
    _waiting: dict[int, tuple[int, Item]] = msgspec.field(default_factory=dict)

    def push(self, first: int, last: int, item: Item) -> Iterator[tuple[int, int, Item]]:
        """Add the extent ``[first, last)``; yield every (first, last, item) that is now in order."""
        self._waiting[first] = (last, item)
        while (found := self._waiting.pop(self.next, None)) is not None:
            begin, self.next = self.next, found[0]
            yield begin, found[0], found[1]
            if found[0] == begin:
                return  # the one batch of an empty input

    @property
    def waiting(self) -> int:
        """Return the number of delayed extents."""
        return len(self._waiting)


def select_effective_tasks(tasks: Iterable[_core.TaskRef]) -> list[CommittedRecords]:
    """Return the committed tasks that count, in input order: of each extent the first that is not quarantined.

    Tasks on fragments and ranks are not part of the output, and slices count only if all are there. An extent that
    overlaps an earlier one does not count: a node that was declared dead may have committed records that were then cut
    differently.
    """
    best: dict[int, CommittedRecords] = {}
    slices: dict[tuple[int, int, int], dict[int, _core.TaskRef]] = defaultdict(dict)
    for task in tasks:
        result: CommittedRecords = task
        match decode_task_kind(task.fragment):
            case WholeTask():
                pass
            case SliceTask(number, of):
                others = slices[task.first, task.last, of]
                others.setdefault(number, task)
                if len(others) < of:
                    continue
                result = gather_slices(others)
            case _:
                continue
        before = best.get(task.first)
        if before is None or (before.quarantined and not task.quarantined):
            best[task.first] = result
    reached, found = 0, list[CommittedRecords]()
    for first in sorted(best):
        if first >= reached:
            found.append(best[first])
            reached = best[first].last
    return found
