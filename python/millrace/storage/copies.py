"""The cached copies of a node as ``millrace data`` lists and verifies them."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from millrace.errors import MillraceError
from millrace.model import Frozen
from millrace.storage import keep, locations
from millrace.storage.cache import Cache
from millrace.storage.cache_files import about_of
from millrace.storage.cache_folder import of_group
from millrace.storage.fetch import Kept, digest_of

#: Result for a copy whose bytes have changed since it was fetched.
DAMAGED = "damaged"


class Copy(Frozen, frozen=True):
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


def caches(ways: Sequence[str]) -> list[Cache]:
    """Open the named caches, or all usual ones.

    Raises:
        RefusedError: A named one does not exist.
    """
    places = [keep.place(way) for way in ways] or [place for place in (keep.on_disk(), keep.in_memory()) if place]
    return [
        Cache(place, fetched=fetched)
        for place in places
        for fetched in ((False, True) if of_group(place) else (False,))
    ]


def of(cache: Cache) -> list[Copy]:
    """List the copies in a cache, sorted by path."""
    return sorted((_copy(entry.path, entry.size, entry.is_whole, entry.in_use) for entry in cache.entries()), key=lambda copy: copy.path)  # fmt: skip


def _copy(path: Path, size: int, is_whole: bool, in_use: bool) -> Copy:
    with suppress(OSError, msgspec.MsgspecError):
        kept = msgspec.json.decode(about_of(path).read_bytes(), type=Kept)
        day = time.strftime("%Y-%m-%d", time.localtime(kept.when))
        return Copy(path=str(path), size=size, is_whole=is_whole, in_use=in_use, place=kept.place, version=kept.version, sha256=kept.sha256, day=day)  # fmt: skip
    return Copy(path=str(path), size=size, is_whole=is_whole, in_use=in_use)


def verify(copy: Copy) -> str:
    """Compare a copy with its digest and with the current version at its source; return the result in words."""
    descriptor = os.open(copy.path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if digest_of(descriptor, "sha256") != copy.sha256:
            return DAMAGED
    finally:
        os.close(descriptor)
    try:
        newest = locations.about(copy.place).version
    except MillraceError as error:
        return f"whole; its place cannot be asked: {error.message}"
    return "whole, and up to date" if newest == copy.version else "whole; its place has another version now"
