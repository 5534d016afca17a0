"""The owner of a lock file: a process, described so that other machines can tell whether it is alive.

One process at a time reads and writes the lock file, by a gate file beside it; a killed process leaves no closed
gate. The Python program that called a run (``millrace.api``) is described in the same way, to find out that it has
died.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import stat
import time
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from millrace.core.wait_loop import wait_until

#: Seconds of silence after which the owner on another machine is taken for dead.
STALE_SECONDS = 30.0


class LockOwner(msgspec.Struct, frozen=True):
    """A process, identified for all machines."""

    pid: int
    #: Start of the process in clock ticks since the start of the machine: process numbers are reused.
    started: int
    host: str
    #: World-wide name of the process table to which the number belongs.
    place: str
    #: Name shared by all processes of a supervised job; empty: none.
    job: str = ""

    def is_alive_here(self) -> bool:
        """Tell whether the process is alive; valid only if its ``identify_process_table`` is this one."""
        return read_start_ticks(self.pid) == self.started


def make_process_owner(pid: int, job: str = "") -> LockOwner:
    """Describe a process of this machine as an owner."""
    return LockOwner(pid, read_start_ticks(pid) or 0, os.uname().nodename, identify_process_table(), job)


def identify_process_table() -> str:
    """Return the name of this process table: the boot id of the kernel, and the PID namespace."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return os.uname().nodename


def read_start_ticks(pid: int) -> int | None:
    """Return the start time of a process in clock ticks; None: it does not exist."""
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    state, *fields = text[text.rindex(b")") + 2 :].split()
    return None if state in b"ZX" else int(fields[18])


def write_owner(path: Path) -> None:
    """Write a file of its own that names this process as the owner."""
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        write_open_owner(descriptor, make_process_owner(os.getpid()))
    finally:
        os.close(descriptor)


def is_owner_alive(path: Path) -> bool:
    """Tell whether the process that called ``write_owner`` is alive, as far as can be told."""
    owner = read_owner(path)
    return owner is not None and (owner.place != identify_process_table() or owner.is_alive_here())


def read_owner(path: Path) -> LockOwner | None:
    """Read the owner of a file, alive or dead; None: it names none."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # in case it is a pipe
    except OSError:
        return None
    try:
        return read_open_owner(descriptor)
    finally:
        os.close(descriptor)


def read_open_owner(descriptor: int) -> LockOwner | None:
    """Read the owner from an open file."""
    try:
        return LockOwner(**json.loads(os.pread(descriptor, 4096, 0)))
    except (OSError, ValueError, TypeError):
        return None  # empty, or cut off by a full disk


def write_open_owner(descriptor: int, owner: LockOwner) -> None:
    """Write the owner into an open file."""
    text = json.dumps(msgspec.structs.asdict(owner)).encode() + b"\n"
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, text, 0)


#: Seconds between two tries to make the gate file.
POLL_INTERVAL_SECONDS = 0.01


@contextmanager
def hold_gate(path: Path) -> Iterator[float]:
    """Let one process at a time read and write the file; yields the time by the filesystem's clock."""
    gate = path.with_name(f"{path.name}.taking")
    descriptor = -1

    def try_create() -> bool:
        nonlocal descriptor
        try:
            descriptor = os.open(gate, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            _remove_dead_gate(gate)
        return descriptor >= 0

    wait_until(try_create, nap=POLL_INTERVAL_SECONDS)
    try:
        with suppress(OSError):
            write_open_owner(descriptor, make_process_owner(os.getpid()))
        yield os.fstat(descriptor).st_mtime
    finally:
        os.close(descriptor)
        gate.unlink(missing_ok=True)


def _remove_dead_gate(gate: Path) -> None:
    """Remove the gate file of a process that was killed while it held the gate.

    Raises:
        IsADirectoryError: It is a folder, which Millrace never removes.
    """
    try:
        about = gate.lstat()
    except OSError:
        return  # it was removed meanwhile
    if stat.S_ISDIR(about.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(gate))
    dead = not stat.S_ISREG(about.st_mode)  # a link or a pipe: no process of ours has made it
    with suppress(OSError):
        owner, age = read_owner(gate), time.time() - about.st_mtime
        dead = dead or (
            not owner.is_alive_here() if owner and owner.place == identify_process_table() else age > STALE_SECONDS
        )
        if dead:
            gate.unlink()


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
