"""The files in a folder of copies: what their names say, and which processes have them."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import resource
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from millrace import lock

#: File whose lock is held by whoever changes what is in the folder.
LOCK = ".lock"

#: Ending of a copy that is being made.
PART = ".part"

#: Ending of one that is fetched from a server: if its maker dies, another one goes on with it.
FETCH = ".fetch"

#: Ending of what is known of a copy that was fetched.
ABOUT = ".about"


class File(Protocol):
    """What a copy is of."""

    @property
    def key(self) -> str: ...
    @property
    def size(self) -> int: ...
    @property
    def mtime_ns(self) -> int: ...
    @property
    def mode(self) -> int: ...


class NoRoom(OSError):
    """The copies do not fit."""

    def __init__(self, text: str) -> None:
        super().__init__(errno.ENOSPC, text)


@dataclass(frozen=True)
class Part:
    """A copy that is being made: its lock is held."""

    file: File
    path: Path
    descriptor: int


@dataclass(frozen=True)
class Busy:
    """Another process fetches the copy: its lock, to wait for."""

    descriptor: int

    def wait(self) -> None:
        """Wait until it has done so, or given up."""
        lock.wait_for(self.descriptor, fcntl.LOCK_SH)
        os.close(self.descriptor)


@dataclass(frozen=True)
class Entry:
    """A file in the folder of copies."""

    path: Path
    size: int
    atime_ns: int
    unwritten: int
    in_use: bool

    @property
    def is_whole(self) -> bool:
        return not self.path.name.endswith((PART, FETCH))


def entries(folder: Path) -> Iterator[Entry]:
    """Each copy, whole or not, and whether a process has it. Sweeps away what nobody can go on with."""
    names = os.listdir(folder)
    for name in names:
        if name == LOCK:
            continue
        if name.endswith(ABOUT):
            if not _is_needed(name, names):
                (folder / name).unlink()
        elif entry := _entry(folder / name):
            yield entry


def _is_needed(name: str, names: list[str]) -> bool:
    """Whether there is a copy, whole or not, of which this file tells."""
    copy = name[: -len(ABOUT)]
    return copy[1:] in names or any(each.startswith(f"{copy}.") and each.endswith(FETCH) for each in names)


def _entry(path: Path) -> Entry | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:  # in a group's folder: no copy of ours
        return None
    try:
        in_use = not _can_lock(descriptor)
        if not in_use and _is_of_no_use(path.name):
            path.unlink()
            return None
        about = os.fstat(descriptor)
        # What is reserved counts as if it were there.
        size = max(about.st_size, about.st_blocks * 512) if path.name.endswith(FETCH) else about.st_size
        return Entry(path, size, about.st_atime_ns, _unwritten(about), in_use)
    finally:
        os.close(descriptor)


def _is_of_no_use(name: str) -> bool:
    """Whether its maker's death ends it: always, or as what was not written when the power failed may be missing."""
    return name.endswith(PART) or (name.endswith(FETCH) and not name.endswith(boot() + FETCH))


def about_of(path: Path) -> Path:
    """Where it stands what is known of a copy."""
    return path.with_name(f".{path.name}{ABOUT}")


def remove(path: Path) -> None:
    """Remove a copy, and what is known of it."""
    path.unlink()
    about_of(path).unlink(missing_ok=True)


def free_bytes(folder: Path) -> int:
    """Room that is left to this user on the disk of a folder."""
    about = os.statvfs(folder)
    return about.f_bavail * about.f_frsize


def reserve(descriptor: int, size: int) -> None:
    """Take the room for a file before it is written, without making it longer; where that cannot be, go on.

    Raises:
        OSError: There is no such room.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.fallocate(descriptor, 1, ctypes.c_long(0), ctypes.c_long(size)) and ctypes.get_errno() == errno.ENOSPC:
        raise NoRoom(f"no room for {size} bytes of databases")


def boot() -> str:
    """Tells this start of the machine from others."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text()[:8]
    except OSError:
        return os.urandom(4).hex()


def high(descriptor: int) -> int:
    """Move a descriptor above the soft limit, if it is allowed there: a database may have more files than the limit.

    The limit stays as it is for all others, and for the tools.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, soft)
    except OSError:
        return descriptor
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    os.close(descriptor)
    return moved


def _unwritten(about: os.stat_result) -> int:
    """Bytes of a file that have no room on the filesystem yet."""
    return max(0, about.st_size - about.st_blocks * 512)


def _can_lock(descriptor: int) -> bool:
    """Whether no process has the copy; where there are no locks nobody knows, and it stays."""
    return lock.flock(descriptor, fcntl.LOCK_EX) is True
