"""Slices: the result of one record that several tasks write side by side, each its own run of rows. Pure.

A slice is committed like the search of a fragment, under a number that no fragment has: it is no result by itself. All
slices of a record, one after the other, are. Where it is not yet known which subjects belong to which slice, as many
tasks look for their ranks first, each for a share of them, and what they find is committed in the same way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from millrace import _core

#: Bits of the number of a slice, above which one says that it is a share whose ranks are looked for; what is above that
#: is how many there are.
_BITS = 15

#: Most slices of one record.
MOST = (1 << _BITS) - 1

#: What is above this is no fragment.
_FRAGMENTS = (1 << _BITS + 1) - 1

#: The number, which no fragment has, of what is written only to be compared with results (`millrace.engine.verify`).
LOOK = _FRAGMENTS


class Slice(NamedTuple):
    """Slice ``number``, from 0, of ``of``, or with ``share`` a share of the subjects whose ranks are looked for.

    >>> slice_of(Slice(2, 5).code), slice_of(Slice(0, 5, share=True).code)
    (Slice(number=2, of=5, share=False), Slice(number=0, of=5, share=True))
    """

    number: int
    of: int
    share: bool = False

    @property
    def code(self) -> int:
        """Its number among fragments."""
        return (self.of << 1 | self.share) << _BITS | self.number


def slice_of(fragment: int) -> Slice | None:
    """The slice of this number; None if it is that of a fragment, or 0.

    >>> slice_of(7)
    """
    of, share = fragment >> _BITS + 1, bool(fragment >> _BITS & 1)
    return Slice(fragment & MOST, of, share) if fragment > _FRAGMENTS else None


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
