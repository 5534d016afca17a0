"""Location of a node's cached copies, the space that they may fill, and their list.

``millrace data`` shows the list, and verifies the copies.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from millrace.core.errors import MillraceError, RefusedError
from millrace.core.tool_use import FrozenValue
from millrace.host import memory_limits, work_places
from millrace.host.file_lock import IN_MEMORY, SHARED, find_filesystem_kind
from millrace.host.permissions import find_cache_folder
from millrace.storage import locations
from millrace.storage.cache.cache_download import CopyProvenance, hash_file
from millrace.storage.cache.cache_files import FOLDER, CacheSource, find_group_folder, make_provenance_path
from millrace.storage.cache.copy_cache import NodeCache
from millrace.storage.staging_choice import DISK_SHARE, MEMORY_SHARE


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
        return int(MEMORY_SHARE * memory_limits.read_usable_memory()[0])
    now = cache.hold_and_survey([])
    return int(DISK_SHARE * (now.free + now.idle)) + now.busy


#: Result for a copy whose bytes have changed since it was fetched.
DAMAGED = "damaged"


class CachedCopy(FrozenValue, frozen=True):
    """One copy in a cache."""

    path: str
    size: int
    is_whole: bool
    in_use: bool
    #: Its source; empty for copies of files on shared storage.
    place: str = ""
    version: str = ""
    sha256: str = ""
    day: str = ""


#: Folder of links to the places of copies that a user has named, in the user's cache folder.
REGISTRY = "copy-places"


def register_cache_place(place: Path, environ: Mapping[str, str]) -> None:
    """Register a place of copies, so that other processes and nodes find what is there; write errors are ignored."""
    if place in (find_disk_folder(), find_memory_folder()) or not (folder := find_cache_folder(environ)):
        return
    with suppress(OSError):
        (folder / REGISTRY).mkdir(parents=True, exist_ok=True)
        os.symlink(place, folder / REGISTRY / hashlib.sha256(os.fsencode(place)).hexdigest()[:16])


def list_cache_places(environ: Mapping[str, str]) -> list[Path]:
    """List the places of this node that may hold copies: disk, memory, and the registered ones that exist here."""
    found = [find_disk_folder(), find_memory_folder()]
    if folder := find_cache_folder(environ):
        with suppress(OSError):
            links = sorted((folder / REGISTRY).iterdir())
            found += [Path(os.readlink(link)) for link in links if link.is_symlink() and link.is_dir()]
    return [place for place in dict.fromkeys(found) if place]


def find_copies(sources: Iterable[CacheSource], environ: Mapping[str, str]) -> list[Path]:
    """Find the copies of any of ``sources`` on this node; the found ones count as just used."""
    wanted, found = list(sources), []
    for place in list_cache_places(environ):
        if any(place.glob(f"{FOLDER}*")):
            with suppress(OSError):
                for cache in open_caches([str(place)]):
                    found += [cache.make_copy_path(source) for source in wanted if cache.hold_copy(source)]
                    cache.close()
    return found


def open_caches(ways: Sequence[str]) -> list[NodeCache]:
    """Open the named caches, or all that this node may have.

    Raises:
        RefusedError: A named one does not exist.
    """
    places = [resolve_cache_folder(way) for way in ways] or list_cache_places(os.environ)
    return [
        NodeCache(place, fetched=fetched)
        for place in places
        for fetched in ((False, True) if find_group_folder(place) else (False,))
    ]


def list_copies(cache: NodeCache) -> list[CachedCopy]:
    """List the copies in a cache, sorted by path."""
    return sorted((_describe_copy(entry.path, entry.size, entry.is_whole, entry.in_use) for entry in cache.list_entries()), key=lambda copy: copy.path)  # fmt: skip


def _describe_copy(path: Path, size: int, is_whole: bool, in_use: bool) -> CachedCopy:
    with suppress(OSError, msgspec.MsgspecError):
        kept = msgspec.json.decode(make_provenance_path(path).read_bytes(), type=CopyProvenance)
        day = time.strftime("%Y-%m-%d", time.localtime(kept.when))
        return CachedCopy(path=str(path), size=size, is_whole=is_whole, in_use=in_use, place=kept.place, version=kept.version, sha256=kept.sha256, day=day)  # fmt: skip
    return CachedCopy(path=str(path), size=size, is_whole=is_whole, in_use=in_use)


def verify_copy(copy: CachedCopy) -> str:
    """Compare a copy with its digest and with the current version at its source; return the result in words."""
    descriptor = os.open(copy.path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if hash_file(descriptor, "sha256") != copy.sha256:
            return DAMAGED
    finally:
        os.close(descriptor)
    try:
        newest = locations.query_file_status(copy.place).version
    except MillraceError as error:
        return f"whole; its place cannot be asked: {error.message}"
    return "whole, and up to date" if newest == copy.version else "whole; its place has another version now"
