"""The run's work directory, with spooled batches and slots. It is removed when the run ends, however it ends."""

from __future__ import annotations

import fcntl
import os
import re
import time
from pathlib import Path

import msgspec

from millrace import _core
from millrace.core.errors import MillraceError
from millrace.host import file_lock, lock_owner, work_places
from millrace.host.permissions import open_private_folder

#: Seconds after its creation in which the owner of an empty folder may not have locked it yet.
MAX_CREATION_SECONDS = 60.0

TOKEN_NAME = "MILLRACE_TOKEN"

#: File that names the owner of a work directory, on a filesystem without ``flock``.
OWNER = "owner"

#: A complete secret: a part of one could match many environments.
SECRET = re.compile(r"[0-9a-f]{16}")


class WorkDir(msgspec.Struct, frozen=True):
    """A private folder with ``spool/`` and ``slot-N/``; a lock on the folder itself shows that the run lives."""

    path: Path
    #: Random text that is part of the path and in every tool's environment.
    secret: str

    @property
    def token(self) -> str:
        """Return ``NAME=value`` for the environment of every tool."""
        return f"{TOKEN_NAME}={self.secret}"

    def make_folder(self) -> None:
        """Make the folder, and lock it as long as this process lives.

        Raises:
            MillraceError: It cannot be made.
        """
        try:
            self.path.mkdir(mode=0o700)
            # Never closed: the lock ends with the process, even after a kill.
            folder = open_private_folder(self.path)
            if file_lock.try_flock(folder, fcntl.LOCK_EX) is None:
                lock_owner.write_owner(self.path / OWNER)
            file_lock.wait_for_flock(folder, fcntl.LOCK_EX)  # another run's sweep may hold it for a moment
            # Another run's sweep may have removed the folder in between: then this fails.
            self.spool.mkdir()  # from here on ``is_being_made`` says no
        except OSError as error:
            raise MillraceError(
                f"{self.path}: the work directory cannot be made: {error.strerror}", "try again"
            ) from error

    @property
    def spool(self) -> Path:
        return self.path / "spool"

    def locate_slot(self, number: int) -> Path:
        return self.path / f"slot-{number}"


def choose_work_dir(place: Path) -> WorkDir:
    """Choose a work directory in ``place``, which is not made yet.

    First remove what dead runs of this user, or their MPI launchers, left in ``place`` and in all usual places.
    """
    for other in dict.fromkeys([place, *work_places.list_work_places()]):
        sweep_dead_runs(other)
    work_places.sweep_dead_folders()
    secret = os.urandom(8).hex()
    return WorkDir(place / f"{build_name_prefix()}{secret}", secret)


def sweep_dead_runs(place: Path) -> None:
    """Remove work directories of this user whose run is dead (its watchdog was killed too).

    Another user may make a folder by such a name, to make us kill processes with the secret in it: only one that is
    this user's alone, by its whole name, is a work directory.
    """
    for path in place.glob(f"{build_name_prefix()}*"):
        secret = path.name.removeprefix(build_name_prefix())
        if not SECRET.fullmatch(secret):
            continue
        try:
            folder = open_private_folder(path)
        except OSError:
            continue  # removed just now, or another's
        try:
            free = file_lock.try_flock(folder, fcntl.LOCK_EX)
            lives = lock_owner.is_owner_alive(path / OWNER) if free is None else not free
            if not lives and not is_being_made(folder):
                _core.sweep(path, f"{TOKEN_NAME}={secret}")
        finally:
            os.close(folder)


def is_being_made(folder: int) -> bool:
    """Tell whether the opened ``folder`` is new, and its owner may not have locked it yet."""
    try:
        os.stat("spool", dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return time.time() - os.fstat(folder).st_mtime < MAX_CREATION_SECONDS
    return False


def build_name_prefix() -> str:
    """Return the prefix of the names of all work directories of this user."""
    return f"millrace-work-{os.geteuid()}-"
