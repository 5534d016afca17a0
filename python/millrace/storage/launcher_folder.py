"""Folders in which an MPI launcher and its daemons keep their files on a node: one for each start of a job.

A name that is used twice can be taken by somebody else in between. So each start has a fresh one, the supervisor makes
the folder on its own node, the launcher's daemons on the others, and each rank looks whose it is before it starts MPI. Whoever
has looked holds a lock until it ends, by which a later run tells the folder from one of a dead job.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from millrace.errors import LostError
from millrace.own import open_private

#: Where daemons on all nodes can make one.
PLACE = Path("/tmp")

#: How all names begin, and a name in full: the tokens of the job and of the start.
PREFIX = "millrace-mpi-"
NAME = re.compile(rf"{PREFIX}[0-9a-f]{{16}}-[0-9a-f]{{16}}")

#: Environment variable that tells a rank of the folder of its start.
VARIABLE = "MILLRACE_MPI_FOLDER"

#: Seconds within which a start has come so far that somebody holds its folder, or has ended.
BEGUN_SECONDS = 600.0


class LauncherFolder:
    """The folder of one start, on this node."""

    def __init__(self, token: str) -> None:
        self.path = PLACE / f"{PREFIX}{token}-{os.urandom(8).hex()}"
        # A name that is taken is not random: this never happens by chance.
        self.path.mkdir(mode=0o700)
        self._held = _hold(self.path)

    def close(self) -> None:
        """Remove it."""
        remove(self.path)
        os.close(self._held)


def check(environ: Mapping[str, str]) -> None:
    """Take the folder of the start that this rank belongs to into use; without one, nothing.

    Raises:
        LostError: It is somebody else's, who could change what this process reads there.
    """
    if path := environ.get(VARIABLE):
        try:
            _hold(Path(path))  # never closed: the lock ends with the process
        except OSError as error:
            raise LostError(
                f"{path}: the folder of the MPI launcher cannot be trusted: {error.strerror}",
                "the next start takes another; who has made it? ls -ld",
            ) from error


def _hold(path: Path) -> int:
    folder = open_private(path)
    with suppress(OSError):  # where there are no locks, nothing is swept
        fcntl.flock(folder, fcntl.LOCK_SH)
    return folder


def beginning(token: str) -> str:
    """How the paths of all folders of a job begin, which marks its daemons by their arguments."""
    return f"{PLACE}/{PREFIX}{token}-"


def sweep_job(token: str) -> None:
    """Remove the folders of a job, all of whose processes here have ended."""
    for path in _named():
        if str(path).startswith(beginning(token)):
            remove(path)


def sweep_dead() -> None:
    """Remove what dead jobs of this user have left: by scancel, by a lost node."""
    for path in _named():
        with suppress(OSError):  # another's, in use, or removed just now
            folder = open_private(path)
            try:
                fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if time.time() - os.fstat(folder).st_mtime > BEGUN_SECONDS:
                    shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(folder)


def _named() -> list[Path]:
    return [path for path in PLACE.glob(f"{PREFIX}*") if NAME.fullmatch(path.name)]


def remove(path: Path) -> None:
    """Remove a folder if it is this user's alone."""
    with suppress(OSError):
        os.close(open_private(path))
        shutil.rmtree(path, ignore_errors=True)
