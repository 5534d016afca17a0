"""A file that one process has at a time, also where ``flock`` is missing or known to one machine alone.

``flock`` ends with its process, whatever happens to it, and needs no clock: it says no if anybody has the file. Only,
a filesystem that many machines share may not have it, or may not tell the other machines. So the file also says who
has it, and shows a sign of life every few seconds. Whether a process of this machine lives, the kernel knows; one of
another machine is taken for dead when it has been silent for long.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from millrace.lock_gate import alone
from millrace.lock_owner import STALE_SECONDS, Owner, holder, of_process, place, read, write
from millrace.waiting import until

#: Seconds between signs of life.
BEAT_SECONDS = 5.0

#: Seconds between looks at who has the file.
LOOK_SECONDS = 0.5

#: Seconds after which who has the file does not only look at it (`is_held`).
MOMENT_SECONDS = 0.5


class HeldError(Exception):
    """Another process has the file."""

    def __init__(self, owner: Owner | None) -> None:
        super().__init__(owner)
        self.owner = owner

    @property
    def words(self) -> str:
        """Who has it, for people."""
        return f"process {self.owner.pid} on {self.owner.host}" if self.owner else "process unknown"


class Lock:
    """A file that is ours until `close`. Made by `take`."""

    def __init__(self, path: Path, descriptor: int, owner: Owner, *, certain: bool) -> None:
        self.path, self.descriptor = path, descriptor
        #: Whether whoever had it before is known to be at its end; else it may be frozen, and go on one day.
        self.certain = certain
        self._owner = owner
        self._end = threading.Event()
        self._thread: threading.Thread | None = None

    def keep(self, lost: Callable[[str], None]) -> None:
        """Show signs of life from now on; starts a thread.

        Args:
            lost: Called with who has the file, if another took it as we had been silent for too long.
        """
        self._thread = threading.Thread(target=self._beat, args=(lost,), name="lock", daemon=True)
        self._thread.start()

    def is_ours(self) -> bool:
        """Whether nobody has taken it from us."""
        return read(self.path) in (None, self._owner)

    def hand_to(self, pid: int) -> None:
        """Let another process of this machine, which has the descriptor too, be the owner: it lives longer."""
        self._owner = of_process(pid, self._owner.job)
        write(self.descriptor, self._owner)

    def close(self) -> None:
        """Give the file back."""
        self._end.set()
        if self._thread:
            self._thread.join()
        if holder(self.descriptor) == self._owner:
            with suppress(OSError):
                os.ftruncate(self.descriptor, 0)
        os.close(self.descriptor)

    def _beat(self, lost: Callable[[str], None]) -> None:
        while not self._end.wait(BEAT_SECONDS):
            with suppress(OSError):  # the next time, perhaps
                os.utime(self.descriptor)
            other = read(self.path)
            if other and other != self._owner:
                lost(HeldError(other).words)
                return


def take(path: Path, job: str = "") -> Lock:
    """Take the file for this process, making it if it is not there.

    Waits for at most `STALE_SECONDS` seconds where the last owner, of another machine, may be dead.

    Args:
        job: What all processes of a supervised job share: no two of them want the file at the same time, and those
            that are lost may be on machines that nobody can ask.

    Raises:
        HeldError: Another process has it.
        FileNotFoundError: There is no such folder, perhaps since a moment ago.
        IsADirectoryError: It is a folder, or what is made beside it while somebody looks.
        OSError: The file cannot be made.
    """
    seen: float | None = None

    def look() -> Lock | None:
        nonlocal seen
        lock, seen = _look(path, job, seen)
        return lock

    lock = until(look, nap=LOOK_SECONDS)
    assert lock  # it waits until there is one
    return lock


def _look(path: Path, job: str, seen: float | None) -> tuple[Lock | None, float | None]:
    """The lock, if it can be had now, and the owner's last sign of life; ``seen``: that of the last look."""
    # Whoever can open it can keep it locked for ever.
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        lock = _try(path, descriptor, job, seen)
    except BaseException:
        os.close(descriptor)
        raise
    if lock and _is_at(descriptor, path):
        return lock, None
    if lock:
        lock.close()
        return _look(path, job, seen)
    seen = os.fstat(descriptor).st_mtime
    os.close(descriptor)
    return None, seen


def _try(path: Path, descriptor: int, job: str, seen: float | None) -> Lock | None:
    """The lock; None: look again, as the owner may be dead. ``seen``: its last sign of life when we looked last."""
    if not until(lambda: flock(descriptor, fcntl.LOCK_EX) is not False, MOMENT_SECONDS, nap=MOMENT_SECONDS / 25):
        raise HeldError(holder(descriptor))
    with alone(path) as now:
        owner, certain = holder(descriptor), True
        if owner and not (job and owner.job == job):
            certain = owner.place == place()
            beat = os.fstat(descriptor).st_mtime
            if certain and owner.is_alive_here():
                raise HeldError(owner)
            if not certain and now - beat < STALE_SECONDS:
                if seen is not None and beat != seen:
                    raise HeldError(owner)
                return None
        ours = of_process(os.getpid(), job)
        with suppress(OSError):  # a full disk: where flock works, it is enough
            write(descriptor, ours)
        return Lock(path, descriptor, ours, certain=certain)


def _is_at(descriptor: int, path: Path) -> bool:
    """Whether this is the file there still; a file that was removed is a lock on nothing."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except OSError:
        return False


def is_held(path: Path, job: str = "") -> bool:
    """Whether a process has the file now, as far as can be told without changing anything."""

    def look(descriptor: int) -> bool:
        if flock(descriptor, fcntl.LOCK_SH) is False:
            return True
        owner = holder(descriptor)
        return bool(owner and not (job and owner.job == job) and _lives(owner, descriptor))

    return _looked_at(path, look)


def shows_life(path: Path) -> bool:
    """Whether whoever has the file shows signs of life.

    Takes no lock, not even for a moment, so that it can be asked often: a process that starts is never in its way.
    """

    def look(descriptor: int) -> bool:
        owner = holder(descriptor)
        return bool(owner and _lives(owner, descriptor))

    return _looked_at(path, look)


def _looked_at(path: Path, look: Callable[[int], bool]) -> bool:
    """What a look at the open file says; of another user's: whether it is locked; False: it is not there."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except PermissionError:
        return is_locked(path)
    except OSError:
        return False
    try:
        return look(descriptor)
    finally:
        os.close(descriptor)


def _lives(owner: Owner, descriptor: int) -> bool:
    if owner.place == place():
        return owner.is_alive_here()
    return time.time() - os.fstat(descriptor).st_mtime < STALE_SECONDS


def is_locked(path: Path) -> bool:
    """Whether a process of this machine holds a lock on a file, which need not be one that we may open."""
    try:
        about = path.stat()
        name = f"{os.major(about.st_dev):02x}:{os.minor(about.st_dev):02x}:{about.st_ino}"
        return any(name in line.split() for line in Path("/proc/locks").read_text().splitlines())
    except OSError:
        return False


def flock(descriptor: int, how: int) -> bool | None:
    """Whether the descriptor has the lock now; None: the filesystem has no such thing."""
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False
    except OSError:
        return None  # ENOSYS, ENOTSUP, ENOLCK, and what else a filesystem finds to say


def wait_for(descriptor: int, how: int) -> None:
    """Wait until the descriptor has the lock; where the filesystem has no such thing, go on without."""
    with suppress(OSError):
        fcntl.flock(descriptor, how)
