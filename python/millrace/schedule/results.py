"""Classification of failed tasks by their endings. Pure."""

from __future__ import annotations

import signal
from collections.abc import Container

from millrace.schedule.protocol import Result
from millrace.tasks import Ended, Ending

_RESULTS = {Ending.CHANGED: Result.CHANGED, Ending.STILL: Result.STILL, Ending.TIMEOUT: Result.TIMED_OUT}


def result_of(ended: Ended, fatal_statuses: Container[int]) -> Result:
    """Return the result of an attempt that has a failed task.

    Args:
        fatal_statuses: Exit statuses of the tool that say "not the record's fault".
    """
    if ended.ending is Ending.AWAY:
        return Result.AWAY
    if ended.out_of_memory:
        return Result.CROWDED if ended.side_by_side > 1 else Result.STARVED
    if ended.ending is Ending.SPAWN or ended.exit_status in fatal_statuses or is_too_large(ended):
        return Result.FATAL
    return _RESULTS.get(ended.ending, Result.FAILED)


def is_too_large(ended: Ended) -> bool:
    """Tell whether the tool, or a process that its shell started, died at the system's limit of file sizes."""
    return signal.SIGXFSZ in (ended.signal, (ended.exit_status or 0) - 128)


#: Signals that the system sends for invalid operations; a shell adds 128.
_CRASHES = (signal.SIGILL, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGSEGV)


def has_died(ended: Ended) -> bool:
    """Tell whether the tool, or a process that its shell started, died by an invalid operation."""
    return ended.ending is Ending.FAILED and (ended.signal in _CRASHES or (ended.exit_status or 0) - 128 in _CRASHES)
