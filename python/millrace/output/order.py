"""Batches arrive in any order and leave in the input's."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

import msgspec

from millrace import _core
from millrace.committed import Committed, gathered
from millrace.task_numbers import kind_of
from millrace.tasks import Slice, Whole

Item = TypeVar("Item")


class Ordered(msgspec.Struct, Generic[Item]):
    """Holds back what came too early."""

    next: int = 0
    _waiting: dict[int, tuple[int, Item]] = msgspec.field(default_factory=dict)

    def push(self, first: int, last: int, item: Item) -> Iterator[tuple[int, int, Item]]:
        """Add the extent ``[first, last)``; yield every (first, last, item) whose turn it is, in order."""
        self._waiting[first] = (last, item)
        while (found := self._waiting.pop(self.next, None)) is not None:
            begin, self.next = self.next, found[0]
            yield begin, found[0], found[1]
            if found[0] == begin:
                return  # the one batch of an empty input

    @property
    def waiting(self) -> int:
        """Extents held back."""
        return len(self._waiting)


def effective_tasks(tasks: Iterable[_core.TaskRef]) -> list[Committed]:
    """The committed tasks that count, in input order: of one extent the first that was not given up.

    What was found in fragments of a database, or of ranks, is not part of the output, and slices only are if all are there. An extent
    that overlaps with one before it does not count: a node that was taken for dead may have committed what was then cut
    in another way.
    """
    best: dict[int, Committed] = {}
    slices: dict[tuple[int, int, int], dict[int, _core.TaskRef]] = defaultdict(dict)
    for task in tasks:
        result: Committed = task
        match kind_of(task.fragment):
            case Whole():
                pass
            case Slice(number, of):
                others = slices[task.first, task.last, of]
                others.setdefault(number, task)
                if len(others) < of:
                    continue
                result = gathered(others)
            case _:
                continue
        before = best.get(task.first)
        if before is None or (before.quarantined and not task.quarantined):
            best[task.first] = result
    reached, found = 0, list[Committed]()
    for first in sorted(best):
        if first >= reached:
            found.append(best[first])
            reached = best[first].last
    return found
