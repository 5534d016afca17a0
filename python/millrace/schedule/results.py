"""What the end of a task says of its batch. Pure."""

from __future__ import annotations

import signal
from collections.abc import Container

from millrace.schedule.protocol import Result
from millrace.tasks import Ended, Ending

_RESULTS = {Ending.CHANGED: Result.CHANGED, Ending.STILL: Result.STILL, Ending.TIMEOUT: Result.TIMED_OUT}


def result_of(ended: Ended, fatal_statuses: Container[int]) -> Result:
    """What becomes of a batch of which a task failed.

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
    """Whether the tool, or what a shell has started for it, died as a file became larger than the limit of the system."""
    return signal.SIGXFSZ in (ended.signal, (ended.exit_status or 0) - 128)


#: What the system sends to a process that does what it cannot do; a shell adds 128.
_CRASHES = (signal.SIGILL, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGSEGV)


def has_died(ended: Ended) -> bool:
    """Whether the tool, or what a shell has started for it, died as it did what no program may do."""
    return ended.ending is Ending.FAILED and (ended.signal in _CRASHES or (ended.exit_status or 0) - 128 in _CRASHES)
