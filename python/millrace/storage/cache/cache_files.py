"""Files in a folder of copies: the meaning of their names, their locks, and the folder's owner.

The folder is this user's own, or one that the site has made for a group. A user with write access to a folder can put
anything there. So the folder of a group is used only if it is root's, which no other user can forge, and a copy of
another member only if its bytes have the digest that the member wrote down.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import hashlib
import os
import resource
import stat
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import msgspec

from millrace.host import file_lock
from millrace.host.permissions import open_private_folder, replace_file

#: File whose lock is held while the folder is changed.
LOCK = ".lock"

#: Suffix of a copy in the making.
PART = ".part"

#: Suffix of a copy that is fetched from a server: if its process dies, another one continues.
FETCH = ".fetch"

#: Suffix of the provenance of a fetched copy.
ABOUT = ".about"


class CacheSource(Protocol):
    """The source of a copy."""

    @property
    def key(self) -> str: ...
    @property
    def size(self) -> int: ...
    @property
    def mtime_ns(self) -> int: ...
    @property
    def mode(self) -> int: ...


class NoRoomError(OSError):
    """The copies do not fit into their folder."""

    def __init__(self, text: str) -> None:
        super().__init__(errno.ENOSPC, text)


@dataclass(frozen=True)
class PartialCopy:
    """An incomplete copy, locked by this process."""

    file: CacheSource
    path: Path
    descriptor: int


@dataclass(frozen=True)
class BusyCopy:
    """A copy that another process fetches, as a descriptor to wait on."""

    descriptor: int

    def wait(self) -> None:
        """Wait until the other process has fetched the copy, or given up."""
        file_lock.wait_for_flock(self.descriptor, fcntl.LOCK_SH)
        os.close(self.descriptor)


@dataclass(frozen=True)
class CacheEntry:
    """A copy in the cache folder, complete or not."""

    path: Path
    size: int
    atime_ns: int
    unwritten: int
    in_use: bool

    @property
    def is_whole(self) -> bool:
        return not self.path.name.endswith((PART, FETCH))


def scan_entries(folder: Path) -> Iterator[CacheEntry]:
    """Yield each copy, complete or not, with its use. Removes files that no process can continue."""
    names = os.listdir(folder)
    for name in names:
        if name == LOCK:
            continue
        if name.endswith(ABOUT):
            if not _is_provenance_needed(name, names):
                (folder / name).unlink()
        elif entry := _inspect_entry(folder / name):
            yield entry


def _is_provenance_needed(name: str, names: list[str]) -> bool:
    """Tell whether the copy of this provenance file exists, complete or not."""
    copy = name[: -len(ABOUT)]
    return copy[1:] in names or any(each.startswith(f"{copy}.") and each.endswith(FETCH) for each in names)


def _inspect_entry(path: Path) -> CacheEntry | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:  # in a group's folder: unreadable for this user
        return None
    try:
        in_use = not _can_lock(descriptor)
        if not in_use and _is_unresumable(path.name):
            path.unlink()
            return None
        about = os.fstat(descriptor)
        # Reserved bytes count as used.
        size = max(about.st_size, about.st_blocks * 512) if path.name.endswith(FETCH) else about.st_size
        return CacheEntry(path, size, about.st_atime_ns, _count_unwritten_bytes(about), in_use)
    finally:
        os.close(descriptor)


def _is_unresumable(name: str) -> bool:
    """Tell whether an unlocked file cannot be continued.

    Never by another process (``PART``), or not after a restart of the machine, when unsynced bytes may be missing
    (``FETCH``).
    """
    return name.endswith(PART) or (name.endswith(FETCH) and not name.endswith(read_boot_id() + FETCH))


def make_provenance_path(path: Path) -> Path:
    """Return the path of a copy's provenance file."""
    return path.with_name(f".{path.name}{ABOUT}")


def unlink_copy(path: Path) -> None:
    """Remove a copy and its provenance file."""
    path.unlink()
    make_provenance_path(path).unlink(missing_ok=True)


def count_free_bytes(folder: Path) -> int:
    """Return the bytes that this user can still write on the filesystem of a folder."""
    about = os.statvfs(folder)
    return about.f_bavail * about.f_frsize


