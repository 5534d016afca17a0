"""Slices: the result of one record that several tasks write side by side, each its own run of rows. Pure.

A slice is committed like the search of a fragment, under a number that no fragment has: it is no result by itself. All
slices of a record, one after the other, are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from millrace import _core

#: Bits of the number of a fragment; what is above them is how many slices there are.
_BITS = 16

#: Most slices of one record, and most fragments of a database.
MOST = (1 << _BITS) - 1


class Slice(NamedTuple):
    """Slice ``number``, from 0, of ``of``.

    >>> slice_of(Slice(2, 5).code)
    Slice(number=2, of=5)
    """

    number: int
    of: int

    @property
    def code(self) -> int:
        """Its number among fragments."""
        return self.of << _BITS | self.number


def slice_of(fragment: int) -> Slice | None:
    """The slice of this number; None if it is that of a fragment, or 0.

    >>> slice_of(7)
    """
    return Slice(fragment & MOST, fragment >> _BITS) if fragment > MOST else None


class Committed(Protocol):
    """What is known of the records ``[first, last)`` when they are done or given up: a `millrace._core.TaskRef`, or several."""

    @property
    def first(self) -> int: ...
    @property
    def last(self) -> int: ...
    @property
    def quarantined(self) -> bool: ...
    @property
    def inputs(self) -> Sequence[tuple[int, int]]: ...
    @property
    def blocks(self) -> Sequence[_core.BlockRef]: ...


@dataclass(frozen=True)
class Whole:
    """All slices of a record; blocks of the same stream follow each other."""

    first: int
    last: int
    inputs: Sequence[tuple[int, int]]
    blocks: Sequence[_core.BlockRef]
    quarantined: bool = False


def whole(slices: Mapping[int, _core.TaskRef]) -> Whole:
    """The result of a record from all of its slices, by number."""
    one = slices[0]
    blocks = [block for number in sorted(slices) for block in slices[number].blocks]
    return Whole(one.first, one.last, one.inputs, blocks)
