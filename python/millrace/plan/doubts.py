"""Whether a tool, its version, or a script, is known well enough to be believed unchecked."""

from __future__ import annotations

import re
from pathlib import Path

from millrace.errors import RefusedError
from millrace.formats import has_header
from millrace.job import Job
from millrace.model import Command, ToolUse

#: Formats whose records are lines, or what a script may be told to take for lines.
_LINES = frozenset(("lines", "lines+header", "csv", "csv+header", "vcf", "nul", "jsonl", "smiles"))


def is_unknown(use: ToolUse) -> bool:
    """Whether it is not known of all that the tool can be told whether it treats each record by itself."""
    return use.adapter in ("generic", "records") or use.adapter.startswith("file:") or use.is_doubtful


def is_untested(use: ToolUse) -> bool:
    """Whether the adapter's rules were compared with serial runs of other versions of the tool alone."""
    return bool(use.tested) and not any(
        re.search(rf"(?<![\d.]){re.escape(version)}(?!\.?\d)", use.version) for version in use.tested
    )


def doubts(use: ToolUse, tool: str) -> str:
    """Why some of the input is run again and compared, even if nobody asks for it; empty: no reason."""
    if use.is_doubtful:
        return f"not every option of {tool} was compared"
    if is_unknown(use):
        return f"{tool} is not known to millrace"
    if is_untested(use):
        return f"{use.version or f'{tool}, which does not tell its version,'} was never tested with millrace"
    return ""


def check_script(job: Job, use: ToolUse, command: Command) -> None:
    """Refuse a script that is seen to carry something from record to record, or to read records other than the input's.

    Where a comparison would show it, the user may say instead how much is compared.

    Raises:
        RefusedError: It does.
    """
    formats = {item.format for item in use.inputs}
    if use.adapter != "generic" or "files" in formats:
        return
    from millrace.tools.scripts.command import scripts_of  # no other start is to wait for it

    tool = Path(command.argv[0]).name
    scripts = scripts_of(tool, command.argv[1:], command.cwd)
    if not scripts:
        return
    ends = scripts.separator()
    if ends and formats & _LINES and not (ends.is_nul and formats & _LINES == {"nul"}):
        raise RefusedError(
            f"{tool}: reads records that are not lines ({ends.word}): a part of the lines may hold a part of a record",
            f"let it read lines, or let millrace run the step before it, and pipe the result: millrace run -- ... | {tool}",
        )
    alone = use.inputs[0] if len(use.inputs) == 1 else None
    path = alone.path if alone else None
    found = scripts.carried(below_header=alone is not None and has_header(alone.format), path=path)
    if not found or (found.is_local and formats.isdisjoint(_LINES)):
        return
    hint = f"let millrace run the step before it, and pipe the result: millrace run -- ... | {tool}"
    if alone and has_header(f"{alone.format}+header") and not scripts.carried(below_header=True, path=path):
        given = f"--format {alone.format}" if alone.path == "-" else f"--input {alone.path}:{alone.format}"
        hint = (
            f"if the first line is a header, say so: {given}+header, and --join header if the script writes it; "
            f"each part begins with it. Or {hint}"
        )
    if not found.is_counted:
        if job.verify is not None:
            return
        hint += (
            "; if it treats each record by itself all the same, add --verify 1: all of the input is run again, two batches "
            "at a time, cut elsewhere, which does not show what goes further"
        )
    raise RefusedError(
        f"{tool}: the script {found.why}: its results on parts do not make its result on the whole", hint
    )


def version_note(use: ToolUse, job: Job, tool: str) -> tuple[str, ...]:
    """What to say of a version that was never tested."""
    if not is_untested(use):
        return ()
    check = "" if job.verify == 0 else "; parts of the input are run again, cut elsewhere, and must give the same bytes"
    return (f"{doubts(use, tool)} (but {', '.join(use.tested)} were){check}",)


def check_note(job: Job, use: ToolUse) -> str:
    """How it is checked that the tool gives the same bytes wherever the input is cut, in words."""
    if job.verify == 0 or (job.verify is None and not is_unknown(use) and not is_untested(use)):
        return "check: none, as asked with --verify 0" if is_unknown(use) else ""
    share = "a sample" if job.verify is None else f"{job.verify:.0%} of the input"
    return f"check: both ends of the input and {share} are run again, cut elsewhere, and must give the same bytes"
