"""Folders of this machine for work directories, and those of an MPI launcher for its own files.

A name that is used twice can be taken by another user in between. So each start of a job has a fresh launcher folder.
The supervisor makes it on its own node, the launcher's daemons on the others, and each rank checks the folder's owner
before it starts MPI. The supervisor and the ranks hold a shared lock until they end, by which a later run tells a
folder in use from that of a dead job.
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

from millrace.core.errors import LostError, RefusedError
from millrace.host import file_lock
from millrace.host.permissions import find_replacement_risk, open_private_folder

#: Memory filesystems, in the order in which they are tried.
MEMORY = ("/dev/shm", "/run/shm")

#: Folders on disk, tried after the one for temporary files.
DISKS = ("/var/tmp",)

#: The environment variable by which the user chooses a place.
VARIABLE = "MILLRACE_WORK"

#: Least free bytes of a usable place (a container's /dev/shm often has 64 MB).
MIN_FREE_BYTES = 256 << 20


def read_wanted_place(environ: Mapping[str, str]) -> str:
    """Return the folder that the environment names; empty: none."""
    return environ.get(VARIABLE, "")


def list_work_places(wanted: str = "") -> list[Path]:
    """List the folders that may hold work directories, of this run or of earlier ones."""
    return [*([Path(wanted)] if wanted else []), *list_memory_places(), *list_disk_places()]


def list_memory_places() -> list[Path]:
    """List the folders in memory that exist."""
    return [Path(place) for place in MEMORY if os.path.isdir(place)]


def list_disk_places() -> list[Path]:
    """List the folders that exist and are usually on disk."""
    return [Path(place) for place in dict.fromkeys([find_temporary_folder(), *DISKS]) if os.path.isdir(place)]


def find_temporary_folder() -> str:
    """Return Python's folder for temporary files, but without its test file, which a kill would leave there."""
    named = (os.environ.get(name, "") for name in ("TMPDIR", "TEMP", "TMP"))
    for place in (*filter(None, named), "/tmp"):
        if os.path.isdir(place) and os.access(place, os.W_OK | os.X_OK):
            return os.path.abspath(place)
    return DISKS[0]


def is_usable_place(place: Path) -> bool:
    """Tell whether a work directory can be made in ``place``: writable, trusted, with room, not on shared storage."""
    if (
        not os.access(place, os.W_OK | os.X_OK)
        or find_replacement_risk(place)
        or shutil.disk_usage(place).free < MIN_FREE_BYTES
    ):
        return False
    return str(place) in MEMORY or file_lock.find_filesystem_kind(place) not in file_lock.SHARED


def check_work_place(place: Path) -> Path:
    """Return the folder that the user asks for, if it is usable.

    Raises:
        RefusedError: It is not.
    """
    if not place.is_dir():
        raise RefusedError(f"{place}: no such folder for the work directory", "name one that is there on each node")
    if not os.access(place, os.W_OK | os.X_OK):
        raise RefusedError(
            f"{place}: the work directory cannot be made there: permission denied", "name another folder"
        )
    if why := find_replacement_risk(place):
        raise RefusedError(
            f"{place}: no place for the work directory: {why}", "name another folder, or make one of your own there"
        )
    if (found := file_lock.find_filesystem_kind(place)) in file_lock.SHARED:
        raise RefusedError(
            f"{place}: is on storage that machines share ({found})", "name a folder on a disk of this machine's own"
        )
    return place


#: A folder in which daemons on all nodes can make one.
PLACE = Path("/tmp")

#: Prefix of all names, and the whole name: the tokens of the job and of the start.
PREFIX = "millrace-mpi-"
NAME = re.compile(rf"{PREFIX}[0-9a-f]{{16}}-[0-9a-f]{{16}}")

#: Environment variable with the path of a rank's folder.
LAUNCHER_VARIABLE = "MILLRACE_MPI_FOLDER"

#: Age from which an unlocked folder is that of a dead start.
START_GRACE_SECONDS = 600.0


class LauncherFolder:
    """The folder of one start, on this node."""

    def __init__(self, token: str) -> None:
        self.path = PLACE / f"{PREFIX}{token}-{os.urandom(8).hex()}"
        # The name is random: it is not taken by chance.
        self.path.mkdir(mode=0o700)
        self._held = _lock_folder(self.path)

    def close(self) -> None:
        """Remove the folder."""
        remove_own_folder(self.path)
        os.close(self._held)


def hold_start_folder(environ: Mapping[str, str]) -> None:
    """Hold the folder of the start that this rank belongs to; do nothing if it has none.

    Raises:
        LostError: It is another user's, who could change the files that this process reads there.
    """
    if path := environ.get(LAUNCHER_VARIABLE):
        try:
            _lock_folder(Path(path))  # never closed: the lock ends with the process
        except OSError as error:
            raise LostError(
                f"{path}: the folder of the MPI launcher cannot be trusted: {error.strerror}",
                "the next start takes another; who has made it? ls -ld",
            ) from error


def _lock_folder(path: Path) -> int:
    folder = open_private_folder(path)
    with suppress(OSError):  # without locks, nothing is swept
        fcntl.flock(folder, fcntl.LOCK_SH)
    return folder


def make_path_prefix(token: str) -> str:
    """Return the prefix of the paths of a job's folders, which marks its daemons by their arguments."""
    return f"{PLACE}/{PREFIX}{token}-"


def sweep_job_folders(token: str) -> None:
    """Remove the folders of a job whose processes on this node have all ended."""
    for path in _list_folders():
        if str(path).startswith(make_path_prefix(token)):
            remove_own_folder(path)


def sweep_dead_folders() -> None:
    """Remove folders that dead jobs of this user have left, after scancel or the loss of a node."""
    for path in _list_folders():
        with suppress(OSError):  # another's, in use, or removed just now
            folder = open_private_folder(path)
            try:
                fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if time.time() - os.fstat(folder).st_mtime > START_GRACE_SECONDS:
                    shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(folder)


def _list_folders() -> list[Path]:
    return [path for path in PLACE.glob(f"{PREFIX}*") if NAME.fullmatch(path.name)]


def remove_own_folder(path: Path) -> None:
    """Remove a folder if it belongs to this user alone."""
    with suppress(OSError):
        os.close(open_private_folder(path))
        shutil.rmtree(path, ignore_errors=True)
