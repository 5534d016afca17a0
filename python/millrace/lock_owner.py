"""The owner of a file: a process, described so that processes on other machines can tell whether it is alive."""

from __future__ import annotations

import json
import os
from pathlib import Path

import msgspec

#: Seconds of silence after which the owner on another machine is taken for dead.
STALE_SECONDS = 30.0


class Owner(msgspec.Struct, frozen=True):
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
        """Tell whether the process is alive; valid only if its ``place`` is this one."""
        return started(self.pid) == self.started


def of_process(pid: int, job: str = "") -> Owner:
    """Describe a process of this machine as an owner."""
    return Owner(pid, started(pid) or 0, os.uname().nodename, place(), job)


def place() -> str:
    """Return the name of this process table: the boot id of the kernel, and the PID namespace."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return os.uname().nodename


def started(pid: int) -> int | None:
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
        write(descriptor, of_process(os.getpid()))
    finally:
        os.close(descriptor)


def owner_lives(path: Path) -> bool:
    """Tell whether the process that called ``write_owner`` is alive, as far as can be told."""
    owner = read(path)
    return owner is not None and (owner.place != place() or owner.is_alive_here())


def read(path: Path) -> Owner | None:
    """Read the owner of a file, alive or dead; None: it names none."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # in case it is a pipe
    except OSError:
        return None
    try:
        return holder(descriptor)
    finally:
        os.close(descriptor)


def holder(descriptor: int) -> Owner | None:
    """Read the owner from an open file."""
    try:
        return Owner(**json.loads(os.pread(descriptor, 4096, 0)))
    except (OSError, ValueError, TypeError):
        return None  # empty, or cut off by a full disk


def write(descriptor: int, owner: Owner) -> None:
    """Write the owner into an open file."""
    text = json.dumps(msgspec.structs.asdict(owner)).encode() + b"\n"
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, text, 0)
