"""Trust in tools: whether results of a tool, a version or a script need no check by a second execution."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

from millrace.adapters.known_refusals import SCRIPTED
from millrace.core.errors import RefusedError
from millrace.core.job import JobSpec
from millrace.core.tool_use import ToolUse, UserCommand


def is_unknown_tool(use: ToolUse) -> bool:
    """Tell whether some options of the tool may treat records dependently, as far as Millrace knows."""
    return use.adapter in ("generic", "records") or use.adapter.startswith("file:") or use.is_doubtful


def is_untested_version(use: ToolUse) -> bool:
    """Tell whether the adapter was compared only with serial runs of other versions of the tool."""
    return bool(use.tested) and not any(
        re.search(rf"(?<![\d.]){re.escape(version)}(?!\.?\d)", use.version) for version in use.tested
    )


def explain_doubts(use: ToolUse, tool: str) -> str:
    """Explain why part of the input is verified even without ``--verify``; empty: it is not."""
    if use.is_doubtful:
        return f"not every option of {tool} was compared"
    if is_unknown_tool(use):
        return f"{tool} is not known to millrace"
    if is_untested_version(use):
        return f"{use.version or f'{tool}, which does not tell its version,'} was never tested with millrace"
    return ""


def check_script(job: JobSpec, use: ToolUse, command: UserCommand) -> None:
    """Refuse a script of awk, sed, perl or jq, unless it certainly treats each line by itself or the user says so.

    Raises:
        RefusedError: The script may keep state between records, count them, or read records of another file.
    """
    program = Path(command.argv[0]).name
    formats = {item.format for item in use.inputs}
    if use.adapter != "generic" or "files" in formats or job.independent or program not in SCRIPTED:
        return
    from millrace.adapters.one_liners import is_certainly_by_line, is_script_command  # no other start is to wait for it

    def read_text(name: str) -> str:
        with suppress(OSError):
            return (command.cwd / name).read_text(errors="replace")
        return ""

    arguments, inputs = command.argv[1:], [item.path for item in use.inputs]
    # A line may reach into the next record where records do not end with lines.
    is_of_lines = "nul" not in formats
    if not is_script_command(program, arguments) or (
        is_of_lines and is_certainly_by_line(program, arguments, inputs, read_text)
    ):
        return
    raise RefusedError(
        f"{program}: it is not certain that this script treats each record by itself: it may count lines or keep something "
        "from one to the next",
        "if each record is treated by itself, say so with --independent; both ends and a sample are then run again, cut "
        "elsewhere. If the script asks for the first line (NR == 1, 1d), name a format with a header, too: "
        "--input FILE:lines+header. If it needs the whole input, let millrace run the step before it, and pipe the result: "
        f"millrace run -- ... | {program}",
    )


def describe_untested_version(use: ToolUse, job: JobSpec, tool: str) -> tuple[str, ...]:
    """Return a note about a version that was never tested; none if it was."""
    if not is_untested_version(use):
        return ()
    check = "" if job.verify == 0 else "; parts of the input are run again, cut elsewhere, and must give the same bytes"
    return (f"{explain_doubts(use, tool)} (but {', '.join(use.tested)} were){check}",)


def describe_check(job: JobSpec, use: ToolUse) -> str:
    """Describe how the plan verifies that the output does not depend on the cuts; empty: no check is needed."""
    if job.verify == 0 or (job.verify is None and not is_unknown_tool(use) and not is_untested_version(use)):
        return "check: none, as asked with --verify 0" if is_unknown_tool(use) else ""
    share = "a sample" if job.verify is None else f"{job.verify:.0%} of the input"
    return f"check: both ends of the input and {share} are run again, cut elsewhere, and must give the same bytes"
