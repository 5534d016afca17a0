"""The choice of the write strategy by ``--write``."""

from __future__ import annotations

from millrace.cluster.write.coordinator import Coordinator
from millrace.cluster.write.individual import Individual
from millrace.cluster.write.merge import Merge
from millrace.cluster.write.strategy import WriteStrategy
from millrace.plan.plan import Plan


def strategy_of(plan: Plan) -> WriteStrategy:
    """Choose the strategy that ``--write`` names.

    Raises:
        RefusedError: The filesystem of the run does not allow it.
    """
    found = _named(plan.job.write)
    found.check(plan)
    return found


def _named(way: str) -> WriteStrategy:
    match way:
        case "coordinator":
            return Coordinator()
        case "individual":
            return Individual()
        case "collective":
            from millrace.cluster.write.collective import Collective  # few jobs write so

            return Collective()
        case _:
            return Merge()
