"""The Python program that has called a run (`millrace.api`), and whether a run has lost it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, MutableMapping
from contextlib import suppress
from pathlib import Path

from millrace.lock_owner import Owner, of_process, started
from millrace.waiting import until

#: Set in the environment of a run by the program that calls it: its process id, and when it was started.
VARIABLE = "MILLRACE_CALLER"

#: Seconds after which a run that was asked to stop is told to stop now, and after which it is waited for no longer.
PATIENCE_SECONDS, LONGEST_SECONDS = 10.0, 120.0


def named() -> str:
    """Return the value of `VARIABLE` for runs that this process calls."""
    caller = of_process(os.getpid())
    return f"{caller.pid} {caller.started}"


def forget(environ: MutableMapping[str, str]) -> None:
    """Take the caller out of the environment that tools get; the kernel still shows it to `is_lost_by`."""
    environ.pop(VARIABLE, None)


def is_lost_by(owner: Owner) -> bool:
    """Whether the program that called the run of this process, on this machine, has died: nobody reads its results."""
    if not owner.is_alive_here():
        return False
    try:
        variables = Path(f"/proc/{owner.pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
    name = f"{VARIABLE}=".encode()
    for variable in variables:
        if variable.startswith(name):
            with suppress(ValueError):
                pid, start = map(int, variable.removeprefix(name).split())
                return started(pid) != start
    return False


def end_lost(owner: Owner, is_over: Callable[[], bool]) -> bool:
    """Ask a run that `is_lost_by` its caller to stop, and wait for its end; returns whether it has ended."""
    for seconds in (PATIENCE_SECONDS, LONGEST_SECONDS - PATIENCE_SECONDS):
        if owner.is_alive_here():
            with suppress(ProcessLookupError, PermissionError):
                os.kill(owner.pid, signal.SIGTERM)
        if until(is_over, seconds, nap=0.1):
            return True
    return False
