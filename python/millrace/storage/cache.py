"""The copies that a node keeps, for this job and the next ones.

One folder a user in memory, and one on disk. A file's name says what it is a copy of (`millrace.plan.staging.File.key`),
so it is never out of date, only of no more use. One that is not whole has a name that begins with a dot. Locks say what
lives: a shared one on a copy that a job uses, an exclusive one on one that is being made; they end with their process.
"""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import stat
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from millrace import lock
from millrace.own import open_private
from millrace.plan.staging import File, Place

#: File whose lock is held by whoever changes what is in the folder.
LOCK = ".lock"

#: Ending of a copy that is being made.
PART = ".part"


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


class Cache:
    """The copies in one folder; use it from one process, and one thread.

    Args:
        place: The folder in which this user's folder of copies is made.

    Raises:
        OSError: It cannot be made.
    """

    def __init__(self, place: Path) -> None:
        self.folder = own_folder(place)
        #: Descriptors whose shared locks keep copies from being removed, by key.
        self._held: dict[str, int] = {}

    def look(self, files: Sequence[File]) -> Place:
        """Take those of ``files`` that are there into use, and count the others. Sweeps away what died half done."""
        with self._locked():
            held = {file.key for file in files if self._hold(file)}
            busy = idle = unwritten = 0
            for path, about, in_use in self._entries():
                if path.name.endswith(PART):
                    busy += about.st_size
                    unwritten += _unwritten(about)
                elif path.name not in self._held:
                    busy, idle = (busy + about.st_size, idle) if in_use else (busy, idle + about.st_size)
            return Place(
                folder=str(self.folder),
                free=max(0, self._free() - unwritten),
                busy=busy,
                idle=idle,
                held=frozenset(held),
            )

    def begin(self, files: Sequence[File], budget: int) -> list[Part]:
        """Begin copies, removing the longest unused ones where room is needed.

        Args:
            budget: Most bytes that all copies may fill.

        Raises:
            NoRoom: They do not fit.
        """
        with self._locked():
            self._make_room(sum(file.size for file in files), budget)
            return [self._part(file) for file in files]

    def finish(self, part: Part) -> None:
        """Give a copy that is whole its name, and take it into use; if another job was faster, take that one's."""
        os.fchmod(part.descriptor, part.file.mode | stat.S_IRUSR)
        os.utime(part.descriptor, ns=(time.time_ns(), part.file.mtime_ns))
        with self._locked():
            try:
                os.link(part.path, self.path_of(part.file))
            except FileExistsError:
                os.close(part.descriptor)
                self._hold(part.file)
            else:
                lock.wait_for(part.descriptor, fcntl.LOCK_SH)
                self._held[part.file.key] = part.descriptor
            part.path.unlink()

    def drop(self, part: Part) -> None:
        """Give up a copy that is not whole."""
        part.path.unlink(missing_ok=True)
        os.close(part.descriptor)

    def path_of(self, file: File) -> Path:
        return self.folder / file.key

    def close(self) -> None:
        """Let others remove what was in use."""
        for descriptor in self._held.values():
            os.close(descriptor)
        self._held.clear()

    def _hold(self, file: File) -> bool:
        if file.key in self._held:
            return True
        try:
            descriptor = high(os.open(self.path_of(file), os.O_RDONLY | os.O_CLOEXEC))
        except OSError:
            return False
        if os.fstat(descriptor).st_size != file.size:  # nothing of ours does that
            os.close(descriptor)
            self.path_of(file).unlink()
            return False
        lock.wait_for(descriptor, fcntl.LOCK_SH)
        with suppress(OSError):
            os.utime(descriptor, ns=(time.time_ns(), file.mtime_ns))
        self._held[file.key] = descriptor
        return True

    def _part(self, file: File) -> Part:
        path = self.folder / f".{file.key}.{os.urandom(4).hex()}{PART}"
        descriptor = high(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        lock.wait_for(descriptor, fcntl.LOCK_EX)
        os.ftruncate(descriptor, file.size)  # others count it as if it were whole
        return Part(file, path, descriptor)

    def _make_room(self, n_bytes: int, budget: int) -> None:
        entries = list(self._entries())
        used = sum(about.st_size for _, about, _ in entries)
        unwritten = sum(_unwritten(about) for _, about, _ in entries)
        lack = max(used + n_bytes - budget, n_bytes + unwritten - self._free())
        idle = [(about.st_atime_ns, about.st_size, path) for path, about, in_use in entries if not in_use]
        if lack > sum(size for _, size, _ in idle):
            raise NoRoom(f"{self.folder}: no room for {n_bytes} bytes of databases")
        for _, size, path in sorted(idle):
            if lack <= 0:
                break
            path.unlink()
            lack -= size

    def _entries(self) -> Iterator[tuple[Path, os.stat_result, bool]]:
        """Each copy, whole or not, and whether a process has it."""
        for name in os.listdir(self.folder):
            path = self.folder / name
            if name == LOCK:
                continue
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                in_use = not _can_lock(descriptor)
                if name.endswith(PART) and not in_use:  # whoever made it is dead
                    path.unlink()
                    continue
                yield path, os.fstat(descriptor), in_use
            finally:
                os.close(descriptor)

    def _free(self) -> int:
        about = os.statvfs(self.folder)
        return about.f_bavail * about.f_frsize

    @contextmanager
    def _locked(self) -> Iterator[None]:
        descriptor = os.open(self.folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            lock.wait_for(descriptor, fcntl.LOCK_EX)  # held for moments only
            yield
        finally:
            os.close(descriptor)


def own_folder(place: Path) -> Path:
    """This user's folder of copies in ``place``, made if it is not there.

    Somebody else may have taken its name, which everybody can tell. Then one by another name is taken, which the next
    job finds by its owner.
    """
    usual = place / f"millrace-stage-{os.geteuid()}"
    with suppress(FileExistsError):
        usual.mkdir(mode=0o700)
    for folder in (usual, *sorted(place.glob(f"{usual.name}-*"))):
        with suppress(OSError):
            os.close(open_private(folder))
            return folder
    return Path(tempfile.mkdtemp(prefix=f"{usual.name}-", dir=place))


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
