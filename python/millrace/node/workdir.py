"""The run's work directory in memory: spooled batches and slots. Gone when the run ends, however it ends."""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from millrace import _core
from millrace.errors import MillraceError

#: Memory filesystems tried in this order before the temporary directory.
MEMORY = ("/dev/shm", "/run/shm")

#: Free bytes below which a memory filesystem is passed over (a container's /dev/shm often has 64 MB).
LEAST_FREE = 256 << 20

TOKEN_NAME = "MILLRACE_TOKEN"


@dataclass
class WorkDir:
    """A private folder with ``spool/`` and ``slot-N/``; its lock says that the run lives."""

    path: Path
    #: Random text that is part of the path and in every tool's environment.
    secret: str
    lock: int

    @property
    def token(self) -> str:
        """``NAME=value`` in the environment of every tool."""
        return f"{TOKEN_NAME}={self.secret}"

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


def make() -> WorkDir:
    """Make a work directory where memory is, and sweep away what dead runs of this user left there.

    Raises:
        MillraceError: There is no place to write.
    """
    for place in candidates():
        sweep_dead(place)
        if not is_usable(place):
            continue
        secret = secrets.token_hex(8)
        path = place / f"{_prefix()}{secret}"
        path.mkdir(mode=0o700)
        lock = os.open(path / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        work = WorkDir(path, secret, lock)
        work.spool.mkdir()
        return work
    raise MillraceError("no place for the work directory", "make /dev/shm or $TMPDIR writable, with 256 MB free")


def sweep_dead(place: Path) -> None:
    """Remove work directories of this user whose run is dead (its watchdog was killed too)."""
    for path in place.glob(f"{_prefix()}*"):
        try:
            lock = os.open(path / "lock", os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            continue  # being made or removed right now
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            continue
        else:
            _core.sweep(path, f"{TOKEN_NAME}={path.name.removeprefix(_prefix())}")
        finally:
            os.close(lock)


def _prefix() -> str:
    return f"millrace-{os.getuid()}-"
