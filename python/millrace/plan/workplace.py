"""Location of the work directory: batches and slots, with everything that tools write until it is committed.

Memory is the fastest place. But files there count against the memory limit of a batch job or container, and the kernel
cannot reclaim them for the tools; where the limit is tight, a disk is the better place.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import msgspec

from millrace.errors import RefusedError
from millrace.own import why_open
from millrace.plan import filesystems, memory
from millrace.plan.folder_view import why_not
from millrace.schedule.sizing import MOST_BYTES
from millrace.words import size

#: Memory filesystems, in the order in which they are tried.
MEMORY = ("/dev/shm", "/run/shm")

#: Folders on disk, tried after the one for temporary files.
DISKS = ("/var/tmp",)

#: The environment variable by which the user chooses a place.
VARIABLE = "MILLRACE_WORK"

#: Least free bytes of a usable place (a container's /dev/shm often has 64 MB).
LEAST_FREE_BYTES = 256 << 20

#: Batches whose bytes a slot may hold: one that runs, one that waits, and their results.
BATCHES = 4

#: Largest share of memory that the batches of all slots may fill for memory to be a good place.
PART = 1 / 8


class Place(msgspec.Struct, frozen=True):
    """A folder for work directories, and the reason for it, in words."""

    path: Path
    why: str


def find(wanted: str, slots: int, cwd: Path, batch_bytes: int = MOST_BYTES) -> Place:
    """Choose the place of the work directory.

    Args:
        wanted: The folder that the user asks for; empty: none.
        slots: Tasks that run side by side.
        batch_bytes: Bytes of the largest batch.

    Raises:
        RefusedError: The user's folder cannot be used, or none can.
    """
    if wanted:
        return Place(checked(cwd / wanted), "as asked")
    limit, source = memory.usable()
    held = slots * BATCHES * batch_bytes
    tight = held > PART * limit
    words = f"{size(held)} for the slots would be much of the {size(limit)} that are the {source}"
    in_memory = [Place(place, "in memory") for place in memory_places()]
    on_disk = [Place(place, f"on disk: {words}" if tight else "on disk") for place in disk_places()]
    for place in on_disk + in_memory if tight else in_memory + on_disk:
        if is_usable(place.path):
            return place
    raise RefusedError(
        "no place for the work directory", "make /dev/shm or $TMPDIR writable, with 256 MB free, or name one with --work-dir"
    )  # fmt: skip


def with_view(place: Place, cwd: Path, *, fixed: bool) -> tuple[Place, str]:
    """Return a place from which tasks see ``cwd`` itself, if there is one, and the reason why they do not, in words.

    Args:
        fixed: Whether ``place`` must be kept.
    """
    why = why_not(cwd, place.path)
    if why and not fixed:
        for other in dict.fromkeys([*memory_places(), *disk_places()]):
            if other != place.path and is_usable(other) and not why_not(cwd, other):
                return Place(other, "where what tasks write can lie over the working folder"), ""
    return place, why


def wanted_here(environ: Mapping[str, str]) -> str:
    """Return the folder that the environment names; empty: none."""
    return environ.get(VARIABLE, "")


def candidates(wanted: str = "") -> list[Path]:
    """List the folders that may hold work directories, of this run or of earlier ones."""
    return [*([Path(wanted)] if wanted else []), *memory_places(), *disk_places()]


def memory_places() -> list[Path]:
    """List the folders in memory that exist."""
    return [Path(place) for place in MEMORY if os.path.isdir(place)]


def disk_places() -> list[Path]:
    """List the folders that exist and are usually on disk."""
    return [Path(place) for place in dict.fromkeys([temporary(), *DISKS]) if os.path.isdir(place)]


def temporary() -> str:
    """Return Python's folder for temporary files, but without its test file, which a kill would leave there."""
    named = (os.environ.get(name, "") for name in ("TMPDIR", "TEMP", "TMP"))
    for place in (*filter(None, named), "/tmp"):
        if os.path.isdir(place) and os.access(place, os.W_OK | os.X_OK):
            return os.path.abspath(place)
    return DISKS[0]


def is_usable(place: Path) -> bool:
    """Tell whether a work directory can be made in ``place``: writable, trusted, with room, not on shared storage."""
    if not os.access(place, os.W_OK | os.X_OK) or why_open(place) or shutil.disk_usage(place).free < LEAST_FREE_BYTES:
        return False
    return str(place) in MEMORY or filesystems.kind(place) not in filesystems.SHARED


def checked(place: Path) -> Path:
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
    if why := why_open(place):
        raise RefusedError(
            f"{place}: no place for the work directory: {why}", "name another folder, or make one of your own there"
        )
    if (found := filesystems.kind(place)) in filesystems.SHARED:
        raise RefusedError(
            f"{place}: is on storage that machines share ({found})", "name a folder on a disk of this machine's own"
        )
    return place
