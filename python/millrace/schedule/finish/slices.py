"""The strategy in which several tasks write the rows of one query: a slice each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from millrace.committed import Committed, gathered
from millrace.schedule.finish.shares import in_shares, worthwhile
from millrace.schedule.finish.way import Ready, Slots, WayInShares
from millrace.schedule.orders import Order
from millrace.tasks import Slice

if TYPE_CHECKING:
    from millrace import _core


class Slices(WayInShares):
    """Writes the rows in slices: by the candidates, or by the ranks of the subjects once they are known.

    Args:
        needs_ranks: The candidates do not contain the ranks of subjects.
    """

    kind = Slice

    def __init__(self, *, needs_ranks: bool) -> None:
        self._needs_ranks = needs_ranks

    def begin(self, ready: Ready, slots: Slots) -> list[Order] | None:
        if ready.ranks:
            n, found = len(ready.ranks), ready.ranks
        else:
            n, found = 1 if self._needs_ranks else worthwhile(ready, slots, passes=1), ready.found
        return in_shares(Slice, ready, n, found) if n > 1 else None

    def end(self, shares: Mapping[int, _core.TaskRef]) -> Committed:
        return gathered(shares)
