"""Cached copies of compressed files and archives: unpacked once, on arrival; only the unpacked files are kept."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import lzma
import os
import tarfile
import tempfile
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import msgspec

from millrace import _core
from millrace.errors import CorruptError
from millrace.model import Frozen
from millrace.replicas import shown
from millrace.storage import fetch
from millrace.storage.cache import Cache
from millrace.storage.cache_files import Busy, NoRoom, Part
from millrace.storage.clients.base import About

#: Suffixes of a compressed file.
PACKED = (".gz", ".bgz", ".bz2", ".xz", ".zst")

#: Suffix of an archive of many files.
ARCHIVE = ".tar.gz"

#: First bytes of a zstd frame.
ZSTD = b"\x28\xb5\x2f\xfd"

#: Bytes to unpack at a time.
PIECE_BYTES = 8 << 20

_DAMAGED = (EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError, tarfile.TarError, _core.RecordError)


class Member(Frozen, frozen=True):
    """One file of a packed one, or the list of all its files."""

    place: str
    version: str
    #: Name of the unpacked file; empty: the list.
    name: str
    mtime_ns: int
    #: -1: unknown before it is unpacked.
    size: int = -1
    mode: int = 0o444

    @property
    def key(self) -> str:
        """Name of its copies, the same as long as the packed file is unchanged."""
        words = f"{self.place}\0{self.version}\0{self.name}"
        digest = hashlib.sha256(words.encode(errors="surrogateescape")).hexdigest()
        return f"{digest[:24]}.u-{self.name or 'contents'}"


def is_packed(name: str) -> bool:
    """Tell whether a file of this name is decompressed on arrival.

    >>> is_packed("nr.faa.gz"), is_packed("nr.00.tar.gz"), is_packed("nr.faa")
    (True, False, False)
    """
    return name.endswith(PACKED) and ".tar." not in name


def plain_name(name: str) -> str:
    """Return the name without the suffix of a compressed file."""
    return name[: name.rindex(".")] if is_packed(name) else name


def contents(place: str, about: About, cache: Cache, budget: int) -> list[Member]:
    """Return the files of a packed one, unpacked and held until the cache is closed.

    Raises:
        MillraceError: It cannot be read, is damaged, or does not fit.
    """
    everything = Member(place=place, version=about.version, name="", mtime_ns=about.mtime_ns)
    while True:
        try:
            claimed = cache.claim(everything, budget)
        except NoRoom as error:
            raise fetch.no_room(everything, place, about.size) from error
        if isinstance(claimed, Busy):
            claimed.wait()
        elif claimed is None:
            found = msgspec.json.decode(cache.path_of(everything).read_bytes(), type=list[Member])
            if all(cache.take(member) for member in found):
                return found
            cache.forget(everything.key)  # one of them was evicted: unpack all again
        else:
            _fill(about, everything, claimed, cache, budget)


def _fill(about: About, everything: Member, part: Part, cache: Cache, budget: int) -> None:
    """Unpack all files, and write the list of them."""
    try:
        packed = fetch.fetch(everything.place, cache, budget, wanted=about)
        members = [_unpacked(pieces, member, cache, budget) for member, pieces in _streams(packed, everything)]
        listed = msgspec.json.encode(members)
        os.ftruncate(part.descriptor, 0)
        os.pwrite(part.descriptor, listed, 0)
        os.fsync(part.descriptor)
        _tell(everything, hashlib.sha256(listed).hexdigest(), cache)
    except _DAMAGED as error:
        cache.drop(part)
        raise CorruptError(
            f"{shown(everything.place)}: cannot be unpacked: {error}", "see whether it is whole at its place"
        ) from error
    except BaseException:
        cache.drop(part)
        raise
    cache.finish(part)
    cache.forget(packed.name)  # unless another process reads it


def _streams(packed: Path, everything: Member) -> Iterator[tuple[Member, Iterator[bytes]]]:
    name = fetch.base_name(everything.place)
    if name.endswith(ARCHIVE):
        with tarfile.open(packed, "r|gz") as archive:
            for entry in archive:
                stream = archive.extractfile(entry) if entry.isfile() else None
                if stream:
                    member = os.path.basename(entry.name)
                    yield (
                        msgspec.structs.replace(everything, name=member, mtime_ns=int(entry.mtime) * 10**9),
                        _read(stream),
                    )
    elif name.endswith(".zst"):
        yield msgspec.structs.replace(everything, name=plain_name(name)), _pieces(packed)
    else:
        with _opened(packed, name) as stream:
            yield msgspec.structs.replace(everything, name=plain_name(name)), _read(stream)


def _opened(packed: Path, name: str) -> IO[bytes]:
    if name.endswith(".bz2"):
        return bz2.open(packed)
    if name.endswith(".xz"):
        return lzma.open(packed)
    return gzip.open(packed)  # type: ignore[return-value]


def _pieces(packed: Path) -> Iterator[bytes]:
    """Yield the pieces that ``_core.Reader`` decompresses: Python before 3.14 cannot decompress zstd.

    Raises:
        EOFError: The file is not zstd; the reader would accept any other format.
    """
    with packed.open("rb") as file:
        if file.read(len(ZSTD)) != ZSTD:
            raise EOFError("it is not in zstd's format")
    yield from plain_pieces(packed, PIECE_BYTES)


def plain_pieces(path: Path, size: int) -> Iterator[bytes]:
    """Yield a file of lines, about ``size`` bytes at a time, decompressed if its first bytes say so.

    Raises:
        RecordError: It is damaged.
    """
    reader = _core.Reader([str(path)], "lines")
    with tempfile.TemporaryFile() as piece:
        while reader.cut(f"/proc/self/fd/{piece.fileno()}", 0, 0, size):
            piece.seek(0)
            yield piece.read()


def _read(stream: IO[bytes]) -> Iterator[bytes]:
    while piece := stream.read(PIECE_BYTES):
        yield piece


def _unpacked(pieces: Iterator[bytes], member: Member, cache: Cache, budget: int) -> Member:
    """Write one unpacked file into the cache; return it with its size."""
    claimed: Part | Busy | None
    while isinstance(claimed := cache.claim(member, budget), Busy):
        claimed.wait()
    if claimed is None:
        cache.forget(member.key)
        return _unpacked(pieces, member, cache, budget)
    try:
        os.ftruncate(claimed.descriptor, 0)
        digest, size = hashlib.sha256(), 0
        for piece in pieces:
            digest.update(piece)
            size += fetch.append(claimed.descriptor, piece, size)
        os.fsync(claimed.descriptor)
        _tell(member, digest.hexdigest(), cache)
    except BaseException as error:
        cache.drop(claimed)
        if isinstance(error, OSError) and fetch.is_full(error):
            raise fetch.no_room(member, member.place, 0) from error
        raise
    cache.finish(claimed)
    return msgspec.structs.replace(member, size=size)


def _tell(member: Member, sha256: str, cache: Cache) -> None:
    kept = fetch.Kept(place=shown(member.place), version=member.version, sha256=sha256, when=time.time())
    cache.tell(member, msgspec.json.encode(kept))
