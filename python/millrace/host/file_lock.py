"""A file lock for one process at a time, also where ``flock`` is missing or known to one machine alone.

``flock`` ends with its process, however it dies, and needs no clock: it fails if any process holds the file. But a
filesystem that many machines share may not have it, or may not pass it on to other machines. So the file also names its
owner, and gets a heartbeat every few seconds. The kernel tells whether an owner on this machine is alive; one on
another machine is taken for dead after a long silence. The kind and mount point of a filesystem are those of
``/proc/self/mountinfo``.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from millrace.core.wait_loop import wait_until
from millrace.host.lock_owner import (
    STALE_SECONDS,
    LockOwner,
    hold_gate,
    identify_process_table,
    make_process_owner,
    read_open_owner,
    read_owner,
    write_open_owner,
)

#: Network filesystems, by the kernel's name: each node's reads cross the network.
SHARED = frozenset(
    ["nfs", "nfs4", "cifs", "smb3", "9p", "virtiofs", "afs", "lustre", "gpfs", "beegfs", "ceph", "glusterfs", "panfs",
     "pvfs2", "orangefs", "wekafs", "daos", "dvs", "gfs2", "ocfs2", "fuse.sshfs", "fuse.glusterfs", "fuse.ceph",
     "fuse.s3fs", "fuse.rclone", "fuse.gcsfuse", "fuse.juicefs", "fuse.moosefs", "fuse.dfuse", "fuse.hdfs", "fuse.millrace"]
)  # fmt: skip

#: Filesystems whose files are in memory.
IN_MEMORY = frozenset(["tmpfs", "ramfs"])


def is_user_space_filesystem(kind: str) -> bool:
    """Tell whether a user process serves the filesystem, as sshfs does; many of these disable the page cache."""
    return kind.startswith("fuse")


def has_unknown_speed(kind: str) -> bool:
    """Tell whether the kind says nothing about the speed of reads: a network filesystem, or one in user space.

    >>> has_unknown_speed("nfs4"), has_unknown_speed("fuse.other"), has_unknown_speed("fuse"), has_unknown_speed("xfs")
    (True, True, True, False)
    """
    return kind in SHARED or is_user_space_filesystem(kind)


def find_filesystem_kind(path: Path, mounts: Path = Path("/proc/self/mountinfo")) -> str:
    """Return the kernel's name of the filesystem of ``path``, which need not exist; empty if unknown."""
    return find_mount(path, mounts)[1]


def find_mount(path: Path, mounts: Path = Path("/proc/self/mountinfo")) -> tuple[str, str]:
    """Return the mount point of the filesystem of ``path``, and its kind as ``find_filesystem_kind`` has it."""
    best, found = "", ""
    real = str(path.resolve())
    for line in mounts.read_text(errors="surrogateescape").splitlines():
        fields, _, after = line.partition(" - ")
        point = fields.split()[4].replace("\\040", " ")
        # A later line for the same mount point is mounted over the earlier one.
        if len(point) >= len(best) and (real == point or real.startswith(point.rstrip("/") + "/")):
            best, found = point, after.split()[0]
    return best, found


#: Seconds between heartbeats.
HEARTBEAT_SECONDS = 5.0

#: Seconds between two tries to get the file.
POLL_INTERVAL_SECONDS = 0.5

#: Seconds after which a ``flock`` is taken for a lock, not for the short check of ``is_held``.
MOMENT_SECONDS = 0.5


class LockHeldError(Exception):
    """Another process holds the file."""

    def __init__(self, owner: LockOwner | None) -> None:
        super().__init__(owner)
        self.owner = owner

    @property
    def words(self) -> str:
        """The owner, for messages."""
        return f"process {self.owner.pid} on {self.owner.host}" if self.owner else "process unknown"


class FileLock:
    """A file held by this process until ``close``. Made by ``acquire_lock``."""

    def __init__(self, path: Path, descriptor: int, owner: LockOwner, *, certain: bool) -> None:
        self.path, self.descriptor = path, descriptor
        #: Whether the previous owner is known to be dead; else it may be frozen, and continue later.
        self.certain = certain
        self._owner = owner
        self._end = threading.Event()
        self._thread: threading.Thread | None = None

    def start_heartbeat(self, lost: Callable[[str], None]) -> None:
        """Start a thread that sends heartbeats.

        Args:
            lost: Called with a description of the new owner if another process took the file after too long a silence.
        """
        self._thread = threading.Thread(target=self._run_heartbeat, args=(lost,), name="lock", daemon=True)
        self._thread.start()

    def is_ours(self) -> bool:
        """Tell whether no other process has taken the file."""
        return read_owner(self.path) in (None, self._owner)

    def transfer_ownership(self, pid: int) -> None:
        """Make another process of this machine, which has the descriptor too, the owner: it lives longer."""
        self._owner = make_process_owner(pid, self._owner.job)
        write_open_owner(self.descriptor, self._owner)

    def close(self) -> None:
        """Release the file."""
        self._end.set()
        if self._thread:
            self._thread.join()
        if read_open_owner(self.descriptor) == self._owner:
            with suppress(OSError):
                os.ftruncate(self.descriptor, 0)
        os.close(self.descriptor)

    def _run_heartbeat(self, lost: Callable[[str], None]) -> None:
        while not self._end.wait(HEARTBEAT_SECONDS):
            with suppress(OSError):  # retried at the next heartbeat
                os.utime(self.descriptor)
            other = read_owner(self.path)
            if other and other != self._owner:
                lost(LockHeldError(other).words)
                return


