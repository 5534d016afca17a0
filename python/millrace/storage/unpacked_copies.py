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
from millrace.core.errors import CorruptError
from millrace.core.replica_rules import redact_place
from millrace.core.tool_use import FrozenValue
from millrace.storage.cache import cache_download
from millrace.storage.cache.cache_files import BusyCopy, NoRoomError, PartialCopy
from millrace.storage.cache.copy_cache import NodeCache
from millrace.storage.clients.base import FileStatus

#: Suffixes of a compressed file.
PACKED = (".gz", ".bgz", ".bz2", ".xz", ".zst")

#: Suffix of an archive of many files.
ARCHIVE = ".tar.gz"

#: First bytes of a zstd frame.
ZSTD = b"\x28\xb5\x2f\xfd"

#: Bytes to unpack at a time.
PIECE_BYTES = 8 << 20

_DAMAGED = (EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError, tarfile.TarError, _core.RecordError)


class UnpackedFile(FrozenValue, frozen=True):
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


def strip_packed_suffix(name: str) -> str:
    """Return the name without the suffix of a compressed file."""
    return name[: name.rindex(".")] if is_packed(name) else name


def unpack_to_cache(place: str, about: FileStatus, cache: NodeCache, budget: int) -> list[UnpackedFile]:
    """Return the files of a packed one, unpacked and held until the cache is closed.

    Raises:
        MillraceError: It cannot be read, is damaged, or does not fit.
    """
    everything = UnpackedFile(place=place, version=about.version, name="", mtime_ns=about.mtime_ns)
    while True:
        try:
            claimed = cache.claim_copy(everything, budget)
        except NoRoomError as error:
            raise cache_download.make_no_room_error(everything, place, about.size) from error
        if isinstance(claimed, BusyCopy):
            claimed.wait()
        elif claimed is None:
            found = msgspec.json.decode(cache.make_copy_path(everything).read_bytes(), type=list[UnpackedFile])
            if all(cache.hold_copy(member) for member in found):
                return found
            cache.forget_copy(everything.key)  # one of them was evicted: unpack all again
        else:
            _unpack_all(about, everything, claimed, cache, budget)


def _unpack_all(about: FileStatus, everything: UnpackedFile, part: PartialCopy, cache: NodeCache, budget: int) -> None:
    """Unpack all files, and write the list of them."""
    try:
        packed = cache_download.fetch_to_cache(everything.place, cache, budget, wanted=about)
        members = [
            _keep_unpacked(pieces, member, cache, budget) for member, pieces in _open_streams(packed, everything)
        ]
        listed = msgspec.json.encode(members)
        os.ftruncate(part.descriptor, 0)
        os.pwrite(part.descriptor, listed, 0)
        os.fsync(part.descriptor)
        _write_provenance(everything, hashlib.sha256(listed).hexdigest(), cache)
    except _DAMAGED as error:
        cache.discard_part(part)
        raise CorruptError(
            f"{redact_place(everything.place)}: cannot be unpacked: {error}", "see whether it is whole at its place"
        ) from error
    except BaseException:
        cache.discard_part(part)
        raise
    cache.publish_part(part)
    cache.forget_copy(packed.name)  # unless another process reads it


def _open_streams(packed: Path, everything: UnpackedFile) -> Iterator[tuple[UnpackedFile, Iterator[bytes]]]:
    name = cache_download.extract_base_name(everything.place)
    if name.endswith(ARCHIVE):
        with tarfile.open(packed, "r|gz") as archive:
            for entry in archive:
                stream = archive.extractfile(entry) if entry.isfile() else None
                if stream:
                    member = os.path.basename(entry.name)
                    yield (
                        msgspec.structs.replace(everything, name=member, mtime_ns=int(entry.mtime) * 10**9),
                        _read_pieces(stream),
                    )
    elif name.endswith(".zst"):
        yield msgspec.structs.replace(everything, name=strip_packed_suffix(name)), _read_zstd_pieces(packed)
    else:
        with _open_packed(packed, name) as stream:
            yield msgspec.structs.replace(everything, name=strip_packed_suffix(name)), _read_pieces(stream)


def _open_packed(packed: Path, name: str) -> IO[bytes]:
    if name.endswith(".bz2"):
        return bz2.open(packed)
    if name.endswith(".xz"):
        return lzma.open(packed)
    return gzip.open(packed)  # type: ignore[return-value]


def _read_zstd_pieces(packed: Path) -> Iterator[bytes]:
    """Yield the pieces that ``_core.Reader`` decompresses: Python before 3.14 cannot decompress zstd.

    Raises:
        EOFError: The file is not zstd; the reader would accept any other format.
    """
    with packed.open("rb") as file:
        if file.read(len(ZSTD)) != ZSTD:
            raise EOFError("it is not in zstd's format")
    yield from read_plain_pieces(packed, PIECE_BYTES)


def read_plain_pieces(path: Path, size: int) -> Iterator[bytes]:
    """Yield a file of lines, about ``size`` bytes at a time, decompressed if its first bytes say so.

    Raises:
        RecordError: It is damaged.
    """
    reader = _core.Reader([str(path)], "lines")
    with tempfile.TemporaryFile() as piece:
        while reader.cut(f"/proc/self/fd/{piece.fileno()}", 0, 0, size):
            piece.seek(0)
            yield piece.read()


def _read_pieces(stream: IO[bytes]) -> Iterator[bytes]:
    while piece := stream.read(PIECE_BYTES):
        yield piece


def _keep_unpacked(pieces: Iterator[bytes], member: UnpackedFile, cache: NodeCache, budget: int) -> UnpackedFile:
    """Write one unpacked file into the cache; return it with its size."""
    claimed: PartialCopy | BusyCopy | None
    while isinstance(claimed := cache.claim_copy(member, budget), BusyCopy):
        claimed.wait()
    if claimed is None:
        cache.forget_copy(member.key)
        return _keep_unpacked(pieces, member, cache, budget)
    try:
        os.ftruncate(claimed.descriptor, 0)
        digest, size = hashlib.sha256(), 0
        for piece in pieces:
            digest.update(piece)
            size += cache_download.append_piece(claimed.descriptor, piece, size)
        os.fsync(claimed.descriptor)
        _write_provenance(member, digest.hexdigest(), cache)
    except BaseException as error:
        cache.discard_part(claimed)
        if isinstance(error, OSError) and cache_download.is_disk_full(error):
            raise cache_download.make_no_room_error(member, member.place, 0) from error
        raise
    cache.publish_part(claimed)
    return msgspec.structs.replace(member, size=size)


def _write_provenance(member: UnpackedFile, sha256: str, cache: NodeCache) -> None:
    kept = cache_download.CopyProvenance(
        place=redact_place(member.place), version=member.version, sha256=sha256, when=time.time()
    )
    cache.write_provenance(member, msgspec.json.encode(kept))
