"""The owner of a file: a process, described so that processes on other machines can tell whether it is alive."""

from __future__ import annotations

import json
import os
from pathlib import Path

import msgspec

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
