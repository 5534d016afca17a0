"""The Python program that called a run (``millrace.api``), and the check whether it has died."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, MutableMapping
from contextlib import suppress
from pathlib import Path

from millrace.lock_owner import LockOwner, make_process_owner, read_start_ticks
from millrace.waiting import wait_until

#: Environment variable that the calling program sets for a run: its process id and start time.
VARIABLE = "MILLRACE_CALLER"

#: Seconds after which a second SIGTERM is sent to a run, and after which waiting for its end stops.
PATIENCE_SECONDS, MAX_WAIT_SECONDS = 10.0, 120.0


def identify_caller() -> str:
    """Return the value of ``VARIABLE`` for runs that this process calls."""
    caller = make_process_owner(os.getpid())
    return f"{caller.pid} {caller.started}"


def remove_caller(environ: MutableMapping[str, str]) -> None:
    """Remove the caller from the environment that tools get; ``/proc`` still has it for ``has_lost_caller``."""
    environ.pop(VARIABLE, None)


def has_lost_caller(owner: LockOwner) -> bool:
    """Tell whether the program that called the run of ``owner`` has died; False for a process of another machine."""
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
                return read_start_ticks(pid) != start
    return False


def stop_lost_run(owner: LockOwner, is_over: Callable[[], bool]) -> bool:
    """Send SIGTERM to a run that has lost its caller, again after 10 s, and return whether it ended within 120 s."""
    for seconds in (PATIENCE_SECONDS, MAX_WAIT_SECONDS - PATIENCE_SECONDS):
        if owner.is_alive_here():
            with suppress(ProcessLookupError, PermissionError):
                os.kill(owner.pid, signal.SIGTERM)
        if wait_until(is_over, seconds, nap=0.1):
            return True
    return False
