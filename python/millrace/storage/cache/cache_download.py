"""Cached downloads of files behind URLs: one download a node, published only when complete.

An interrupted download continues where it was, also in another process after ``kill -9``. Size, version, and the
checksum where the server sends one, are compared before a copy is published. Its name contains the version.
"""

from __future__ import annotations

import errno
import hashlib
import os
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from urllib.parse import unquote, urlsplit

import msgspec

from millrace.core.errors import CorruptError, MillraceError
from millrace.core.tool_use import FrozenValue
from millrace.storage import cost_table, locations
from millrace.storage.cache.cache_files import BusyCopy, CacheSource, NoRoomError, PartialCopy
from millrace.storage.cache.copy_cache import NodeCache
from millrace.storage.clients.base import FileLocation, FileStatus, LocationError
from millrace.storage.locations import PieceLocation


class RemoteFile(FrozenValue, frozen=True):
    """One version of a file at a place."""

    place: str
    size: int
    version: str
    mtime_ns: int
    mode: int = 0o444
    #: Offset of its first byte if it is a piece of the file; None: the whole file.
    first: int | None = None

    @property
    def key(self) -> str:
        """Name of its copies, the same as long as the file is unchanged."""
        words = f"{self.place}\0{self.version}" + ("" if self.first is None else f"\0{self.first}")
        digest = hashlib.sha256(words.encode(errors="surrogateescape")).hexdigest()
        return f"{digest[:24]}.{self.size:x}-{extract_base_name(self.place)[-80:]}"


class CopyProvenance(FrozenValue, frozen=True):
    """The provenance of a copy."""

    #: The source, without credentials.
    place: str
    version: str
    sha256: str
    #: When it was fetched, in seconds since 1970.
    when: float


def extract_base_name(place: str) -> str:
    """Return the file's name without its folder."""
    return os.path.basename(unquote(urlsplit(place, allow_fragments=False).path)) or "file"


def make_remote_file(place: str, about: FileStatus, first: int | None = None) -> RemoteFile:
    """Make the remote file, or piece of a file, of the version in ``about``."""
    return RemoteFile(place=place, size=about.size, version=about.version, mtime_ns=about.mtime_ns, first=first)


def fetch_to_cache(
    place: str, cache: NodeCache, budget: int, pause: Callable[[float], None] = time.sleep, wanted: FileStatus | None = None,
    first: int | None = None,
) -> Path:  # fmt: skip
    """Return the copy of a file, held until the cache is closed; download it if missing.

    Args:
        budget: Most bytes that all copies may fill.
        wanted: The version to fetch; None: the current one.
        first: Fetch a piece that begins at this offset and has the size of ``wanted``; None: the whole file.

    Raises:
        MillraceError: It cannot be read, does not fit, or changed during the download.
    """
    with closing(_open_piece(place, first, wanted)) as location:
        about = location.query_status()
        if wanted and (about.size, about.version) != (wanted.size, wanted.version):
            raise location.make_changed_error()
        if not about.version:
            raise LocationError(
                f"{location.shown}: its server tells neither ETag nor date, so nobody could say whether a copy is up to date",
                "copy it by hand, or bring it to another server",
            )
        file = make_remote_file(place, about, first)
        while True:
            try:
                claimed = cache.claim_copy(file, budget)
            except NoRoomError as error:
                raise make_no_room_error(file, location.shown, file.size) from error
            if claimed is None:
                return cache.make_copy_path(file)
            if isinstance(claimed, BusyCopy):
                claimed.wait()
            else:
                _fill_part(location, about, claimed, cache, pause)
                cache.publish_part(claimed)


def _open_piece(place: str, first: int | None, wanted: FileStatus | None) -> FileLocation:
    location = locations.open_location(place)
    return PieceLocation(location, first, wanted.size) if first is not None and wanted else location


def _fill_part(
    location: FileLocation, about: FileStatus, part: PartialCopy, cache: NodeCache, pause: Callable[[float], None]
) -> None:
    """Complete a copy. After an error it is kept for another process to continue, or dropped if it is wrong."""
    try:
        began, there = time.monotonic(), os.fstat(part.descriptor).st_size
        _download_missing(location, about, part.descriptor, pause)
        cost_table.learn_from_transfer(location.url, about.size - there, time.monotonic() - began, os.environ)
        digest = _check_copy(location, about, part.descriptor)
        os.fsync(part.descriptor)
        kept = CopyProvenance(place=location.shown, version=about.version, sha256=digest, when=time.time())
        cache.write_provenance(part.file, msgspec.json.encode(kept))
    except CorruptError:
        cache.discard_part(part)
        raise
    except OSError as error:
        cache.discard_part(part)
        if is_disk_full(error):
            raise make_no_room_error(part.file, location.shown, part.file.size) from error
        raise
    except BaseException:
        cache.release_part(part)
        raise


def _download_missing(
    location: FileLocation, about: FileStatus, descriptor: int, pause: Callable[[float], None]
) -> None:
    """Append the missing bytes; the length of the copy is the number of bytes fetched."""
    for at, piece in location.stream_with_retries([(os.fstat(descriptor).st_size, about.size)], about, pause):
        append_piece(descriptor, piece, at)


def append_piece(descriptor: int, piece: bytes, at: int) -> int:
    """Write all of a piece at an offset; return its length."""
    done = 0
    while done < len(piece):
        done += os.pwrite(descriptor, memoryview(piece)[done:], at + done)
    return done


def _check_copy(location: FileLocation, about: FileStatus, descriptor: int) -> str:
    """Compare size and checksum of a copy; return its SHA-256."""
    if os.fstat(descriptor).st_size != about.size:
        raise CorruptError(f"{location.shown}: gave more than {about.size:,} bytes", "try again, or use another place")
    digest = hash_file(descriptor, "sha256")
    kind, _, wanted = about.checksum.partition(":")
    if kind and wanted != (digest if kind == "sha256" else hash_file(descriptor, kind)):
        raise CorruptError(
            f"{location.shown}: what came has another checksum than the server says", "try again, or use another place"
        )
    return digest


def hash_file(descriptor: int, kind: str) -> str:
    """Compute the digest of a whole file."""
    with open(os.dup(descriptor), "rb", buffering=0) as file:
        file.seek(0)
        return hashlib.file_digest(file, kind).hexdigest()


def is_disk_full(error: OSError) -> bool:
    """Tell whether an error means that the disk or the quota is full."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def make_no_room_error(file: CacheSource, place: str, size: int) -> MillraceError:
    """Make the error for a copy that does not fit."""
    words = f"for its {size:,} bytes" if size else "for what is in it"
    return MillraceError(
        f"{file.key.partition('-')[2] or place}: no room {words}",
        "see: millrace data list; make room: millrace data evict",
    )
