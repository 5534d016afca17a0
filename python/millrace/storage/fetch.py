"""Copies of files behind URLs in the cache of this node: each is downloaded once, whoever asks, and is whole or not there.

A download that is cut off goes on where it was, also in another process after ``kill -9``. Size, version, and the
checksum where the server tells one, are compared before a copy gets its name; its name says of which version it is.
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

from millrace.errors import CorruptError, MillraceError
from millrace.model import Frozen
from millrace.storage import cost_table, locations
from millrace.storage.cache import Cache
from millrace.storage.cache_files import Busy, File, NoRoom, Part
from millrace.storage.clients.base import About, Location, LocationError, UnreachableError
from millrace.storage.piece import Piece

#: Times that a server may fail to go on, one after the other.
TRIES = 5

#: Seconds before the second try, twice as many before each further one.
PAUSE_SECONDS = 0.2


class Remote(Frozen, frozen=True):
    """One version of a file at a place."""

    place: str
    size: int
    version: str
    mtime_ns: int
    mode: int = 0o444
    #: Offset of its first byte, where it is a piece of the file; None: it is the whole.
    first: int | None = None

    @property
    def key(self) -> str:
        """Name of its copies: the same as long as the file is."""
        words = f"{self.place}\0{self.version}" + ("" if self.first is None else f"\0{self.first}")
        digest = hashlib.sha256(words.encode(errors="surrogateescape")).hexdigest()
        return f"{digest[:24]}.{self.size:x}-{base_name(self.place)[-80:]}"


class Kept(Frozen, frozen=True):
    """What is known of a copy."""

    #: As everybody may see it.
    place: str
    version: str
    sha256: str
    #: When it was fetched, in seconds since 1970.
    when: float


def base_name(place: str) -> str:
    """The file's name without its folder."""
    return os.path.basename(unquote(urlsplit(place, allow_fragments=False).path)) or "file"


def remote(place: str, about: About, first: int | None = None) -> Remote:
    """The version of a file, or of a piece of it, that ``about`` tells of."""
    return Remote(place=place, size=about.size, version=about.version, mtime_ns=about.mtime_ns, first=first)


def fetch(
    place: str, cache: Cache, budget: int, pause: Callable[[float], None] = time.sleep, wanted: About | None = None,
    first: int | None = None,
) -> Path:  # fmt: skip
    """The copy of a file, in use until the cache is closed; downloaded if it is not there.

    Args:
        budget: Most bytes that all copies may fill.
        wanted: The version that is meant; None: that which is there now.
        first: Fetch a piece of the file that begins at this offset, and has the size of ``wanted``; None: all of it.

    Raises:
        MillraceError: It cannot be read, does not fit, or changed meanwhile.
    """
    with closing(_at(place, first, wanted)) as location:
        about = location.about()
        if wanted and (about.size, about.version) != (wanted.size, wanted.version):
            raise location.changed()
        if not about.version:
            raise LocationError(
                f"{location.shown}: its server tells neither ETag nor date, so nobody could say whether a copy is up to date",
                "copy it by hand, or bring it to another server",
            )
        file = remote(place, about, first)
        while True:
            try:
                claimed = cache.claim(file, budget)
            except NoRoom as error:
                raise no_room(file, location.shown, file.size) from error
            if claimed is None:
                return cache.path_of(file)
            if isinstance(claimed, Busy):
                claimed.wait()
            else:
                _fill(location, about, claimed, cache, pause)
                cache.finish(claimed)


def _at(place: str, first: int | None, wanted: About | None) -> Location:
    location = locations.at(place)
    return Piece(location, first, wanted.size) if first is not None and wanted else location


def _fill(location: Location, about: About, part: Part, cache: Cache, pause: Callable[[float], None]) -> None:
    """Bring a copy to its end. What others can go on with is left to them, what is wrong is dropped."""
    try:
        began, there = time.monotonic(), os.fstat(part.descriptor).st_size
        _download(location, about, part.descriptor, pause)
        cost_table.learn(location.url, about.size - there, time.monotonic() - began, os.environ)
        digest = _check(location, about, part.descriptor)
        os.fsync(part.descriptor)
        kept = Kept(place=location.shown, version=about.version, sha256=digest, when=time.time())
        cache.tell(part.file, msgspec.json.encode(kept))
    except CorruptError:
        cache.drop(part)
        raise
    except OSError as error:
        cache.drop(part)
        if is_full(error):
            raise no_room(part.file, location.shown, part.file.size) from error
        raise
    except BaseException:
        cache.leave(part)
        raise


def _download(location: Location, about: About, descriptor: int, pause: Callable[[float], None]) -> None:
    """Append what is missing; the length of the copy always tells what is there."""
    failed = 0
    while (began := os.fstat(descriptor).st_size) < about.size:
        at = began
        try:
            for piece in location.stream(at, about.size - at, about):
                at += append(descriptor, piece, at)
            if at < about.size:
                raise location.short(at, about.size)
        except UnreachableError:
            failed = 1 if at > began else failed + 1
            if failed >= TRIES:
                raise
            pause(PAUSE_SECONDS * 2**failed)


def append(descriptor: int, piece: bytes, at: int) -> int:
    """Write all of a piece; its length."""
    done = 0
    while done < len(piece):
        done += os.pwrite(descriptor, memoryview(piece)[done:], at + done)
    return done


def _check(location: Location, about: About, descriptor: int) -> str:
    """Compare size and checksum; the copy's own SHA-256."""
    if os.fstat(descriptor).st_size != about.size:
        raise CorruptError(f"{location.shown}: gave more than {about.size:,} bytes", "try again, or use another place")
    digest = digest_of(descriptor, "sha256")
    kind, _, wanted = about.checksum.partition(":")
    if kind and wanted != (digest if kind == "sha256" else digest_of(descriptor, kind)):
        raise CorruptError(
            f"{location.shown}: what came has another checksum than the server says", "try again, or use another place"
        )
    return digest


def digest_of(descriptor: int, kind: str) -> str:
    """The digest of a whole file."""
    with open(os.dup(descriptor), "rb", buffering=0) as file:
        file.seek(0)
        return hashlib.file_digest(file, kind).hexdigest()


def is_full(error: OSError) -> bool:
    """Whether it says that there is no room."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def no_room(file: File, place: str, size: int) -> MillraceError:
    """What is said where a copy does not fit."""
    words = f"for its {size:,} bytes" if size else "for what is in it"
    return MillraceError(
        f"{file.key.partition('-')[2] or place}: no room {words}",
        "see: millrace data list; make room: millrace data evict",
    )
