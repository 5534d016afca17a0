"""The location of a node's cached copies, and the space that they may fill."""

from __future__ import annotations

import os
from pathlib import Path

from millrace.errors import RefusedError
from millrace.plan import memory, work_places
from millrace.plan.filesystems import IN_MEMORY, SHARED, find_filesystem_kind
from millrace.plan.staging import DISK_SHARE, MEMORY_SHARE
from millrace.storage.cache import NodeCache


def find_memory_folder() -> Path | None:
    """Return the folder for copies in memory; None: there is none."""
    for place in work_places.MEMORY:
        if os.path.isdir(place) and os.access(place, os.W_OK | os.X_OK):
            return Path(place)
    return None


def find_disk_folder() -> Path | None:
    """Return the folder for temporary files if it is on the node's own disk, else None."""
    place = Path(work_places.find_temporary_folder())
    return None if find_filesystem_kind(place) in SHARED | IN_MEMORY else place


def resolve_cache_folder(way: str) -> Path:
    """Return the folder that ``ram``, ``disk`` or an absolute path means.

    Raises:
        RefusedError: There is no such folder.
    """
    found = (
        Path(way)
        if way.startswith("/")
        else {"ram": find_memory_folder, "disk": find_disk_folder}.get(way, lambda: None)()
    )
    if found is None or not found.is_dir():
        raise RefusedError(
            f"{way}: no place for copies here", "name ram, disk, or the absolute path of a folder that is there"
        )
    return found


def compute_budget_bytes(cache: NodeCache) -> int:
    """Compute the most bytes that all copies in a folder may fill.

    Half of the memory, or nine tenths of the disk space that is free or used by idle copies, plus the copies in use.
    """
    if find_filesystem_kind(cache.folder) in IN_MEMORY:
        return int(MEMORY_SHARE * memory.read_usable_memory()[0])
    now = cache.hold_and_survey([])
    return int(DISK_SHARE * (now.free + now.idle)) + now.busy
