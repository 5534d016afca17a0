"""The choice of the write strategy by ``--write``."""

from __future__ import annotations

from millrace.cluster.write.coordinator import CoordinatorWriteStrategy
from millrace.cluster.write.individual import IndividualWriteStrategy
from millrace.cluster.write.merge import MergeWriteStrategy
from millrace.cluster.write.strategy import WriteStrategy
from millrace.plan.plan import RunPlan


def choose_write_strategy(plan: RunPlan) -> WriteStrategy:
    """Choose the strategy that ``--write`` names.

    Raises:
        RefusedError: The filesystem of the run does not allow it.
    """
    found = _create_strategy(plan.job.write)
    found.check_filesystem(plan)
    return found


def _create_strategy(way: str) -> WriteStrategy:
    match way:
        case "coordinator":
            return CoordinatorWriteStrategy()
        case "individual":
            return IndividualWriteStrategy()
        case "collective":
            from millrace.cluster.write.collective import CollectiveWriteStrategy  # few jobs write so

            return CollectiveWriteStrategy()
        case _:
            return MergeWriteStrategy()
