"""Who has something: a process, written into a file so that those of other machines can tell whether it lives."""

from __future__ import annotations

import json
import os
from pathlib import Path

import msgspec

#: Seconds of silence after which the owner on another machine is taken for dead.
STALE_SECONDS = 30.0


class Owner(msgspec.Struct, frozen=True):
    """A process, as others can find it."""

    pid: int
    #: Clock ticks between the start of the machine and that of the process: numbers are used again.
    started: int
    host: str
    #: Names the table of processes in which the number counts, wherever in the world.
    place: str
    #: What all processes of a supervised job share; empty: it is none.
    job: str = ""

    def is_alive_here(self) -> bool:
        """Whether it lives; only for one of this `place`."""
        return started(self.pid) == self.started


def of_process(pid: int, job: str = "") -> Owner:
    """A process of this machine as an owner."""
    return Owner(pid, started(pid) or 0, os.uname().nodename, place(), job)


def place() -> str:
    """What tells this table of processes from all others: the kernel that runs, and the name space in it."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return os.uname().nodename


def started(pid: int) -> int | None:
    """When a process was started, in clock ticks; None: there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    state, *fields = text[text.rindex(b")") + 2 :].split()
    return None if state in b"ZX" else int(fields[18])


def write_owner(path: Path) -> None:
    """Say in a file of its own that this process has something."""
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        write(descriptor, of_process(os.getpid()))
    finally:
        os.close(descriptor)


def owner_lives(path: Path) -> bool:
    """Whether the process lives, as far as can be told, that `write_owner` was called by."""
    owner = read(path)
    return owner is not None and (owner.place != place() or owner.is_alive_here())


def read(path: Path) -> Owner | None:
    """Who has the file, or had it when it died."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # should it be a pipe
    except OSError:
        return None
    try:
        return holder(descriptor)
    finally:
        os.close(descriptor)


def holder(descriptor: int) -> Owner | None:
    """Who has the open file, by what it says."""
    try:
        return Owner(**json.loads(os.pread(descriptor, 4096, 0)))
    except (OSError, ValueError, TypeError):
        return None  # nobody, or a disk that was full


def write(descriptor: int, owner: Owner) -> None:
    """Let the open file say who has it."""
    text = json.dumps(msgspec.structs.asdict(owner)).encode() + b"\n"
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, text, 0)
