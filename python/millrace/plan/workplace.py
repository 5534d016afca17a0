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
from millrace.own import find_replacement_risk
from millrace.plan import filesystems, memory
from millrace.plan.folder_view import explain_missing_view
from millrace.schedule.sizing import MAX_BATCH_BYTES
from millrace.words import format_size

#: Memory filesystems, in the order in which they are tried.
MEMORY = ("/dev/shm", "/run/shm")

#: Folders on disk, tried after the one for temporary files.
DISKS = ("/var/tmp",)

#: The environment variable by which the user chooses a place.
VARIABLE = "MILLRACE_WORK"

#: Least free bytes of a usable place (a container's /dev/shm often has 64 MB).
MIN_FREE_BYTES = 256 << 20

#: Batches whose bytes a slot may hold: one that runs, one that waits, and their results.
BATCHES_PER_SLOT = 4

#: Largest share of memory that the batches of all slots may fill for memory to be a good place.
MAX_MEMORY_SHARE = 1 / 8


class WorkDirPlace(msgspec.Struct, frozen=True):
    """A folder for work directories, and the reason for it, in words."""

    path: Path
    why: str


def choose_work_place(wanted: str, slots: int, cwd: Path, batch_bytes: int = MAX_BATCH_BYTES) -> WorkDirPlace:
    """Choose the place of the work directory.

    Args:
        wanted: The folder that the user asks for; empty: none.
        slots: Tasks that run side by side.
        batch_bytes: Bytes of the largest batch.

    Raises:
        RefusedError: The user's folder cannot be used, or none can.
    """
    if wanted:
        return WorkDirPlace(check_work_place(cwd / wanted), "as asked")
    limit, source = memory.read_usable_memory()
    held = slots * BATCHES_PER_SLOT * batch_bytes
    tight = held > MAX_MEMORY_SHARE * limit
    words = f"{format_size(held)} for the slots would be much of the {format_size(limit)} that are the {source}"
    in_memory = [WorkDirPlace(place, "in memory") for place in list_memory_places()]
    on_disk = [WorkDirPlace(place, f"on disk: {words}" if tight else "on disk") for place in list_disk_places()]
    for place in on_disk + in_memory if tight else in_memory + on_disk:
        if is_usable_place(place.path):
            return place
    raise RefusedError(
        "no place for the work directory", "make /dev/shm or $TMPDIR writable, with 256 MB free, or name one with --work-dir"
    )  # fmt: skip


def choose_place_with_view(place: WorkDirPlace, cwd: Path, *, fixed: bool) -> tuple[WorkDirPlace, str]:
    """Return a place from which tasks see ``cwd`` itself, if there is one, and the reason why they do not, in words.

    Args:
        fixed: Whether ``place`` must be kept.
    """
    why = explain_missing_view(cwd, place.path)
    if why and not fixed:
        for other in dict.fromkeys([*list_memory_places(), *list_disk_places()]):
            if other != place.path and is_usable_place(other) and not explain_missing_view(cwd, other):
                return WorkDirPlace(other, "where what tasks write can lie over the working folder"), ""
    return place, why


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
