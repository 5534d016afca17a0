"""The cached copies of a node as ``millrace data`` lists and verifies them."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from millrace.errors import MillraceError
from millrace.model import FrozenValue
from millrace.storage import keep, locations
from millrace.storage.cache import NodeCache
from millrace.storage.cache_files import make_provenance_path
from millrace.storage.cache_folder import find_group_folder
from millrace.storage.fetch import CopyProvenance, hash_file

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


def open_caches(ways: Sequence[str]) -> list[NodeCache]:
    """Open the named caches, or all usual ones.

    Raises:
        RefusedError: A named one does not exist.
    """
    places = [keep.resolve_cache_folder(way) for way in ways] or [
        place for place in (keep.find_disk_folder(), keep.find_memory_folder()) if place
    ]
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
