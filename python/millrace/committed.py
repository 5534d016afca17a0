"""Records that are done or quarantined, as far as their results are committed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

if TYPE_CHECKING:
    from millrace import _core


class CommittedRecords(Protocol):
    """The committed result of records ``[first, last)``: a ``millrace._core.TaskRef``, or several."""

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


def count_records(tasks: Iterable[CommittedRecords]) -> int:
    """Return the number of records of ``tasks``."""
    return sum(task.last - task.first for task in tasks)


class GatheredSlices(msgspec.Struct, frozen=True):
    """All slices of a record; blocks of the same stream follow each other."""

    first: int
    last: int
    inputs: Sequence[tuple[int, int]]
    blocks: Sequence[_core.BlockRef]
    quarantined: bool = False


def gather_slices(slices: Mapping[int, _core.TaskRef]) -> GatheredSlices:
    """Gather the result of a record from all of its slices, by number."""
    one = slices[0]
    blocks = [block for number in sorted(slices) for block in slices[number].blocks]
    return GatheredSlices(one.first, one.last, one.inputs, blocks)