def acquire_lock(path: Path, job: str = "") -> FileLock:
    """Acquire the file for this process; make it if missing.

    Waits at most ``STALE_SECONDS`` seconds if the last owner, on another machine, may be dead.

    Args:
        job: Name shared by all processes of a supervised job: no two of them want the file at the same time, and a lost
            one may be on a machine that cannot be asked.

    Raises:
        LockHeldError: Another process holds it.
        FileNotFoundError: The folder does not exist, or was removed just now.
        IsADirectoryError: The file, or the gate file beside it, is a folder.
        OSError: The file cannot be made.
    """
    seen: float | None = None

    def try_once() -> FileLock | None:
        nonlocal seen
        lock, seen = _open_and_lock(path, job, seen)
        return lock

    lock = wait_until(try_once, nap=POLL_INTERVAL_SECONDS)
    assert lock  # ``wait_until`` has no timeout here
    return lock


def _open_and_lock(path: Path, job: str, seen: float | None) -> tuple[FileLock | None, float | None]:
    """Try once to get the lock.

    Args:
        seen: Time of the owner's last heartbeat at the previous try.

    Returns:
        The lock if it is free, and the time of the owner's last heartbeat.
    """
    # A process that can open it could hold its lock for ever.
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        lock = _lock_descriptor(path, descriptor, job, seen)
    except BaseException:
        os.close(descriptor)
        raise
    if lock and _is_file_at(descriptor, path):
        return lock, None
    if lock:
        lock.close()
        return _open_and_lock(path, job, seen)
    seen = os.fstat(descriptor).st_mtime
    os.close(descriptor)
    return None, seen


def _lock_descriptor(path: Path, descriptor: int, job: str, seen: float | None) -> FileLock | None:
    """Lock an open file; None: try again, as the owner may be dead.

    Args:
        seen: Time of the owner's last heartbeat at the previous try.
    """
    if not wait_until(
        lambda: try_flock(descriptor, fcntl.LOCK_EX) is not False, MOMENT_SECONDS, nap=MOMENT_SECONDS / 25
    ):
        raise LockHeldError(read_open_owner(descriptor))
    with hold_gate(path) as now:
        owner, certain = read_open_owner(descriptor), True
        if owner and not (job and owner.job == job):
            certain = owner.place == identify_process_table()
            beat = os.fstat(descriptor).st_mtime
            if certain and owner.is_alive_here():
                raise LockHeldError(owner)
            if not certain and now - beat < STALE_SECONDS:
                if seen is not None and beat != seen:
                    raise LockHeldError(owner)
                return None
        ours = make_process_owner(os.getpid(), job)
        with suppress(OSError):  # a full disk: ``flock`` is enough where it works
            write_open_owner(descriptor, ours)
        return FileLock(path, descriptor, ours, certain=certain)


def _is_file_at(descriptor: int, path: Path) -> bool:
    """Tell whether the open file is still at its path; a lock on a removed file protects nothing."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except OSError:
        return False


def is_held(path: Path, job: str = "") -> bool:
    """Tell whether a process holds the file now, as far as can be read without changing anything."""

    def has_holder(descriptor: int) -> bool:
        if try_flock(descriptor, fcntl.LOCK_SH) is False:
            return True
        owner = read_open_owner(descriptor)
        return bool(owner and not (job and owner.job == job) and _shows_life(owner, descriptor))

    return _inspect_file(path, has_holder)


def has_live_owner(path: Path) -> bool:
    """Tell whether the owner of the file is alive.

    Takes no lock, not even briefly, so it can be called often: it never blocks a process that starts.
    """

    def has_live_holder(descriptor: int) -> bool:
        owner = read_open_owner(descriptor)
        return bool(owner and _shows_life(owner, descriptor))

    return _inspect_file(path, has_live_holder)


def _inspect_file(path: Path, look: Callable[[int], bool]) -> bool:
    """Return ``look`` of the open file; of another user's file, whether it is locked; False: it does not exist."""
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


def _shows_life(owner: LockOwner, descriptor: int) -> bool:
    if owner.place == identify_process_table():
        return owner.is_alive_here()
    return time.time() - os.fstat(descriptor).st_mtime < STALE_SECONDS


def is_locked(path: Path) -> bool:
    """Tell whether a process of this machine holds a lock on a file; the file need not be readable for us."""
    try:
        about = path.stat()
        name = f"{os.major(about.st_dev):02x}:{os.minor(about.st_dev):02x}:{about.st_ino}"
        return any(name in line.split() for line in Path("/proc/locks").read_text().splitlines())
    except OSError:
        return False


def try_flock(descriptor: int, how: int) -> bool | None:
    """Try to lock the descriptor; return whether it is locked now, None if the filesystem has no locks."""
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False
    except OSError:
        return None  # ENOSYS, ENOTSUP, ENOLCK, and other errors of filesystems


def wait_for_flock(descriptor: int, how: int) -> None:
    """Wait until the descriptor is locked; continue without a lock where the filesystem has none."""
    with suppress(OSError):
        fcntl.flock(descriptor, how)
