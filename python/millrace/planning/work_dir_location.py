"""Location of the work directory: batches and slots, with everything that tools write until it is committed.

Memory is the fastest place. But files there count against the memory limit of a batch job or container, and the kernel
cannot reclaim them for the tools; where the limit is tight, a disk is the better place.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from millrace.core.errors import RefusedError
from millrace.core.text_format import format_size
from millrace.host import memory_limits
from millrace.host.work_places import check_work_place, is_usable_place, list_disk_places, list_memory_places
from millrace.planning.folder_view import explain_missing_view
from millrace.scheduler.batch_sizing import MAX_BATCH_BYTES

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
    limit, source = memory_limits.read_usable_memory()
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
