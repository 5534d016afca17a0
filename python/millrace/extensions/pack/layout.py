"""The file format of a pack: sections with checksums, an end section over all of them, and the recipe in it.

See ``docs/pack-format.md``. A pack is untrusted input: every length is checked before memory is allocated for it. The
recipe is the command, queries and database that regenerate the result. It contains no command line: only the name of a
tool that Millrace knows, and its arguments without any path.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Annotated, BinaryIO, TypeVar

import msgspec

from millrace import _core
from millrace.core.errors import CorruptError, RefusedError
from millrace.core.text_format import escape_unprintable
from millrace.core.tool_use import ArgumentToken, FrozenValue
from millrace.host.core_allocation import count_usable_cores

Item = TypeVar("Item")
Result = TypeVar("Result")

Count = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
Sha256 = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
Short = Annotated[str, msgspec.Meta(max_length=4096)]


class OriginalOutput(FrozenValue, frozen=True):
    """One output of the command, as it was packed."""

    #: ``millrace.core.tool_use.OutputUse.name``; for plain bytes the name of the file.
    name: Short
    bytes: Count
    sha256: Sha256


#: Outputs of a pack at most.
MAX_OUTPUTS = 16

Outputs = Annotated[tuple[OriginalOutput, ...], msgspec.Meta(min_length=1, max_length=MAX_OUTPUTS)]

#: The digest of an output that is unknown: yet, or for ever where the pack has ``PackedTexts``.
UNKNOWN = "0" * 64


class PackedQueries(FrozenValue, frozen=True):
    """The input that is cut into records, identified by its content."""

    #: Name of the file, for messages only.
    name: Short
    bytes: Count
    sha256: Sha256


class PackedDatabase(FrozenValue, frozen=True):
    """A database identified by its entries, independent of paths and of the number of files."""

    #: Name of the database in the result.
    name: Short
    #: Title of the database in the result; empty where results have none.
    title: Short
    entries: Count
    residues: Count
    #: SHA-256 of all entries, in their order.
    ordered: Sha256
    #: Sum of the SHA-256 of each entry, modulo 2**256: the same in any order.
    unordered: Sha256


class PackRecipe(FrozenValue, frozen=True):
    """The command, queries and database that regenerate a result; for plain bytes the outputs alone."""

    #: Name of the codec.
    codec: Short
    #: Version of Millrace that packed, for messages only.
    millrace: Short
    outputs: Outputs
    #: Name of the program, without a folder.
    tool: Short = ""
    #: Version that the program reports.
    version: Short = ""
    #: Arguments after the program; paths are tokens.
    arguments: Annotated[tuple[ArgumentToken, ...], msgspec.Meta(max_length=1024)] = ()
    queries: PackedQueries | None = None
    database: PackedDatabase | None = None


class EndingText(FrozenValue, frozen=True):
    """The last match of a pattern in an output, as the machine that packed would have written it."""

    output: Count
    #: Index in ``millrace.extensions.pack.result_codec.ResultCodec.list_volatile_patterns`` of the output.
    pattern: Count
    text: Short


class PackedTexts(FrozenValue, frozen=True):
    """Text of outputs that no other machine gives, of a result that was never computed where it was packed."""

    #: The paths of the queries and of the outputs, as typed; empty: it is standard output.
    queries: Short
    outputs: Annotated[tuple[Short, ...], msgspec.Meta(min_length=1, max_length=MAX_OUTPUTS)]
    endings: Annotated[tuple[EndingText, ...], msgspec.Meta(max_length=256)] = ()


def encode_texts(texts: PackedTexts) -> bytes:
    """Encode texts as the JSON of their section."""
    return msgspec.json.encode(texts)


def decode_texts(recipe: PackRecipe, data: bytes) -> PackedTexts:
    """Decode the texts that ``encode_texts`` has encoded.

    Raises:
        CorruptError: The data is malformed, or of other outputs than those of ``recipe``.
    """
    try:
        texts = msgspec.json.decode(data, type=PackedTexts)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CorruptError(f"the pack does not say how its outputs end: {escape_unprintable(str(error))}") from error
    n = len(recipe.outputs)
    if len(texts.outputs) != n or any(each.output >= n for each in texts.endings):
        raise CorruptError("the pack has texts of other outputs than it names")
    return texts


def encode_recipe(recipe: PackRecipe) -> bytes:
    """Encode a recipe as the JSON of its section."""
    return msgspec.json.encode(recipe)


def digest_recipe(recipe: PackRecipe) -> str:
    """Return the SHA-256 of a recipe."""
    return hashlib.sha256(encode_recipe(recipe)).hexdigest()


def encode_outputs(outputs: tuple[OriginalOutput, ...]) -> bytes:
    """Encode outputs that were unknown when the recipe was written."""
    return msgspec.json.encode(outputs)


def add_final_outputs(recipe: PackRecipe, data: bytes) -> PackRecipe:
    """Return ``recipe`` with the outputs that ``encode_outputs`` has encoded.

    Raises:
        CorruptError: The data is malformed, or names other outputs.
    """
    try:
        outputs = msgspec.json.decode(data, type=Outputs)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CorruptError(f"the pack does not say what its outputs are: {escape_unprintable(str(error))}") from error
    if [each.name for each in outputs] != [each.name for each in recipe.outputs]:
        raise CorruptError("the pack tells at its end of other outputs than at its begin")
    return msgspec.structs.replace(recipe, outputs=outputs)


def decode_recipe(data: bytes) -> PackRecipe:
    """Decode the recipe that ``encode_recipe`` has encoded.

    Raises:
        CorruptError: The data is malformed.
    """
    try:
        return msgspec.json.decode(data, type=PackRecipe)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CorruptError(f"the pack does not say what a pack says: {escape_unprintable(str(error))}") from error


#: Most threads that encode, compress or decode pieces of one file: each holds some hundred megabytes.
MAX_THREADS = 8


def map_in_threads(function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """Yield ``function(item)`` for each item, in order, computed on as many threads as there are cores for us.

    No more items are taken than are at work. An error of an item is raised in its turn.
    """
    threads = min(count_usable_cores(os.environ)[0], MAX_THREADS)
    waiting: deque[Future[Result]] = deque()
    with ThreadPoolExecutor(threads) as pool:
        try:
            for item in items:
                waiting.append(pool.submit(function, item))
                if len(waiting) > threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for each in waiting:
                each.cancel()


MAGIC = b"MRPACK\r\n"

#: Layout version; a reader refuses any other.
VERSION = 1

#: Compression of sections: the highest level of zstd that every reader accepts by default.
LEVEL = 19

#: Most bytes that a section may unpack to; longer data is split into several sections.
MAX_SECTION_BYTES = 64 << 20

#: Most stored bytes of a section: zstd adds little to data that cannot be compressed.
MAX_PACKED_BYTES = MAX_SECTION_BYTES + (MAX_SECTION_BYTES >> 7)

_FILE = struct.Struct("<8sI")
_HEAD = struct.Struct("<4sBxHQQ")
_CRC = struct.Struct("<I")
_MARK = b"MRS1"


class SectionKind(IntEnum):
    """The kinds of sections, by the number in the file."""

    #: The ``millrace.extensions.pack.layout.PackRecipe``, as JSON.
    RECIPE = 1
    #: The file of queries, if the pack includes it.
    QUERIES = 2
    #: The entries that some batches have hit.
    HITS = 3
    #: The difference of a piece of an output from its regeneration.
    DIFFERENCE = 4
    #: A piece of an output itself.
    PLAIN = 5
    #: Bytes and SHA-256 of the outputs, as JSON, if unknown when the recipe was written.
    OUTPUTS = 6
    #: The ``PackedTexts``, as JSON: the outputs follow from the hits alone, and their sizes and digests are unknown.
    TEXTS = 7
    #: SHA-256 of all bytes before it.
    END = 255


@dataclass(frozen=True)
class PackSection:
    """One section as stored in the file."""

    kind: SectionKind
    #: Compressed bytes, as stored.
    packed: bytes
    #: Bytes that it unpacks to.
    length: int
    #: Uncompressed bytes that are needed to unpack the section.
    note: bytes = b""

    def unpack_bytes(self, reference: bytes = b"") -> bytes:
        """Unpack the section, with the ``reference`` of its packing.

        Raises:
            CorruptError: It cannot be unpacked.
        """
        if not self.length and not self.packed:
            return b""
        try:
            return _core.restore(self.packed, self.length, reference)
        except OSError as error:
            raise CorruptError(f"a section of the pack cannot be unpacked: {error}") from error


def pack_section(
    kind: SectionKind, data: bytes, reference: bytes = b"", note: bytes = b"", level: int = LEVEL
) -> PackSection:
    """Compress the data of a section."""
    return PackSection(kind, _core.squeeze(data, level, reference) if data else b"", len(data), note)


def make_temporary_path(dest: Path) -> Path:
    """Return an unused path beside ``dest``, for a file that is incomplete."""
    return dest.with_name(f".{dest.name}.{os.urandom(4).hex()}.new")


class PackWriter:
    """A writer of a pack, which is renamed to its path when ``PackWriter.finish`` has completed it.

    Args:
        path: Path of the complete pack.
        fresh: Its unused path until then, where it may be read while it grows.
    """

    def __init__(self, path: Path, fresh: Path | None = None) -> None:
        self._path, self._fresh = path, fresh or make_temporary_path(path)
        self._file: BinaryIO = self._fresh.open("xb")
        self._digest = hashlib.sha256()
        self.size = 0
        self._write_bytes(_FILE.pack(MAGIC, VERSION))

    def add(self, kind: SectionKind, data: bytes, reference: bytes = b"", note: bytes = b"") -> int:
        """Append a section and return its bytes in the file; the reader needs the same ``reference``."""
        return self.add_packed(pack_section(kind, data, reference, note))

    def add_packed(self, section: PackSection) -> int:
        """Append a section that is compressed already; see ``PackWriter.add``."""
        before = self.size
        kind, packed, note = section.kind, section.packed, section.note
        head = _HEAD.pack(_MARK, kind, len(note), len(packed), section.length)
        self._write_bytes(head + _CRC.pack(_core.crc32c(head)))
        self._write_bytes(note + packed + _CRC.pack(_core.crc32c(note + packed)))
        self._file.flush()
        return self.size - before

    def finish(self, check: Callable[[Path], None]) -> None:
        """Write the end section, fsync, call ``check``, and rename the pack to its path if that raises nothing."""
        self.add(SectionKind.END, self._digest.digest())
        os.fsync(self._file.fileno())
        self._file.close()
        check(self._fresh)
        self._fresh.replace(self._path)

    def discard_unfinished(self) -> None:
        """Remove the incomplete file; does nothing after ``PackWriter.finish``."""
        self._file.close()
        self._fresh.unlink(missing_ok=True)

    def _write_bytes(self, data: bytes) -> None:
        self._file.write(data)
        self._digest.update(data)
        self.size += len(data)


def read_sections(path: Path) -> Iterator[PackSection]:
    """Yield the sections of a pack in order, also those before a damage.

    Raises:
        RefusedError: It is missing, not a pack, or of another version.
        CorruptError: It is damaged or cut off, or bytes follow its end.
    """
    try:
        with path.open("rb") as file:
            yield from _PackReader(file, path).iterate_sections()
    except FileNotFoundError as error:
        raise RefusedError(f"{path}: no such file", "check the path of the pack") from error


def read_complete_sections(path: Path, size: int) -> Iterator[PackSection]:
    """Yield the sections that are complete in the first ``size`` bytes of a pack that grows.

    Raises:
        RefusedError: It is not a pack, or of another version.
        CorruptError: It is damaged.
    """
    with path.open("rb") as file:
        try:
            yield from _PackReader(file, path, size).iterate_sections()
        except _TruncatedPackError:
            return


class _TruncatedPackError(CorruptError):
    """The file ends within a section."""


class _PackReader:
    def __init__(self, file: BinaryIO, path: Path, size: int | None = None) -> None:
        self._file, self._path = file, path
        self._left = os.fstat(file.fileno()).st_size if size is None else size
        self._digest = hashlib.sha256()

    def iterate_sections(self) -> Iterator[PackSection]:
        self._read_header()
        while True:
            whole = self._digest.digest()
            section = self._read_section()
            if section.kind is SectionKind.END:
                if section.length != len(whole) or section.unpack_bytes() != whole:
                    raise self._make_damage_error("its checksum is wrong")
                if self._left:
                    raise self._make_damage_error("something follows its end")
                return
            yield section

    def _read_header(self) -> None:
        if self._left < _FILE.size or (start := self._read_bytes(_FILE.size))[: len(MAGIC)] != MAGIC:
            raise RefusedError(f"{self._path}: not a pack of Millrace", "packs are made with: millrace pack")
        version = _FILE.unpack(start)[1]
        if version != VERSION:
            raise RefusedError(
                f"{self._path}: a pack of version {version}; this release reads version {VERSION}",
                "unpack it with the release that made it",
            )

    def _read_section(self) -> PackSection:
        head = self._read_bytes(_HEAD.size)
        if _CRC.unpack(self._read_bytes(_CRC.size))[0] != _core.crc32c(head):
            raise self._make_damage_error("the head of a section is not what was written")
        mark, number, note_length, packed_length, length = _HEAD.unpack(head)
        if (
            mark != _MARK
            or number not in set(SectionKind)
            or length > MAX_SECTION_BYTES
            or packed_length > MAX_PACKED_BYTES
            or head[5]
        ):
            raise self._make_damage_error("a section is none that this release knows")
        payload = self._read_bytes(note_length + packed_length)
        if _CRC.unpack(self._read_bytes(_CRC.size))[0] != _core.crc32c(payload):
            raise self._make_damage_error("the checksum of a section is wrong")
        return PackSection(SectionKind(number), payload[note_length:], length, payload[:note_length])

    def _read_bytes(self, n: int) -> bytes:
        data = self._file.read(n) if n <= self._left else b""
        if len(data) != n:
            error = self._make_damage_error("it is cut off")
            raise _TruncatedPackError(error.message, error.hint)
        self._left -= n
        self._digest.update(data)
        return data

    def _make_damage_error(self, what: str) -> CorruptError:
        return CorruptError(f"{self._path}: the pack is damaged: {what}", "copy it again, or pack the result again")
