"""Choice of the parts of a run that are verified by a second execution, and the summary of it at the end."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from millrace.committed import Committed
from millrace.model import InputUse, ToolUse
from millrace.plan.doubts import doubts, is_unknown
from millrace.plan.plan import Plan
from millrace.report.words import count
from millrace.schedule.stretches import SHARE, Choice, Stretches


def tool_of(plan: Plan) -> str:
    """Return the name of the tool."""
    return Path(plan.command.argv[0]).name


def packed(use: ToolUse) -> InputUse | None:
    """Return an input that the tool gets compressed, or None.

    Each execution gets it compressed to other bytes, which reveals a tool that does not unpack it.
    """
    return next((item for item in use.inputs if item.packed), None)


def stretches(plan: Plan, run_id: bytes, *, before: bool = False) -> Stretches:
    """Choose the parts of the input to verify: as requested, else a small part if the tool or its version is unknown.

    Args:
        before: Whether outputs already exist.
    """
    share = plan.job.verify
    looks = 0.0 if share is None and not doubts(plan.use, tool_of(plan)) else share
    return Stretches(
        looks, run_id, divisible=plan.use.cost.max_records != 1, one_is_serial=not packed(plan.use) and not before
    )


def short(plan: Plan, run_id: bytes) -> Choice | None:
    """Choose which batches are cut short for verification; None where the user sets ``--verify`` or the batch size."""
    is_sampled = plan.job.verify is None and is_unknown(plan.use) and plan.use.cost.max_records != 1
    return Choice(SHARE, run_id) if is_sampled and not plan.job.batch_size[0] and not plan.job.batch_size[1] else None


def kept(stretches: Stretches, tasks: Sequence[Committed]) -> frozenset[int]:
    """Return first records of the committed batches that this run may verify: chosen ones, and the last two."""
    found = {task.first for task in tasks[-2:]} if stretches.share != 0 else set[int]()
    reached = 0
    for task in tasks:
        if task.first != reached or task.quarantined:
            stretches.passed(reached, task.first)
        if not task.quarantined and stretches.cut(task.first, task.last):
            found.add(task.first)
        reached = task.last
    return frozenset(found)


def outcome(plan: Plan, stretches: Stretches, n_failed: int, records: int) -> str:
    """Describe what was verified of ``records`` records; empty if there is nothing to say.

    Args:
        n_failed: Stretches that were not compared because the second run failed.
    """
    why = doubts(plan.use, tool_of(plan))
    said = "; it treats each record by itself, as said with --independent" if plan.job.independent else ""
    unknown = f"{why}{said}: " if why else ""
    share = stretches.share
    if share == 0:
        return f"{unknown}not checked (--verify 0)" if unknown else ""
    if not records or (stretches.n_committed == 1 and stretches.one_is_serial):
        return f"{unknown}nothing to check, as all of the input was one task, which is the serial run itself"
    n = sum(last - first for first, last in stretches.checked)
    failed = f"; {count(n_failed, 'stretch')} not, as the tool failed on parts" if n_failed else ""
    if not n:
        return f"{unknown}not checked{failed}"
    how = "run again" if plan.use.cost.max_records == 1 else "cut elsewhere"
    return f"{unknown}{'checked on' if unknown else 'verified:'} {n:,} of {records:,} records {how}, all bytes equal{failed}"
