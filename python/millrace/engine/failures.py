"""Errors that end a run early, with messages for the user."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable

from millrace.engine.quarantine import QuarantineWriter
from millrace.engine.tool_messages import failure_words, signature
from millrace.errors import ExitCode, MillraceError, ToolError, UnequalError
from millrace.model import ToolUse
from millrace.node import workdir
from millrace.node.batch import Batch
from millrace.plan.plan import Plan
from millrace.schedule.protocol import Failure, Result, Stop, Why
from millrace.schedule.quarantine_limit import QuarantineLimit
from millrace.schedule.results import has_died, is_too_large, result_of
from millrace.tasks import Ended, Task


def failure_of(task: Task, ended: Ended, plan: Plan, names: Iterable[str]) -> Failure:
    """Build the failure of a task for the scheduler.

    Args:
        names: Words that may name the record in the tool's messages.
    """
    use = plan.use
    # On a mounted filesystem, a database may be unreadable for a moment only.
    fatal = () if any(file.mount for file in plan.world) else use.fatal_statuses
    where = f" in fragment {task.fragment} of {use.n_fragments} of the database" if task.fragment else ""
    return Failure(
        result_of(ended, fatal),
        signature(ended, names),
        failure_words(ended, plan.job.record_timeout, task.cpu_limit_seconds, where),
        ended.exit_status if ended.signal is None else None,
        has_died(ended),
        is_too_large(ended),
    )


def stopped(
    stop: Stop,
    batch: Batch,
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
    if stop.why is Why.MEMORY:
        return too_little_memory(tool, reason)
    if stop.why is Why.MANY:
        return too_many_failures(use, tool, limit, failure)
    if stop.why is Why.TOOL:
        return ToolError(
            f"{tool} cannot do this work: {reason}\n  command: {quarantine.shown(argv)}",
            _hint(
                use, failure,
                "this failed in the same way for every record tried, so it is taken for a fault of the command, not of a record",
            ),
        )  # fmt: skip
    error = MillraceError(
        f"record {batch.first + 1} ({quarantine.name(batch)}) failed: {reason}",
        "with --on-failure quarantine the run goes on without it; the same command resumes",
    )
    error.exit_code = ExitCode.STOPPED
    return error


def too_many_failures(use: ToolUse, tool: str, limit: QuarantineLimit, failure: Failure) -> MillraceError:
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
        _hint(
            use, failure,
            "that many failures are taken for a fault of the command or the machine, not of records; once it is gone, the same "
            "command with --retry-quarantined resumes, and tries those given up again; --max-quarantined allows more",
        ),
    )  # fmt: skip


def _hint(use: ToolUse, failure: Failure, other: str) -> str:
    """Choose the hint for a tool that fails on too many records: ``other``, or a better one for some failures."""
    if failure.result is Result.CHANGED:
        return "let it leave its input as it is, and write the result to standard output or to another file"
    if failure.is_too_large:
        return "a file may not become so large here: raise the limit (ulimit -f), then type the same command again: it resumes"
    status, is_silent = failure.exit_status, "\n" not in failure.reason
    is_unclear = is_silent and failure.result is Result.FAILED and status not in (None, 0, *use.ok_statuses)
    if use.adapter == "generic" and is_unclear:
        return f"if exit status {status} is no failure (as where nothing is found), say so with --ok-status {status}; else, {other}"
    return other


def too_little_memory(tool: str, reason: str) -> MillraceError:
    """Build the error for a tool that lacks memory for most records."""
    return MillraceError(
        f"{tool} needs more memory than there is: {reason}",
        "give it more (in Slurm: --mem), then type the same command again: it resumes",
    )


def disk_full(plan: Plan, detail: str) -> MillraceError:
    """Build the error for a full disk, with the place and the hint that the same command resumes."""
    if os.strerror(errno.EFBIG) in detail:
        return MillraceError(
            f"a file may not become so large here: {detail}",
            "raise the limit (ulimit -f), then type the same command again: it resumes",
        )
    if f"/{workdir.prefix()}" in detail:
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


def unequal(tool: str, batch: Batch, ended: Ended) -> MillraceError:
    """Build the error for a tool that gave other bytes in a fork than in a new process, with results already kept."""
    return UnequalError(
        f"{tool} gave other bytes for records {batch.first + 1} to {batch.last} in a fork of a process that had waited for "
        f"its input\n  {ended.detail}",
        "it cannot run warm, and nothing of this run is kept: type the same command without --warm",
    )


def not_kept(ended: Ended, plan: Plan) -> MillraceError:
    """Build the error for a result that could not be committed to the journal."""
    if ended.disk_full:
        return disk_full(plan, ended.detail)
    return MillraceError(f"a result could not be kept: {ended.detail}", resumes(ended.detail))


def resumes(problem: str) -> str:
    """Choose the hint for an error of the operating system after which the run can resume."""
    if os.strerror(errno.EMFILE) in problem:
        return "raise the limit of open files (ulimit -n), then type the same command again: it resumes"
    if "private directory" in problem:
        return "name inputs and outputs by paths below the working directory, as sub/q.fa: tasks have these as you type them"
    return "nothing is lost: the same command resumes"
