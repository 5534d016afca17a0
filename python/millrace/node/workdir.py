"""The run's work directory in memory: spooled batches and slots. Gone when the run ends, however it ends."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from millrace import _core
from millrace.errors import MillraceError

#: Memory filesystems tried in this order before the temporary directory.
MEMORY = ("/dev/shm", "/run/shm")

#: Free bytes below which a memory filesystem is passed over (a container's /dev/shm often has 64 MB).
LEAST_FREE = 256 << 20

#: How long after it was made a folder without anything in it may be someone's who is about to take it.
BEGUN_SECONDS = 60.0

TOKEN_NAME = "MILLRACE_TOKEN"


@dataclass(frozen=True)
class WorkDir:
    """A private folder with ``spool/`` and ``slot-N/``; a lock on the folder itself says that the run lives."""

    path: Path
    #: Random text that is part of the path and in every tool's environment.
    secret: str

    @property
    def token(self) -> str:
        """``NAME=value`` in the environment of every tool."""
        return f"{TOKEN_NAME}={self.secret}"

    def make(self) -> None:
        """Make the folder, and take it for as long as this process lives.

        Raises:
            MillraceError: It cannot be made.
        """
        try:
            self.path.mkdir(mode=0o700)
            # Never closed: the lock ends with the process, whatever ends it.
            lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            fcntl.flock(lock, fcntl.LOCK_EX)
            # Another run's sweep may have taken the folder for a dead one in between: then this fails.
            self.spool.mkdir()  # from here on `is_begun` says no
        except OSError as error:
            raise MillraceError(
                f"{self.path}: the work directory cannot be made: {error.strerror}", "try again"
            ) from error

    @property
    def spool(self) -> Path:
        return self.path / "spool"

    def slot(self, number: int) -> Path:
        return self.path / f"slot-{number}"


def candidates() -> list[Path]:
    """Folders that could hold work directories, best first."""
    return [Path(place) for place in MEMORY if os.path.isdir(place)] + [Path(tempfile.gettempdir())]


def is_usable(place: Path) -> bool:
    """Whether a work directory may be made in ``place``."""
    if not os.access(place, os.W_OK | os.X_OK):
        return False
    return str(place) not in MEMORY or shutil.disk_usage(place).free >= LEAST_FREE


def choose() -> WorkDir:
    """Choose a place where memory is, and sweep away what dead runs of this user left in any.

    Raises:
        MillraceError: There is no place to write.
    """
    places = candidates()
    for place in places:
        sweep_dead(place)
    for place in places:
        if not is_usable(place):
            continue
        secret = os.urandom(8).hex()
        return WorkDir(place / f"{prefix()}{secret}", secret)
    raise MillraceError("no place for the work directory", "make /dev/shm or $TMPDIR writable, with 256 MB free")


def sweep_dead(place: Path) -> None:
    """Remove work directories of this user whose run is dead (its watchdog was killed too)."""
    for path in place.glob(f"{prefix()}*"):
        try:
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            continue  # removed just now, or not ours
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            continue
        else:
            if is_begun(path):
                continue
            _core.sweep(path, f"{TOKEN_NAME}={path.name.removeprefix(prefix())}")
        finally:
            os.close(lock)


def is_begun(path: Path) -> bool:
    """Whether ``path`` looks as if its owner were about to make a work directory of it, and had not yet locked it."""
    try:
        return not (path / "spool").exists() and time.time() - path.stat().st_mtime < BEGUN_SECONDS
    except OSError:
        return False


def prefix() -> str:
    """How the names of all work directories of this user begin."""
    return f"millrace-work-{os.getuid()}-"
