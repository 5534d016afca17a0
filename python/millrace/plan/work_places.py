"""Folders of this machine that can hold work directories: which there are, and which can be used."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from millrace.errors import RefusedError
from millrace.own import find_replacement_risk
from millrace.plan import filesystems

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
    return str(place) in MEMORY or filesystems.find_filesystem_kind(place) not in filesystems.SHARED


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
    if (found := filesystems.find_filesystem_kind(place)) in filesystems.SHARED:
        raise RefusedError(
            f"{place}: is on storage that machines share ({found})", "name a folder on a disk of this machine's own"
        )
    return place
