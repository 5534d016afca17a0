"""The strategy in which several tasks find the ranks of all subjects of one query: a share of its candidates each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from millrace.committed import gathered
from millrace.schedule.finish.shares import in_shares, worthwhile
from millrace.schedule.finish.way import Ranks, Ready, Slots, WayInShares
from millrace.schedule.orders import Order
from millrace.tasks import Rank

if TYPE_CHECKING:
    from millrace import _core


class RankShares(WayInShares):
    """Finds the ranks by which slices are written, where the candidates do not contain them."""

    kind = Rank

    def begin(self, ready: Ready, slots: Slots) -> list[Order] | None:
        # Each candidate is searched for its rank, and once more for its rows.
        n = worthwhile(ready, slots, passes=2)
        return in_shares(Rank, ready, n, ready.found) if n > 1 else None

    def end(self, shares: Mapping[int, _core.TaskRef]) -> Ranks:
        return Ranks(gathered(shares).blocks)
