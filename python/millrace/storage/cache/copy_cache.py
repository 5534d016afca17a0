"""The cache of a node: copies of files, kept for this job and later ones.

One folder for each user in memory, and one on disk. A file's name is derived from its source
(``millrace.storage.staging_choice.DatabaseFile.key``), so a copy is never out of date, only unused. The name of an incomplete copy begins
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

from millrace.host import file_lock
from millrace.storage.cache.cache_files import (
    FETCH,
    PART,
    BusyCopy,
    CacheEntry,
    CacheFolder,
    CacheSource,
    NoRoomError,
    PartialCopy,
    count_free_bytes,
    find_group_folder,
    has_recorded_digest,
    make_own_folder,
    make_provenance_path,
    move_above_soft_limit,
    read_boot_id,
    reserve_bytes,
    scan_entries,
    unlink_copy,
)
from millrace.storage.staging_choice import StagingPlace


class NodeCache:
    """The copies in one folder; use it from one process, and one thread.

    Args:
        place: The folder in which this user's folder of copies is made.
        fetched: Whether copies are of files behind URLs: a group may share these, if the site wants that.

    Raises:
        OSError: The folder cannot be made.
    """

    def __init__(self, place: Path, fetched: bool = False) -> None:
        self._whose = (find_group_folder(place) if fetched else None) or CacheFolder(make_own_folder(place))
        self.folder = self._whose.folder
        #: Descriptors, by key, whose shared locks protect copies from removal.
        self._held: dict[str, int] = {}

    def hold_and_survey(self, files: Sequence[CacheSource]) -> StagingPlace:
        """Hold the present ones of ``files`` and measure the folder. Removes incomplete copies of dead processes."""
        with self._hold_lock():
            held = {file.key for file in files if self._hold_copy(file)}
            busy = idle = unwritten = 0
            for entry in scan_entries(self.folder):
                unwritten += 0 if entry.is_whole else entry.unwritten
                if entry.in_use and entry.path.name not in self._held:
                    busy += entry.size
                elif not entry.in_use:
                    idle += entry.size
            return StagingPlace(
                folder=str(self.folder),
                free=max(0, count_free_bytes(self.folder) - unwritten),
                busy=busy,
                idle=idle,
                held=frozenset(held),
            )

    def start_copies(self, files: Sequence[CacheSource], budget: int) -> list[PartialCopy]:
        """Start copies; remove the least recently used ones where room is needed.

        Args:
            budget: Most bytes that all copies may fill.

        Raises:
            NoRoomError: The copies do not fit.
        """
        with self._hold_lock():
            self._make_room(sum(file.size for file in files), budget)
            return [self._create_part(file) for file in files]

    def claim_copy(self, file: CacheSource, budget: int) -> PartialCopy | BusyCopy | None:
        """Claim a copy for fetching.

        Returns:
            A part to fetch, which may hold what a dead process had fetched; ``BusyCopy`` if another process fetches it;
            None if it is present, and now held.

        Raises:
            NoRoomError: It does not fit.
        """
        with self._hold_lock():
            if self._hold_copy(file):
                return None
            path = self.make_fetch_path(file)
            descriptor = move_above_soft_limit(self._whose.open_growing_copy(path))
            alone = file_lock.try_flock(descriptor, fcntl.LOCK_EX)
            if alone is False:
                return BusyCopy(descriptor)
            if self._whose.is_foreign(descriptor):  # its owner may still have it open
                os.close(descriptor)
                path.unlink()
                descriptor = move_above_soft_limit(self._whose.open_growing_copy(path))
                alone = file_lock.try_flock(descriptor, fcntl.LOCK_EX)
            try:
                if alone is None:  # without locks each process fetches its own copy
                    path.unlink()
                    os.close(descriptor)
                    self._make_room(max(0, file.size), budget)
                    part = self._create_part(file)
                    os.ftruncate(part.descriptor, 0)
                    return part
                about = os.fstat(descriptor)
                self._make_room(max(0, file.size - about.st_blocks * 512), budget)
                if file.size > 0:
                    reserve_bytes(descriptor, file.size)
            except OSError:
                if alone:
                    self._abandon_part(PartialCopy(file, path, descriptor))
                raise
            return PartialCopy(file, path, descriptor)

    def _abandon_part(self, part: PartialCopy) -> None:
        if os.fstat(part.descriptor).st_size:
            self.release_part(part)
        else:
            self.discard_part(part)

    def release_part(self, part: PartialCopy) -> None:
        """Release an incomplete copy, so that another process can continue it."""
        os.close(part.descriptor)

    def publish_part(self, part: PartialCopy) -> None:
        """Publish a complete copy under its name, and hold it; if another job was faster, hold that job's."""
        os.fchmod(part.descriptor, part.file.mode | stat.S_IRUSR | self._whose.sharing_bits)
        os.utime(part.descriptor, ns=(time.time_ns(), part.file.mtime_ns))
        with self._hold_lock():
            try:
                os.link(part.path, self.make_copy_path(part.file))
            except FileExistsError:
                if self._hold_copy(part.file):
                    self.discard_part(part)
                    return
                part.path.replace(self.make_copy_path(part.file))  # the other member's file is not this copy
            else:
                part.path.unlink()
            file_lock.wait_for_flock(part.descriptor, fcntl.LOCK_SH)
            self._held[part.file.key] = part.descriptor

    def write_provenance(self, file: CacheSource, about: bytes) -> None:
        """Write the provenance of a copy, before the copy is published."""
        self._whose.write_small_file(make_provenance_path(self.make_copy_path(file)), about)

    def discard_part(self, part: PartialCopy) -> None:
        """Discard an incomplete copy."""
        part.path.unlink(missing_ok=True)
        os.close(part.descriptor)

    def hold_copy(self, file: CacheSource) -> bool:
        """Hold a copy; return whether it is present."""
        with self._hold_lock():
            return self._hold_copy(file)

    def forget_copy(self, key: str) -> None:
        """Release a copy and remove it, unless another process uses it."""
        if (descriptor := self._held.pop(key, None)) is not None:
            os.close(descriptor)
        self.evict_copy(self.folder / key)

    def make_copy_path(self, file: CacheSource) -> Path:
        return self.folder / file.key

    def make_fetch_path(self, file: CacheSource) -> Path:
        """Return the path of a copy while it is fetched; its length is the number of bytes fetched."""
        return self.folder / f".{file.key}.{read_boot_id()}{FETCH}"

    def close(self) -> None:
        """Release all held copies, so that other processes can remove them."""
        for descriptor in self._held.values():
            os.close(descriptor)
        self._held.clear()

    def _hold_copy(self, file: CacheSource) -> bool:
        if file.key in self._held:
            return True
        try:
            descriptor = move_above_soft_limit(
                os.open(self.make_copy_path(file), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            )
        except OSError:
            return False
        if self._whose.is_foreign(descriptor) and not has_recorded_digest(
            descriptor, make_provenance_path(self.make_copy_path(file))
        ):
            if file_lock.try_flock(descriptor, fcntl.LOCK_EX):  # no process uses it
                unlink_copy(self.make_copy_path(file))
            os.close(descriptor)
            return False
        if 0 <= file.size != os.fstat(descriptor).st_size:  # not written by Millrace
            os.close(descriptor)
            self.make_copy_path(file).unlink()
            return False
        file_lock.wait_for_flock(descriptor, fcntl.LOCK_SH)
        with suppress(OSError):
            os.utime(descriptor, ns=(time.time_ns(), file.mtime_ns))
        self._held[file.key] = descriptor
        return True

    def _create_part(self, file: CacheSource) -> PartialCopy:
        path = self.folder / f".{file.key}.{os.urandom(4).hex()}{PART}"
        descriptor = move_above_soft_limit(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        self._whose.grant_group_read(descriptor)
        file_lock.wait_for_flock(descriptor, fcntl.LOCK_EX)
        os.ftruncate(descriptor, max(0, file.size))  # other processes count its full size
        return PartialCopy(file, path, descriptor)

    def list_entries(self) -> list[CacheEntry]:
        """List the present copies, complete or not."""
        with self._hold_lock():
            return list(scan_entries(self.folder))

    def evict_copy(self, path: str | Path) -> bool:
        """Remove a copy that no process uses; return whether it is gone."""
        with self._hold_lock():
            found = next((each for each in scan_entries(self.folder) if each.path == Path(path)), None)
            if found is None or found.in_use:
                return found is None
            unlink_copy(found.path)
            return True

    def _make_room(self, n_bytes: int, budget: int) -> None:
        there = list(scan_entries(self.folder))
        used = sum(entry.size for entry in there)
        unwritten = sum(entry.unwritten for entry in there)
        lack = max(used + n_bytes - budget, n_bytes + unwritten - count_free_bytes(self.folder))
        idle = [(entry.atime_ns, entry.size, entry.path) for entry in there if not entry.in_use]
        if lack > sum(size for _, size, _ in idle):
            raise NoRoomError(f"{self.folder}: no room for {n_bytes} bytes of databases")
        for _, size, path in sorted(idle):
            if lack <= 0:
                break
            unlink_copy(path)
            lack -= size

    @contextmanager
    def _hold_lock(self) -> Iterator[None]:
        descriptor = self._whose.open_lock_file()
        try:
            file_lock.wait_for_flock(descriptor, fcntl.LOCK_EX)  # held only briefly
            yield
        finally:
            os.close(descriptor)
