"""Errors that end a run early, with messages for the user."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable

from millrace.engine.quarantine import QuarantineWriter
from millrace.engine.tool_messages import build_failure_signature, describe_failure
from millrace.errors import ExitCode, MillraceError, ToolError, UnequalError
from millrace.model import ToolUse
from millrace.node import workdir
from millrace.node.batch import SpooledBatch
from millrace.plan.plan import RunPlan
from millrace.schedule.protocol import AttemptResult, StopReason, StopRun, TaskFailure
from millrace.schedule.quarantine_limit import QuarantineLimit
from millrace.schedule.results import classify_failure, has_tool_crashed, is_file_too_large
from millrace.tasks import SlotTask, TaskEnded


def build_failure(task: SlotTask, ended: TaskEnded, plan: RunPlan, names: Iterable[str]) -> TaskFailure:
    """Build the failure of a task for the scheduler.

    Args:
        names: Words that may name the record in the tool's messages.
    """
    use = plan.use
    # On a mounted filesystem, a database may be unreadable for a moment only.
    fatal = () if any(file.mount for file in plan.world) else use.fatal_statuses
    where = f" in fragment {task.fragment} of {use.n_fragments} of the database" if task.fragment else ""
    return TaskFailure(
        classify_failure(ended, fatal),
        build_failure_signature(ended, names),
        describe_failure(ended, plan.job.record_timeout, task.cpu_limit_seconds, where),
        ended.exit_status if ended.signal is None else None,
        has_tool_crashed(ended),
        is_file_too_large(ended),
    )


def build_stop_error(
    stop: StopRun,
    batch: SpooledBatch,
    argv: list[bytes],
    use: ToolUse,
    tool: str,
    limit: QuarantineLimit,
    quarantine: QuarantineWriter,
) -> MillraceError:
    """Build the error of a run that the scheduler stops.

    Args:
        argv: The tool's arguments for ``batch``.
    """
    failure, reason = stop.failure, stop.failure.reason
    if stop.why is StopReason.MEMORY:
        return build_memory_error(tool, reason)
    if stop.why is StopReason.MANY:
        return build_failure_limit_error(use, tool, limit, failure)
    if stop.why is StopReason.TOOL:
        return ToolError(
            f"{tool} cannot do this work: {reason}\n  command: {quarantine.format_command(argv)}",
            _choose_failure_hint(
                use, failure,
                "this failed in the same way for every record tried, so it is taken for a fault of the command, not of a record",
            ),
        )  # fmt: skip
    error = MillraceError(
        f"record {batch.first + 1} ({quarantine.read_record_name(batch)}) failed: {reason}",
        "with --on-failure quarantine the run goes on without it; the same command resumes",
    )
    error.exit_code = ExitCode.STOPPED
    return error


def build_failure_limit_error(use: ToolUse, tool: str, limit: QuarantineLimit, failure: TaskFailure) -> MillraceError:
    """Build the error for a tool that fails on more records than may be quarantined."""
    if failure.died and limit.most is None and limit.share is None:
        return ToolError(
            f"{tool} died on {limit.n_died:,} of {limit.n_ended:,} records, the last time so: {failure.reason}",
            "that is taken for a fault of the database (is a file of it cut off?), of the memory or of the tool, not of records; "
            "once it is gone, the same command with --retry-quarantined resumes, and tries those given up again; "
            "--max-quarantined allows more",
        )
    return ToolError(
        f"{tool} failed for {limit.n_given_up:,} of {limit.n_ended:,} records, the last time so: {failure.reason}",
        _choose_failure_hint(
            use, failure,
            "that many failures are taken for a fault of the command or the machine, not of records; once it is gone, the same "
            "command with --retry-quarantined resumes, and tries those given up again; --max-quarantined allows more",
        ),
    )  # fmt: skip


def _choose_failure_hint(use: ToolUse, failure: TaskFailure, other: str) -> str:
    """Choose the hint for a tool that fails on too many records: ``other``, or a better one for some failures."""
    if failure.result is AttemptResult.CHANGED:
        return "let it leave its input as it is, and write the result to standard output or to another file"
    if failure.is_too_large:
        return "a file may not become so large here: raise the limit (ulimit -f), then type the same command again: it resumes"
    status, is_silent = failure.exit_status, "\n" not in failure.reason
    is_unclear = is_silent and failure.result is AttemptResult.FAILED and status not in (None, 0, *use.ok_statuses)
    if use.adapter == "generic" and is_unclear:
        return f"if exit status {status} is no failure (as where nothing is found), say so with --ok-status {status}; else, {other}"
    return other


def build_memory_error(tool: str, reason: str) -> MillraceError:
    """Build the error for a tool that lacks memory for most records."""
    return MillraceError(
        f"{tool} needs more memory than there is: {reason}",
        "give it more (in Slurm: --mem), then type the same command again: it resumes",
    )


def build_disk_full_error(plan: RunPlan, detail: str) -> MillraceError:
    """Build the error for a full disk, with the place and the hint that the same command resumes."""
    if os.strerror(errno.EFBIG) in detail:
        return MillraceError(
            f"a file may not become so large here: {detail}",
            "raise the limit (ulimit -f), then type the same command again: it resumes",
        )
    if f"/{workdir.build_name_prefix()}" in detail:
        return MillraceError(
            f"no space left: {detail}",
            "the files of the tasks at work lie there: free some space, use fewer --slots or a smaller --batch, "
            "then type the same command again: it resumes",
        )
    place = f"on the disk of {plan.run_dir} (results need about twice the size of the output)"
    if detail.startswith("standard output"):
        place = "where standard output goes"
    return MillraceError(
        f"no space left: {detail}", f"free some space {place}, then type the same command again: it resumes"
    )


def build_unequal_error(tool: str, batch: SpooledBatch, ended: TaskEnded) -> MillraceError:
    """Build the error for a tool that gave other bytes in a fork than in a new process, with results already kept."""
    return UnequalError(
        f"{tool} gave other bytes for records {batch.first + 1} to {batch.last} in a fork of a process that had waited for "
        f"its input\n  {ended.detail}",
        "it cannot run warm, and nothing of this run is kept: type the same command without --warm",
    )


def build_commit_error(ended: TaskEnded, plan: RunPlan) -> MillraceError:
    """Build the error for a result that could not be committed to the journal."""
    if ended.disk_full:
        return build_disk_full_error(plan, ended.detail)
    return MillraceError(f"a result could not be kept: {ended.detail}", choose_resume_hint(ended.detail))


def choose_resume_hint(problem: str) -> str:
    """Choose the hint for an error of the operating system after which the run can resume."""
    if os.strerror(errno.EMFILE) in problem:
        return "raise the limit of open files (ulimit -n), then type the same command again: it resumes"
    if "private directory" in problem:
        return "name inputs and outputs by paths below the working directory, as sub/q.fa: tasks have these as you type them"
    return "nothing is lost: the same command resumes"
