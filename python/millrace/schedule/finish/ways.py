"""The strategies to finish a batch, in the order in which they are tried."""

from __future__ import annotations

from collections.abc import Sequence

from millrace.model import Fragmented
from millrace.schedule.finish.divided import Divided
from millrace.schedule.finish.rank_shares import RankShares
from millrace.schedule.finish.slices import Slices
from millrace.schedule.finish.way import Way
from millrace.schedule.finish.whole import Whole


def ways_of(fragmented: Fragmented) -> Sequence[Way]:
    """Return the strategies that a database in fragments allows; the last one finishes any batch."""
    ways: list[Way] = [Divided()] if fragmented.divisible else []
    if ranked := fragmented.ranked:
        needs_ranks = bool(ranked.argv)
        ways += [Slices(needs_ranks=needs_ranks), *([RankShares()] if needs_ranks else [])]
    return [*ways, Whole()]
