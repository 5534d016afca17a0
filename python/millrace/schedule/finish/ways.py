"""The strategies to finish a batch, in the order in which they are tried."""

from __future__ import annotations

from collections.abc import Sequence

from millrace.model import FragmentPlan
from millrace.schedule.finish.divided import DividedFinish
from millrace.schedule.finish.rank_shares import RankSharing
from millrace.schedule.finish.slices import SlicedFinish
from millrace.schedule.finish.way import FinishStrategy
from millrace.schedule.finish.whole import WholeFinish


def list_finish_strategies(fragmented: FragmentPlan) -> Sequence[FinishStrategy]:
    """Return the strategies that a database in fragments allows; the last one finishes any batch."""
    ways: list[FinishStrategy] = [DividedFinish()] if fragmented.divisible else []
    if ranked := fragmented.ranked:
        needs_ranks = bool(ranked.argv)
        ways += [SlicedFinish(needs_ranks=needs_ranks), *([RankSharing()] if needs_ranks else [])]
    return [*ways, WholeFinish()]
