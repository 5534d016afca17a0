"""The cache of a node: copies of files, kept for this job and later ones.

One folder for each user in memory, and one on disk. A file's name is derived from its source
(``millrace.plan.staging.File.key``), so a copy is never out of date, only unused. The name of an incomplete copy begins
with a dot. Locks mark use: a shared one on a copy that a job uses, an exclusive one on a copy in the making; both end
with their process.
"""

from __future__ import annotations

import fcntl
import os
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from millrace import lock
from millrace.plan.staging import Place
from millrace.storage.cache_files import (
    FETCH,
    PART,
    Busy,
    Entry,
    File,
    NoRoom,
    Part,
    about_of,
    boot,
    entries,
    free_bytes,
    high,
    remove,
    reserve,
)
from millrace.storage.cache_folder import Whose, is_as_told, of_group, own_folder


class Cache:
    """The copies in one folder; use it from one process, and one thread.

    Args:
        place: The folder in which this user's folder of copies is made.
        fetched: Whether copies are of files behind URLs: a group may share these, if the site wants that.

    Raises:
        OSError: The folder cannot be made.
    """

    def __init__(self, place: Path, fetched: bool = False) -> None:
        self._whose = (of_group(place) if fetched else None) or Whose(own_folder(place))
        self.folder = self._whose.folder
        #: Descriptors, by key, whose shared locks protect copies from removal.
        self._held: dict[str, int] = {}

    def look(self, files: Sequence[File]) -> Place:
        """Hold the present ones of ``files`` and measure the folder. Removes incomplete copies of dead processes."""
        with self._locked():
            held = {file.key for file in files if self._hold(file)}
            busy = idle = unwritten = 0
            for entry in entries(self.folder):
                unwritten += 0 if entry.is_whole else entry.unwritten
                if entry.in_use and entry.path.name not in self._held:
                    busy += entry.size
                elif not entry.in_use:
                    idle += entry.size
            return Place(
                folder=str(self.folder),
                free=max(0, free_bytes(self.folder) - unwritten),
                busy=busy,
                idle=idle,
                held=frozenset(held),
            )

    def begin(self, files: Sequence[File], budget: int) -> list[Part]:
        """Start copies; remove the least recently used ones where room is needed.

        Args:
            budget: Most bytes that all copies may fill.

        Raises:
            NoRoom: The copies do not fit.
        """
        with self._locked():
            self._make_room(sum(file.size for file in files), budget)
            return [self._part(file) for file in files]

    def claim(self, file: File, budget: int) -> Part | Busy | None:
        """Claim a copy for fetching.

        Returns:
            A part to fetch, which may hold what a dead process had fetched; ``Busy`` if another process fetches it;
            None if it is present, and now held.

        Raises:
            NoRoom: It does not fit.
        """
        with self._locked():
            if self._hold(file):
                return None
            path = self.fetched_path_of(file)
            descriptor = high(self._whose.growing(path))
            alone = lock.flock(descriptor, fcntl.LOCK_EX)
            if alone is False:
                return Busy(descriptor)
            if self._whose.is_others(descriptor):  # its owner may still have it open
                os.close(descriptor)
                path.unlink()
                descriptor = high(self._whose.growing(path))
                alone = lock.flock(descriptor, fcntl.LOCK_EX)
            try:
                if alone is None:  # without locks each process fetches its own copy
                    path.unlink()
                    os.close(descriptor)
                    self._make_room(max(0, file.size), budget)
                    part = self._part(file)
                    os.ftruncate(part.descriptor, 0)
                    return part
                about = os.fstat(descriptor)
                self._make_room(max(0, file.size - about.st_blocks * 512), budget)
                if file.size > 0:
                    reserve(descriptor, file.size)
            except OSError:
                if alone:
                    self._give_up(Part(file, path, descriptor))
                raise
            return Part(file, path, descriptor)

    def _give_up(self, part: Part) -> None:
        if os.fstat(part.descriptor).st_size:
            self.leave(part)
        else:
            self.drop(part)

    def leave(self, part: Part) -> None:
        """Release an incomplete copy, so that another process can continue it."""
        os.close(part.descriptor)

    def finish(self, part: Part) -> None:
        """Publish a complete copy under its name, and hold it; if another job was faster, hold that job's."""
        os.fchmod(part.descriptor, part.file.mode | stat.S_IRUSR | self._whose.bits)
        os.utime(part.descriptor, ns=(time.time_ns(), part.file.mtime_ns))
        with self._locked():
            try:
                os.link(part.path, self.path_of(part.file))
            except FileExistsError:
                if self._hold(part.file):
                    self.drop(part)
                    return
                part.path.replace(self.path_of(part.file))  # the other member's file is not this copy
            else:
                part.path.unlink()
            lock.wait_for(part.descriptor, fcntl.LOCK_SH)
            self._held[part.file.key] = part.descriptor

    def tell(self, file: File, about: bytes) -> None:
        """Write the provenance of a copy, before the copy is published."""
        self._whose.write(about_of(self.path_of(file)), about)

    def drop(self, part: Part) -> None:
        """Discard an incomplete copy."""
        part.path.unlink(missing_ok=True)
        os.close(part.descriptor)

    def take(self, file: File) -> bool:
        """Hold a copy; return whether it is present."""
        with self._locked():
            return self._hold(file)

    def forget(self, key: str) -> None:
        """Release a copy and remove it, unless another process uses it."""
        if (descriptor := self._held.pop(key, None)) is not None:
            os.close(descriptor)
        self.evict(self.folder / key)

    def path_of(self, file: File) -> Path:
        return self.folder / file.key

    def fetched_path_of(self, file: File) -> Path:
        """Return the path of a copy while it is fetched; its length is the number of bytes fetched."""
        return self.folder / f".{file.key}.{boot()}{FETCH}"

    def close(self) -> None:
        """Release all held copies, so that other processes can remove them."""
        for descriptor in self._held.values():
            os.close(descriptor)
        self._held.clear()

    def _hold(self, file: File) -> bool:
        if file.key in self._held:
            return True
        try:
            descriptor = high(os.open(self.path_of(file), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW))
        except OSError:
            return False
        if self._whose.is_others(descriptor) and not is_as_told(descriptor, about_of(self.path_of(file))):
            if lock.flock(descriptor, fcntl.LOCK_EX):  # no process uses it
                remove(self.path_of(file))
            os.close(descriptor)
            return False
        if 0 <= file.size != os.fstat(descriptor).st_size:  # not written by Millrace
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
        self._whose.open_up(descriptor)
        lock.wait_for(descriptor, fcntl.LOCK_EX)
        os.ftruncate(descriptor, max(0, file.size))  # other processes count its full size
        return Part(file, path, descriptor)

    def entries(self) -> list[Entry]:
        """List the present copies, complete or not."""
        with self._locked():
            return list(entries(self.folder))

    def evict(self, path: str | Path) -> bool:
        """Remove a copy that no process uses; return whether it is gone."""
        with self._locked():
            found = next((each for each in entries(self.folder) if each.path == Path(path)), None)
            if found is None or found.in_use:
                return found is None
            remove(found.path)
            return True

    def _make_room(self, n_bytes: int, budget: int) -> None:
        there = list(entries(self.folder))
        used = sum(entry.size for entry in there)
        unwritten = sum(entry.unwritten for entry in there)
        lack = max(used + n_bytes - budget, n_bytes + unwritten - free_bytes(self.folder))
        idle = [(entry.atime_ns, entry.size, entry.path) for entry in there if not entry.in_use]
        if lack > sum(size for _, size, _ in idle):
            raise NoRoom(f"{self.folder}: no room for {n_bytes} bytes of databases")
        for _, size, path in sorted(idle):
            if lack <= 0:
                break
            remove(path)
            lack -= size

    @contextmanager
    def _locked(self) -> Iterator[None]:
        descriptor = self._whose.gate()
        try:
            lock.wait_for(descriptor, fcntl.LOCK_EX)  # held only briefly
            yield
        finally:
            os.close(descriptor)
