"""Choice of the parts of a run that are verified by a second execution, and the summary of it at the end."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from millrace.committed import CommittedRecords
from millrace.model import InputUse, ToolUse
from millrace.plan.doubts import explain_doubts, is_unknown_tool
from millrace.plan.plan import RunPlan
from millrace.report.words import format_count
from millrace.schedule.stretches import SHARE, StretchChoice, VerificationStretches


def get_tool_name(plan: RunPlan) -> str:
    """Return the name of the tool."""
    return Path(plan.command.argv[0]).name


def find_packed_input(use: ToolUse) -> InputUse | None:
    """Return an input that the tool gets compressed, or None.

    Each execution gets it compressed to other bytes, which reveals a tool that does not unpack it.
    """
    return next((item for item in use.inputs if item.packed), None)


def choose_stretches(plan: RunPlan, run_id: bytes, *, before: bool = False) -> VerificationStretches:
    """Choose the parts of the input to verify: as requested, else a small part if the tool or its version is unknown.

    Args:
        before: Whether outputs already exist.
    """
    share = plan.job.verify
    looks = 0.0 if share is None and not explain_doubts(plan.use, get_tool_name(plan)) else share
    return VerificationStretches(
        looks,
        run_id,
        divisible=plan.use.cost.max_records != 1,
        one_is_serial=not find_packed_input(plan.use) and not before,
    )


def choose_short_batches(plan: RunPlan, run_id: bytes) -> StretchChoice | None:
    """Choose which batches are cut short for verification; None where the user sets ``--verify`` or the batch size."""
    is_sampled = plan.job.verify is None and is_unknown_tool(plan.use) and plan.use.cost.max_records != 1
    return (
        StretchChoice(SHARE, run_id)
        if is_sampled and not plan.job.batch_size[0] and not plan.job.batch_size[1]
        else None
    )


def select_kept_batches(stretches: VerificationStretches, tasks: Sequence[CommittedRecords]) -> frozenset[int]:
    """Return first records of the committed batches that this run may verify: chosen ones, and the last two."""
    found = {task.first for task in tasks[-2:]} if stretches.share != 0 else set[int]()
    reached = 0
    for task in tasks:
        if task.first != reached or task.quarantined:
            stretches.skip_batch(reached, task.first)
        if not task.quarantined and stretches.add_batch(task.first, task.last):
            found.add(task.first)
        reached = task.last
    return frozenset(found)


def describe_verification(plan: RunPlan, stretches: VerificationStretches, n_failed: int, records: int) -> str:
    """Describe what was verified of ``records`` records; empty if there is nothing to say.

    Args:
        n_failed: Stretches that were not compared because the second run failed.
    """
    why = explain_doubts(plan.use, get_tool_name(plan))
    said = "; it treats each record by itself, as said with --independent" if plan.job.independent else ""
    unknown = f"{why}{said}: " if why else ""
    share = stretches.share
    if share == 0:
        return f"{unknown}not checked (--verify 0)" if unknown else ""
    if not records or (stretches.n_committed == 1 and stretches.one_is_serial):
        return f"{unknown}nothing to check, as all of the input was one task, which is the serial run itself"
    n = sum(last - first for first, last in stretches.checked)
    failed = f"; {format_count(n_failed, 'stretch')} not, as the tool failed on parts" if n_failed else ""
    if not n:
        return f"{unknown}not checked{failed}"
    how = "run again" if plan.use.cost.max_records == 1 else "cut elsewhere"
    return f"{unknown}{'checked on' if unknown else 'verified:'} {n:,} of {records:,} records {how}, all bytes equal{failed}"
