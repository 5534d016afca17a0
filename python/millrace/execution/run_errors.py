"""Errors that end a run early, and messages of tools, in words for the user.

Each warning of a tool is passed on once and counted.
"""

from __future__ import annotations

import errno
import os
import re
import signal
from collections import Counter
from collections.abc import Callable, Iterable

from millrace.core.errors import ExitCode, MillraceError, ToolError, UnequalError
from millrace.core.tasks import SlotTask, TaskEnded, TaskEnding
from millrace.core.text_format import format_records
from millrace.core.tool_use import ToolUse
from millrace.execution.quarantine_writer import QuarantineWriter
from millrace.node import work_dir
from millrace.node.batch_files import SpooledBatch
from millrace.planning.run_plan import RunPlan
from millrace.scheduler.limits import QuarantineLimit
from millrace.scheduler.protocol import (
    AttemptResult,
    StopReason,
    StopRun,
    TaskFailure,
    classify_failure,
    has_tool_crashed,
    is_file_too_large,
)

#: Most different lines of standard error that are passed on; more are only counted.
MAX_PASSED_LINES = 20

#: Escape sequences of colours are removed; other control characters become a question mark.
_COLOUR = r"\x1b\[[0-9;]*[A-Za-z]"
_CONTROL = r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]"

#: Fewest letters of a record's name that is replaced anywhere in a message, and of one replaced as a whole word.
MIN_NAME_LETTERS, MIN_WORD_LETTERS = 6, 3

#: Most lines of a failure's standard error that are shown, counted from its end.
MAX_SHOWN_LINES = 8


class ToolMessages:
    """Filter that passes on each different line of the tools' standard error once.

    Lines that differ only in numbers count as one. A line with numbers may be the sum of one task, so it names the
    records of that task.
    """

    def __init__(self, tool: str, message: Callable[[str], None]) -> None:
        self.tool, self._message = tool.rsplit("/", 1)[-1], message
        self.counts: Counter[str] = Counter()
        self._first: dict[str, str] = {}
        self._extra: set[str] = set()
        self._results: Counter[int] = Counter()
        #: Lines for which tasks gave different numbers.
        self._of_tasks: set[str] = set()

    def add_stderr(self, stderr: bytes, first: int, last: int) -> None:
        """Add the standard error of the task on the records ``[first, last)``."""
        for line in split_terminal_lines(stderr):
            key = re.sub(r"\d+", "#", line)
            self.counts[key] += 1
            if key not in self._first:
                self._first[key] = line
                if len(self._first) <= MAX_PASSED_LINES:
                    of = f", of {format_records(first, last)}" if key != line else ""
                    self._message(f"{self.tool}{of}: {line}")
            elif line != self._first[key]:
                self._of_tasks.add(key)

    def add_exit_status(self, status: int) -> None:
        """Count a task that ended with a nonzero exit status that is a result."""
        self._results[status] += 1

    def list_result_statuses(self) -> list[tuple[str, int]]:
        """Return (text, count) for each nonzero exit status that is a result."""
        return [
            (f"exit status {status}, which is a result; the exit code of the run does not show it", count)
            for status, count in sorted(self._results.items())
        ]

    def select_new_paths(self, paths: Iterable[str]) -> list[str]:
        """Return those of ``paths`` that were not reported yet."""
        return [path for path in paths if path not in self._extra]

    def report_extra_files(self, paths: Iterable[str]) -> None:
        """Report once that the tool wrote files that no output collects."""
        for path in paths:
            if path not in self._extra and len(self._extra) < MAX_PASSED_LINES:
                self._extra.add(path)
                self._message(f"{self.tool} also wrote {path}, which is not kept; name it with --output to collect it")

    def list_repeated_lines(self) -> list[tuple[str, int]]:
        """Return (line, count) of all different lines, most frequent first."""
        return [(self._format_line(key), count) for key, count in self.counts.most_common()]

    def _format_line(self, key: str) -> str:
        line = self._first[key]
        if key == line:
            return line
        if key in self._of_tasks:
            return f"{line} [of one task; others gave other numbers]"
        return f"{line} [of one task{' each' if self.counts[key] > 1 else ''}]"


def split_terminal_lines(stderr: bytes) -> list[str]:
    """Return the lines as a terminal would show them, without text that a carriage return overwrote."""
    if not stderr:
        return []
    text = stderr.decode(errors="replace")
    text = re.sub(_CONTROL, "?", re.sub(_COLOUR, "", text))
    kept = (line.rstrip("\r").rsplit("\r", 1)[-1].rstrip() for line in text.split("\n"))
    return [line for line in kept if line]


def describe_failure(
    event: TaskEnded, record_timeout: float | None, cpu_limit: float | None = None, where: str = ""
) -> str:
    """Describe why an attempt failed, in one line, followed by the end of its standard error.

    Args:
        cpu_limit: CPU seconds that the task was allowed, from the cost of records of its size.
        where: The part that failed, if not the whole task.
    """
    if event.ending is TaskEnding.TIMEOUT and cpu_limit:
        how = (
            f"ended after {event.cpu_seconds:.0f} s of CPU, 100 times what the slowest records let expect of its size"
            " (--record-timeout SECONDS allows more)"
        )
    elif event.ending is TaskEnding.TIMEOUT:
        how = f"took longer than {record_timeout:g} s a record"
    elif event.ending is TaskEnding.STALLED:
        how = f"stood still: {event.detail}"
    elif event.ending is TaskEnding.MISSING:
        how = f"exit status {event.exit_status or 0}, but it did not write {event.detail}"
    elif event.ending is TaskEnding.CHANGED:
        how = f"it changes its input {event.detail}"
    elif event.ending in (TaskEnding.ERROR_REPORTED, TaskEnding.UNJOINABLE):
        how = f"exit status {event.exit_status or 0}, but {event.detail}"
    elif event.ending is TaskEnding.SPAWN:
        how = f"cannot be started: {event.detail}"
    elif event.signal is not None:
        how = f"killed by {name_signal(event.signal)}"
    else:
        how = f"exit status {event.exit_status}"
    if event.out_of_memory:
        how += (
            ", as memory ran out"
            if event.signal is not None
            else " (a process that it had started was killed, as memory ran out)"
        )
        how += " though nothing ran beside it" if event.side_by_side <= 1 else ""
    said = split_terminal_lines(event.stderr)
    return "\n".join([how + where, *(f"  {line}" for line in said[-MAX_SHOWN_LINES:])])


def name_signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def build_failure_signature(event: TaskEnded, names: Iterable[str]) -> str:
    """Return the text that failures of the same kind share: without names of records, numbers and paths."""
    text = "\n".join(split_terminal_lines(event.stderr))
    for name in sorted(names, key=len, reverse=True):
        if len(name) >= MIN_NAME_LETTERS:
            text = text.replace(name, "#")
        elif len(name) >= MIN_WORD_LETTERS:  # which could be part of another word
            text = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", "#", text)
    text = re.sub(r"\S*/\S*", "", text)
    return f"{event.ending.value} {event.exit_status} {event.signal} " + re.sub(r"\d+", "#", text)


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
    if f"/{work_dir.build_name_prefix()}" in detail:
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
