"""Short words for tests of `millrace.schedule.lives`."""

from __future__ import annotations

from millrace.ids import BatchId
from millrace.model import CostHint
from millrace.schedule.cutting import Cutting
from millrace.schedule.lives import Lives, Step
from millrace.schedule.protocol import Failure, Part, Result
from millrace.schedule.quarantine_limit import QuarantineLimit


def lives_of(
    slots: int, hint: CostHint, retries: int = 1, fixed: tuple[int, int] = (0, 0), *, stop_on_failure: bool = False,
    proven: bool = False, limit: QuarantineLimit | None = None,
) -> Lives:  # fmt: skip
    cutting = Cutting(slots, hint, fixed)
    return Lives(cutting, retries, stop_on_failure=stop_on_failure, proven=proven, limit=limit)


def part(batch: int, records: int, units: int) -> Part:
    return Part(BatchId(batch), 0, records, units)


def ended(lives: Lives, batch: int, result: Result, signature: str = "", seconds: float | None = None) -> list[Step]:
    if result is Result.DONE:
        return lives.attempt_done(BatchId(batch), seconds)
    return lives.attempt_failed(BatchId(batch), Failure(result, signature))
