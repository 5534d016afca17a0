"""Classification of failed tasks by their endings. Pure."""

from __future__ import annotations

import signal
from collections.abc import Container

from millrace.schedule.protocol import AttemptResult
from millrace.tasks import TaskEnded, TaskEnding

_RESULTS = {
    TaskEnding.CHANGED: AttemptResult.CHANGED,
    TaskEnding.STALLED: AttemptResult.STALLED,
    TaskEnding.TIMEOUT: AttemptResult.TIMED_OUT,
}


def classify_failure(ended: TaskEnded, fatal_statuses: Container[int]) -> AttemptResult:
    """Return the result of an attempt that has a failed task.

    Args:
        fatal_statuses: Exit statuses of the tool that say "not the record's fault".
    """
    if ended.ending is TaskEnding.FILESYSTEM_GONE:
        return AttemptResult.FILESYSTEM_GONE
    if ended.out_of_memory:
        return AttemptResult.OUT_OF_MEMORY_SHARED if ended.side_by_side > 1 else AttemptResult.OUT_OF_MEMORY_ALONE
    if ended.ending is TaskEnding.SPAWN or ended.exit_status in fatal_statuses or is_file_too_large(ended):
        return AttemptResult.FATAL
    return _RESULTS.get(ended.ending, AttemptResult.FAILED)


def is_file_too_large(ended: TaskEnded) -> bool:
    """Tell whether the tool, or a process that its shell started, died at the system's limit of file sizes."""
    return signal.SIGXFSZ in (ended.signal, (ended.exit_status or 0) - 128)


#: Signals that the system sends for invalid operations; a shell adds 128.
_CRASHES = (signal.SIGILL, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGSEGV)


def has_tool_crashed(ended: TaskEnded) -> bool:
    """Tell whether the tool, or a process that its shell started, died by an invalid operation."""
    return ended.ending is TaskEnding.FAILED and (
        ended.signal in _CRASHES or (ended.exit_status or 0) - 128 in _CRASHES
    )
