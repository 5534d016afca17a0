"""The file of a pack: sections, each with its checksum, and an end that covers them all; see ``docs/pack-format.md``.

Nothing here knows what sections mean. What is read may come from a stranger: every length is checked before memory is
taken for it.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import BinaryIO

from millrace import _core
from millrace.errors import CorruptError, RefusedError

MAGIC = b"MRPACK\r\n"

#: Layout version; a reader refuses any other.
VERSION = 1

#: Compression of sections: zstd's highest level that any reader takes without asking.
LEVEL = 19

#: Bytes that a section may unpack to: what is larger comes in several.
MOST_BYTES = 64 << 20

#: Bytes that a section may have as stored: zstd makes hardly more of what cannot be compressed.
MOST_PACKED = MOST_BYTES + (MOST_BYTES >> 7)

_FILE = struct.Struct("<8sI")
_HEAD = struct.Struct("<4sBxHQQ")
_CRC = struct.Struct("<I")
_MARK = b"MRS1"


class Kind(IntEnum):
    """What a section is."""

    #: What makes the result, as JSON: `millrace.pack.recipe.Recipe`.
    RECIPE = 1
    #: The file of queries, if it travels along.
    QUERIES = 2
    #: Which entries some batches have hit.
    HITS = 3
    #: How a piece of an output differs from what is regenerated.
    DIFFERENCE = 4
    #: A piece of an output as it is.
    PLAIN = 5
    #: Bytes and SHA-256 of the outputs, as JSON, where these were not known when the recipe was written.
    OUTPUTS = 6
    #: SHA-256 of all before it.
    END = 255


@dataclass(frozen=True)
class Section:
    """One section as it is in the file."""

    kind: Kind
    #: As stored, compressed.
    packed: bytes
    #: Bytes that it unpacks to.
    length: int
    #: What has to be known before it is unpacked.
    note: bytes = b""

    def data(self, reference: bytes = b"") -> bytes:
        """What was packed.

        Raises:
            CorruptError: It cannot be unpacked.
        """
        if not self.length and not self.packed:
            return b""
        try:
            return _core.restore(self.packed, self.length, reference)
        except OSError as error:
            raise CorruptError(f"a section of the pack cannot be unpacked: {error}") from error


def unfinished(dest: Path) -> Path:
    """A name beside ``dest`` that nobody else uses, for what is not whole yet."""
    return dest.with_name(f".{dest.name}.{os.urandom(4).hex()}.new")


class Writer:
    """Writes a pack; it gets its name with `finish`, when it is whole.

    Args:
        path: Where it is to be.
        fresh: Its name until then, which nobody else uses, and where it may be read while it grows.
    """

    def __init__(self, path: Path, fresh: Path | None = None) -> None:
        self._path, self._fresh = path, fresh or unfinished(path)
        self._file: BinaryIO = self._fresh.open("xb")
        self._digest = hashlib.sha256()
        self.size = 0
        self._write(_FILE.pack(MAGIC, VERSION))

    def add(self, kind: Kind, data: bytes, reference: bytes = b"", note: bytes = b"") -> int:
        """Append a section; ``reference`` is what its reader will have, too. Returns the bytes that it takes."""
        before = self.size
        packed = _core.squeeze(data, LEVEL, reference) if data else b""
        head = _HEAD.pack(_MARK, kind, len(note), len(packed), len(data))
        self._write(head + _CRC.pack(_core.crc32c(head)))
        self._write(note + packed + _CRC.pack(_core.crc32c(note + packed)))
        self._file.flush()
        return self.size - before

    def finish(self, check: Callable[[Path], None]) -> None:
        """Write the end, wait for the disk, and let the pack be there if ``check`` says no word against it."""
        self.add(Kind.END, self._digest.digest())
        os.fsync(self._file.fileno())
        self._file.close()
        check(self._fresh)
        self._fresh.replace(self._path)

    def give_up(self) -> None:
        """Leave nothing behind; no harm after `finish`."""
        self._file.close()
        self._fresh.unlink(missing_ok=True)

    def _write(self, data: bytes) -> None:
        self._file.write(data)
        self._digest.update(data)
        self.size += len(data)


def sections(path: Path) -> Iterator[Section]:
    """Read a pack from its begin to its end; what comes before damage is given first.

    Raises:
        RefusedError: It is no pack, or one of another version.
        CorruptError: It is damaged, cut off, or something follows it.
    """
    try:
        with path.open("rb") as file:
            yield from _Reader(file, path).sections()
    except FileNotFoundError as error:
        raise RefusedError(f"{path}: no such file", "check the path of the pack") from error


def sections_so_far(path: Path, size: int) -> Iterator[Section]:
    """Read the sections that are whole in the first ``size`` bytes of a pack that grows.

    Raises:
        RefusedError: It is no pack, or one of another version.
        CorruptError: It is damaged.
    """
    with path.open("rb") as file:
        try:
            yield from _Reader(file, path, size).sections()
        except _CutOff:
            return


class _CutOff(CorruptError):
    """The file ends where a section goes on."""


class _Reader:
    def __init__(self, file: BinaryIO, path: Path, size: int | None = None) -> None:
        self._file, self._path = file, path
        self._left = os.fstat(file.fileno()).st_size if size is None else size
        self._digest = hashlib.sha256()

    def sections(self) -> Iterator[Section]:
        self._begin()
        while True:
            whole = self._digest.digest()
            section = self._section()
            if section.kind is Kind.END:
                if section.length != len(whole) or section.data() != whole:
                    raise self._damaged("its checksum is wrong")
                if self._left:
                    raise self._damaged("something follows its end")
                return
            yield section

    def _begin(self) -> None:
        if self._left < _FILE.size or (start := self._read(_FILE.size))[: len(MAGIC)] != MAGIC:
            raise RefusedError(f"{self._path}: not a pack of Millrace", "packs are made with: millrace pack")
        version = _FILE.unpack(start)[1]
        if version != VERSION:
            raise RefusedError(
                f"{self._path}: a pack of version {version}; this release reads version {VERSION}",
                "unpack it with the release that made it",
            )

    def _section(self) -> Section:
        head = self._read(_HEAD.size)
        if _CRC.unpack(self._read(_CRC.size))[0] != _core.crc32c(head):
            raise self._damaged("the head of a section is not what was written")
        mark, number, note_length, packed_length, length = _HEAD.unpack(head)
        if mark != _MARK or number not in set(Kind) or length > MOST_BYTES or packed_length > MOST_PACKED or head[5]:
            raise self._damaged("a section is none that this release knows")
        payload = self._read(note_length + packed_length)
        if _CRC.unpack(self._read(_CRC.size))[0] != _core.crc32c(payload):
            raise self._damaged("the checksum of a section is wrong")
        return Section(Kind(number), payload[note_length:], length, payload[:note_length])

    def _read(self, n: int) -> bytes:
        data = self._file.read(n) if n <= self._left else b""
        if len(data) != n:
            error = self._damaged("it is cut off")
            raise _CutOff(error.message, error.hint)
        self._left -= n
        self._digest.update(data)
        return data

    def _damaged(self, what: str) -> CorruptError:
        return CorruptError(f"{self._path}: the pack is damaged: {what}", "copy it again, or pack the result again")
