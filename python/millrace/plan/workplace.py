"""Where a run keeps its work directory: batches and slots, with all that tools write until it is committed.

In memory that costs least. But what lies there counts against the memory limit of a batch job or container, and is
never given back for the tools; where the limit is tight, a disk is the better place.
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

#: Folders on disk that are tried after the temporary one.
DISKS = ("/var/tmp",)

#: The environment variable by which the user chooses a place.
VARIABLE = "MILLRACE_WORK"

#: Free bytes below which a place is passed over (a container's /dev/shm often has 64 MB).
LEAST_FREE_BYTES = 256 << 20

#: Batches whose bytes a slot may hold: one at work and one that waits, and their results.
BATCHES = 4

#: Part of the memory that all slots may hold together for it to be a good place.
PART = 1 / 8


class Place(msgspec.Struct, frozen=True):
    """A folder for work directories, and why this one, in words."""

    path: Path
    why: str


def find(wanted: str, slots: int, cwd: Path, batch_bytes: int = MOST_BYTES) -> Place:
    """Choose a place.

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
    """The place, or another one if tasks whose files lie there see ``cwd`` as it is; and why they do not, in words.

    Args:
        fixed: It cannot be another one.
    """
    why = why_not(cwd, place.path)
    if why and not fixed:
        for other in dict.fromkeys([*memory_places(), *disk_places()]):
            if other != place.path and is_usable(other) and not why_not(cwd, other):
                return Place(other, "where what tasks write can lie over the working folder"), ""
    return place, why


def wanted_here(environ: Mapping[str, str]) -> str:
    """The folder that the environment asks for."""
    return environ.get(VARIABLE, "")


def candidates(wanted: str = "") -> list[Path]:
    """Folders that may hold work directories, of this run or of earlier ones."""
    return [*([Path(wanted)] if wanted else []), *memory_places(), *disk_places()]


def memory_places() -> list[Path]:
    """Those in memory."""
    return [Path(place) for place in MEMORY if os.path.isdir(place)]


def disk_places() -> list[Path]:
    """Those that are on disk, as a rule."""
    return [Path(place) for place in dict.fromkeys([temporary(), *DISKS]) if os.path.isdir(place)]


def temporary() -> str:
    """The folder for temporary files: what Python would take. It tries by making a file, which a kill would leave there."""
    named = (os.environ.get(name, "") for name in ("TMPDIR", "TEMP", "TMP"))
    for place in (*filter(None, named), "/tmp"):
        if os.path.isdir(place) and os.access(place, os.W_OK | os.X_OK):
            return os.path.abspath(place)
    return DISKS[0]


def is_usable(place: Path) -> bool:
    """Whether a work directory may be made in ``place``: it can be written, has room, and no other machine sees it."""
    if not os.access(place, os.W_OK | os.X_OK) or why_open(place) or shutil.disk_usage(place).free < LEAST_FREE_BYTES:
        return False
    return str(place) in MEMORY or filesystems.kind(place) not in filesystems.SHARED


def checked(place: Path) -> Path:
    """The folder that the user asks for, if it can be used.

    Raises:
        RefusedError: It cannot.
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
