"""Comparison of the outputs of two executions of the same records: differences and likely causes.

Which parts of a run are executed again is chosen here, and summarised at the end.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path

import msgspec

from millrace import _core
from millrace.core.errors import UnverifiedError
from millrace.core.tasks import CommittedRecords
from millrace.core.text_format import format_count
from millrace.core.tool_use import InputUse, OutputUse, ToolUse
from millrace.planning.program_lookup import explain_doubts, is_unknown_tool
from millrace.planning.run_plan import RunPlan
from millrace.scheduler.output_differences import (
    DifferenceExplanation,
    LineDifference,
    explain_difference,
    find_first_difference,
    format_line,
)
from millrace.scheduler.verification_stretches import SHARE, RecordExtent, StretchChoice, VerificationStretches

#: Bytes of an output in which the first differing line and its likely cause are searched.
MAX_SHOWN_BYTES = 4 << 20


class MismatchedOutput(msgspec.Struct, frozen=True):
    """The difference in one output."""

    output: str
    then: list[bytes]
    now: list[bytes]
    records: RecordExtent
    difference: LineDifference


#: Unpacking command of each compression.
_UNPACKS = {"gzip": "zcat", "bgzf": "zcat", "zstd": "zstdcat", "bzip2": "bzcat", "xz": "xzcat"}


TaskExtents = Sequence[tuple[RecordExtent, CommittedRecords]]


def compare_output(number: int, output: OutputUse, then: TaskExtents, now: TaskExtents) -> MismatchedOutput | None:
    """Compare one output of both runs; return the difference, or None if the bytes are equal."""
    if output.layout != "file":
        return _compare_named_files(number, output, then, now)
    before, after = _select_blocks(number, then), _select_blocks(number, now)
    if not before and not after:
        return None
    was, is_now = (
        _core.joined(output.join, [(n, block) for _, n, block in each], output.volatile, MAX_SHOWN_BYTES)
        for each in (before, after)
    )
    if was == is_now:
        return None
    raw = [[_read_block_head(output, n, block)[0] for _, n, block in each] for each in (before, after)]
    difference = find_first_difference(was[0], is_now[0])
    where = (then[0][0][0], then[-1][0][1])
    if output.join == "concat":
        ends = [
            _locate_offset(difference.offset, each, texts) for each, texts in zip((before, after), raw, strict=True)
        ]
        where = max(first for first, _ in ends), min(last for _, last in ends)
    return MismatchedOutput(output.name, raw[0], raw[1], where, difference)


def _select_blocks(number: int, tasks: TaskExtents) -> list[tuple[RecordExtent, int, _core.BlockRef]]:
    return [
        (extent, extent[1] - extent[0], block)
        for extent, task in tasks
        for block in task.blocks
        if block.stream == number
    ]


def _locate_offset(
    offset: int, blocks: Sequence[tuple[RecordExtent, int, _core.BlockRef]], texts: Sequence[bytes]
) -> RecordExtent:
    """Return the records of the block that holds byte ``offset`` of all blocks together."""
    for (extent, _, _), text in zip(blocks, texts, strict=True):
        if offset < len(text):
            return extent
        offset -= len(text)
    return blocks[-1][0] if blocks else (0, 2**63)


def _read_block_head(output: OutputUse, n_records: int, block: _core.BlockRef) -> tuple[bytes, int, int]:
    """Return the first bytes of a block, and the length and checksum of the whole block."""
    return _core.joined("concat", [(n_records, block)], output.volatile, MAX_SHOWN_BYTES)


def _compare_named_files(
    number: int, output: OutputUse, then: TaskExtents, now: TaskExtents
) -> MismatchedOutput | None:
    """Compare an output that consists of several files; of files with the same name, the last one counts."""
    files = [
        {block.name: _read_block_head(output, n, block) for _, n, block in _select_blocks(number, tasks)}
        for tasks in (then, now)
    ]
    for name in sorted(files[0].keys() | files[1].keys()):
        was, is_now = files[0].get(name), files[1].get(name)
        if was != is_now:
            where, before, after = (then[0][0][0], then[-1][0][1]), was[0] if was else b"", is_now[0] if is_now else b""
            return MismatchedOutput(os.fsdecode(name), [before], [after], where, find_first_difference(before, after))
    return None


def _suggest_unpacking(path: str, compression: str, form: str, other: DifferenceExplanation) -> DifferenceExplanation:
    """Return the likely cause where the second run got the same records compressed to other bytes."""
    source = "< FILE" if path == "-" else path
    return DifferenceExplanation(
        f"the tool does not unpack its input, which is compressed ({compression}), or {other.what.rpartition(': ')[2]}",
        f"if it does not: {_UNPACKS[compression]} {source} | millrace run --format {form} -- ...; else {other.hint}",
    )


def build_mismatch_error(
    tool: str,
    extent: RecordExtent,
    found: MismatchedOutput,
    *,
    repeatable: bool,
    packed: InputUse | None = None,
    view: str = "",
) -> UnverifiedError:
    """Build the error for a tool that gave other bytes when the records of ``extent`` were run again.

    Args:
        repeatable: Whether the tool gives the same bytes when it runs on the same pieces.
        view: Description of the tool's view of the working folder; empty: the folder itself.
        packed: An input that was compressed to other bytes for the second run.
    """
    look = explain_difference(found.then, found.now, repeatable=repeatable)
    if packed and packed.packed and not repeatable:
        look = _suggest_unpacking(packed.path, packed.packed, packed.format, look)
    if view and not repeatable:
        look = DifferenceExplanation(
            f"the tool looks at more of its folder than links to what is in it show it ({view}), or {look.what}",
            f"if it does, work in a folder that millrace doctor finds well; else {look.hint}",
        )
    at, difference = found.records, found.difference
    how = "in other pieces" if repeatable else "as they were"
    records = f"record {at[0] + 1}" if at[1] == at[0] + 1 else f"records {at[0] + 1} to {at[1]}"
    return UnverifiedError(
        f"verification failed: {tool} gave other bytes for records {extent[0] + 1} to {extent[1]} when they were run "
        f"again {how}\n"
        f"  {found.output}: first in line {difference.line + 1} of what they give, at {records}\n"
        f"    committed: {format_line(difference.then)}\n"
        f"    run again: {format_line(difference.now)}\n"
        f"  it looks like: {look.what}",
        f"{look.hint}; --verify 0 lets the output through as it is, which is not the serial tool's",
    )


def build_overwrite_error(tool: str, before: Sequence[str]) -> UnverifiedError:
    """Build the error for a tool that writes other bytes where its outputs already exist.

    Args:
        before: The outputs that already exist.
    """
    return UnverifiedError(
        f"{', '.join(before)}: is there already, and {tool} does not simply write over it: it adds to it, reads it, keeps it, or fails",
        f"it is as it was, and nothing was written: remove it with rm {shlex.join(before)}, or name another output; "
        "--verify 0 writes over it all the same",
    )


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
