"""Short words for tests of `millrace.scheduler.batch_lifecycle`."""

from __future__ import annotations

from millrace.core.tasks import BatchId
from millrace.core.tool_use import CostHint
from millrace.scheduler.batch_lifecycle import BatchLifecycle, BatchStep
from millrace.scheduler.cut_planner import CutPlanner
from millrace.scheduler.limits import QuarantineLimit
from millrace.scheduler.protocol import AttemptResult, BatchExtent, TaskFailure


def lives_of(
    slots: int, hint: CostHint, retries: int = 1, fixed: tuple[int, int] = (0, 0), *, stop_on_failure: bool = False,
    proven: bool = False, limit: QuarantineLimit | None = None,
) -> BatchLifecycle:  # fmt: skip
    cutting = CutPlanner(slots, hint, fixed)
    return BatchLifecycle(cutting, retries, stop_on_failure=stop_on_failure, proven=proven, limit=limit)


def part(batch: int, records: int, units: int) -> BatchExtent:
    return BatchExtent(BatchId(batch), 0, records, units)


def ended(
    lives: BatchLifecycle, batch: int, result: AttemptResult, signature: str = "", seconds: float | None = None
) -> list[BatchStep]:
    if result is AttemptResult.DONE:
        return lives.finish_attempt(BatchId(batch), seconds)
    return lives.fail_attempt(BatchId(batch), TaskFailure(result, signature))