def reserve_bytes(descriptor: int, size: int) -> None:
    """Reserve disk space for a file without changing its length, where the filesystem supports it.

    Raises:
        OSError: The disk has not enough space.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.fallocate(descriptor, 1, ctypes.c_long(0), ctypes.c_long(size)) and ctypes.get_errno() == errno.ENOSPC:
        raise NoRoomError(f"no room for {size} bytes of databases")


def read_boot_id() -> str:
    """Return an id of the current start of this machine."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text()[:8]
    except OSError:
        return os.urandom(4).hex()


def move_above_soft_limit(descriptor: int) -> int:
    """Move a descriptor above the soft limit, if allowed: a database may have more files than that limit.

    The limit itself stays unchanged, also for the tools.
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


def _count_unwritten_bytes(about: os.stat_result) -> int:
    """Count the bytes of a file that have no disk space yet."""
    return max(0, about.st_size - about.st_blocks * 512)


def _can_lock(descriptor: int) -> bool:
    """Tell whether no process uses the copy; False where the filesystem has no locks, so that the copy stays."""
    return file_lock.try_flock(descriptor, fcntl.LOCK_EX) is True


#: Prefix of the name of a folder of copies.
FOLDER = "millrace-stage-"

#: Rest of the name of a group's folder.
GROUP = "group"


@dataclass(frozen=True)
class CacheFolder:
    """A folder of copies, and whether the members of a group share it."""

    folder: Path
    is_shared: bool = False

    @property
    def sharing_bits(self) -> int:
        """Mode bits by which others may read a copy."""
        return stat.S_IRGRP if self.is_shared else 0

    def open_lock_file(self) -> int:
        """Open the file to lock while the folder is changed; in a group the folder itself, as all members can."""
        if self.is_shared:
            return os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        return os.open(self.folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def open_growing_copy(self, path: Path) -> int:
        """Open a copy that is fetched: for writing, or for reading if it is another member's."""
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except PermissionError:
            if not self.is_shared:
                raise
            return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        self.grant_group_read(descriptor)
        return descriptor

    def write_small_file(self, path: Path, content: bytes) -> None:
        """Write a small file atomically."""
        replace_file(path, content, 0o600)
        path.chmod(0o600 | self.sharing_bits)

    def is_foreign(self, descriptor: int) -> bool:
        """Tell whether a file belongs to another member."""
        return self.is_shared and os.fstat(descriptor).st_uid != os.geteuid()

    def grant_group_read(self, descriptor: int) -> None:
        """Let other members read a file of this user."""
        if self.is_shared and not self.is_foreign(descriptor):
            os.fchmod(descriptor, 0o600 | self.sharing_bits)


def make_own_folder(place: Path) -> Path:
    """Return this user's folder of copies in ``place``; make it if missing.

    Another user may have taken its predictable name. Then a folder with a random suffix is made, which the next job
    finds by its owner.
    """
    usual = place / f"{FOLDER}{os.geteuid()}"
    with suppress(FileExistsError):
        usual.mkdir(mode=0o700)
    for folder in (usual, *sorted(place.glob(f"{usual.name}-*"))):
        with suppress(OSError):
            os.close(open_private_folder(folder))
            return folder
    return Path(tempfile.mkdtemp(prefix=f"{usual.name}-", dir=place))


def find_group_folder(place: Path) -> CacheFolder | None:
    """Return the group folder of copies in ``place`` that the site has made for this user; None: there is none.

    It is root's, passes its group on (setgid), lets members remove files of others (not sticky), and is closed to all
    other users.
    """
    folder = place / f"{FOLDER}{GROUP}"
    try:
        about = os.lstat(folder)
    except OSError:
        return None
    bits = stat.S_ISGID | stat.S_IRWXG
    is_so = stat.S_ISDIR(about.st_mode) and about.st_uid == 0 and about.st_mode & bits == bits
    is_closed = not about.st_mode & (stat.S_IRWXO | stat.S_ISVTX)
    is_member = about.st_gid in (os.getegid(), *os.getgroups())
    return CacheFolder(folder, True) if is_so and is_closed and is_member else None


def has_recorded_digest(descriptor: int, about: Path) -> bool:
    """Tell whether another member's copy has the SHA-256 digest in its provenance file ``about``."""
    try:
        told = msgspec.json.decode(about.read_bytes())["sha256"]
        with open(os.dup(descriptor), "rb", buffering=0) as file:
            file.seek(0)
            return bool(hashlib.file_digest(file, "sha256").hexdigest() == told)
    except (OSError, msgspec.MsgspecError, KeyError, TypeError):
        return False
