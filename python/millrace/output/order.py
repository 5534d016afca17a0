"""Batches arrive in any order and leave in the input's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Item = TypeVar("Item")


@dataclass
class Ordered(Generic[Item]):
    """Holds back what came too early."""

    next: int = 0
    _waiting: dict[int, tuple[int, Item]] = field(default_factory=dict)

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
