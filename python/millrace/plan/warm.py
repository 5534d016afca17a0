"""Warm start of a tool (``millrace run --warm``): started once a slot, and forked for each task."""

from __future__ import annotations

import msgspec

from millrace.errors import RefusedError
from millrace.job import JobSpec
from millrace.model import ToolUse


def apply_warm_start(job: JobSpec, use: ToolUse) -> tuple[ToolUse, str, str]:
    """Mark a use for a warm start; return it, a note for the plan, and a warning for the start of the run.

    Raises:
        RefusedError: The program stays alive anyway.
    """
    if not job.warm:
        return use, "", ""
    if use.served:
        raise RefusedError("--warm with --records: the program stays alive anyway", "leave --warm out")
    if why := _explain_cold_start(use):
        return use, "", f"it cannot stay warm (--warm), and is started for each task: {why}"
    note = "warm: one process a slot starts, waits where it first touches its input, and is forked for each task"
    return msgspec.structs.replace(use, warm=True), note, ""


def _explain_cold_start(use: ToolUse) -> str:
    """Explain why the tool cannot stay warm, in words; empty: no reason is known."""
    if use.fragmented:
        return "its database is searched in fragments (--fragments 1 searches it whole)"
    if any(item.stdin for item in use.inputs):
        return "it reads its standard input, not a file"
    if any(item.format == "files" for item in use.inputs) or any(output.layout == "record" for output in use.outputs):
        return "each task has files of other names"
    return ""
