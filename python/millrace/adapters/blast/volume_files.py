"""Files of the volumes of a database in HDFS: which a node fetches, whole or in part, and when.

A search opens the ids of all volumes of a database (``.pdb``, LMDB, with the tables ``volname``, ``volinfo`` and
``acc2oid``), and looks up the ids of the entries that it finds. A volume that is not searched needs no ids, so it
gets empty id tables. The search of candidates reads only the sequence and the header of each candidate, so these two
files may have holes everywhere else; the ranges of entries follow from the index file alone.

Sources: "BLAST Database Version 5" of the NCBI C++ Toolkit (``seqdb_lmdb.cpp``); ``mdb.c`` of LMDB for the format of
pages: 16 bytes of head, then the offset of each node in the page; a node has the length of its data, flags, the
length of its key, the key, and the data; a table's record has 48 bytes, the last 8 its root. "BLAST Database Format"
of the NCBI C++ Toolkit: the index has the offsets of the headers, then of the sequences; the data on ambiguous bases
stand between a sequence and the next one.
"""

from __future__ import annotations

import json
import mmap
import re
import struct
import zlib
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from typing import NamedTuple

from millrace.adapters.blast.database import NotInFragmentsError, SearchedDatabase
from millrace.adapters.blast.search_path import split_names
from millrace.adapters.blast.volumes import BlastVolume, add_ending, read_offsets, read_volume
from millrace.core.tool_use import FetchedFile, InlineFile, UserCommand, VolumeIndex

#: Bytes of a page, and of its head.
PAGE_BYTES, HEAD_BYTES = 4096, 16

_MAGIC, _VERSION, _LEAF, _TABLE = 0xBEEFC0DE, 1, 0x02, 0x02

#: Root of an empty table.
_NOWHERE = (1 << 64) - 1

#: The tables of a file of ids, and those that are kept as they are.
_TABLES, _KEPT = {b"acc2oid", b"volinfo", b"volname"}, (b"volinfo", b"volname")


class LmdbTable(NamedTuple):
    """A table's record in LMDB."""

    pad: int
    flags: int
    depth: int
    branches: int
    leaves: int
    overflow: int
    entries: int
    root: int

    @classmethod
    def read_at(cls, data: mmap.mmap, place: int) -> LmdbTable:
        """Read the record at offset ``place``."""
        return cls(*struct.unpack_from("<IHHQQQQQ", data, place))

    def pack_emptied(self) -> bytes:
        """Return the record of an empty table of the same kind."""
        return struct.pack("<IHHQQQQQ", self.pad, self.flags, 0, 0, 0, 0, 0, _NOWHERE)


def list_pages_without_ids(path: Path) -> list[tuple[int, bytes]] | None:
    """Return the pages (offset, bytes) of a file of the same size and volume as ``path``, but without ids.

    All other bytes of that file are zeros. None: ``makeblastdb`` does not write such files as ``path``.
    """
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _list_pages_without_ids(data)
    except (ValueError, struct.error):
        return None


def _list_pages_without_ids(data: mmap.mmap) -> list[tuple[int, bytes]]:
    main = _read_newest_root(data)
    root = bytearray(_read_page(data, main))
    found = dict(_iterate_nodes(root))
    if found.keys() != _TABLES:
        raise ValueError("it has other tables")
    pages = {k * PAGE_BYTES: bytes(data[k * PAGE_BYTES : (k + 1) * PAGE_BYTES]) for k in (0, 1)}
    for name in _KEPT:
        table = LmdbTable.read_at(data, main.root * PAGE_BYTES + found[name])
        pages[table.root * PAGE_BYTES] = bytes(_read_page(data, table))
    place = found[b"acc2oid"]
    ids = LmdbTable.read_at(data, main.root * PAGE_BYTES + place).pack_emptied()
    root[place : place + len(ids)] = ids
    pages[main.root * PAGE_BYTES] = bytes(root)
    return sorted(pages.items())


def _read_newest_root(data: mmap.mmap) -> LmdbTable:
    """Read the table of tables from the newer of the two meta pages."""
    told = []
    for at in (HEAD_BYTES, PAGE_BYTES + HEAD_BYTES):
        magic, version = struct.unpack_from("<II", data, at)
        free, main = LmdbTable.read_at(data, at + 24), LmdbTable.read_at(data, at + 72)
        if (magic, version) != (_MAGIC, _VERSION) or free.pad not in (0, PAGE_BYTES):
            raise ValueError("it is of another version")
        told.append((struct.unpack_from("<Q", data, at + 128)[0], main))
    return max(told)[1]


def _read_page(data: mmap.mmap, table: LmdbTable) -> bytes:
    """Return the only page of a table."""
    page = data[table.root * PAGE_BYTES : (table.root + 1) * PAGE_BYTES]
    number, flags = struct.unpack_from("<Q2xH", page)
    if table.depth != 1 or number != table.root or flags != _LEAF:
        raise ValueError("it has more than one page")
    return page


def _iterate_nodes(page: bytes | bytearray) -> Iterator[tuple[bytes, int]]:
    """Yield the names of the tables in a page, with the offset of each table's record."""
    (lower,) = struct.unpack_from("<H", page, 12)
    for (at,) in struct.iter_unpack("<H", page[HEAD_BYTES:lower]):
        flags, length = struct.unpack_from("<HH", page, at + 4)
        if flags == _TABLE:
            yield bytes(page[at + 8 : at + 8 + length]), at + 8 + length


#: Bytes between two ranges up to which these are read as one: on a fast link they take less time than another request,
#: and on a slow one not much more.
MAX_GAP_BYTES = 1 << 12

#: Name of the file, in the folder of a database of candidates, with the ranges that its search needs.
RANGES = "ranges.json"


class FileRange(NamedTuple):
    """Bytes ``[first, last)`` of a file; ``name`` has no folders."""

    name: str
    first: int
    last: int


def write_ranges(
    bases: Sequence[str], letter: str, entries: Sequence[int], ordinals: Sequence[int], folder: Path
) -> None:
    """Write the ranges of the entries with these ordinals, counted over all volumes, into ``folder``.

    Args:
        bases: Paths of the volumes without ending. Only their index files are read.
        entries: Number of entries of each volume.
        ordinals: Ascending.
    """
    found: list[FileRange] = []
    for base, (first, last) in zip(bases, pairwise(accumulate(entries, initial=0)), strict=True):
        own = ordinals[bisect_left(ordinals, first) : bisect_left(ordinals, last)]
        if own:
            found += find_entry_ranges(read_volume(Path(base), letter), [ordinal - first for ordinal in own])
    (folder / RANGES).write_text(json.dumps(found))


def read_ranges(folder: Path) -> list[FileRange]:
    """Read the ranges that ``write_ranges`` wrote; none if there is no such file."""
    path = folder / RANGES
    return [FileRange(*each) for each in json.loads(path.read_text())] if path.exists() else []


def find_entry_ranges(volume: BlastVolume, ordinals: Sequence[int]) -> Iterator[FileRange]:
    """Find the ranges of the entries with these ascending ordinals of one volume."""
    headers, sequences = read_offsets(volume, "headers"), read_offsets(volume, "sequences")
    for suffix, table in (("hr", headers), ("sq", sequences)):
        # The sequence of a protein is read with the zero byte before it.
        edges = ((max(table[first] - 1, 0), table[last]) for first, last in _group_runs(ordinals))
        for first, last in _merge_near_ranges(edges):
            yield FileRange(f"{volume.base.name}.{volume.letter}{suffix}", first, last)


def _group_runs(ordinals: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Merge ascending numbers into half-open runs.

    >>> list(_group_runs([1, 2, 3, 7]))
    [(1, 4), (7, 8)]
    """
    begin = end = -1
    for ordinal in ordinals:
        if ordinal != end and end >= 0:
            yield begin, end
        begin, end = (begin if ordinal == end else ordinal), ordinal + 1
    if end >= 0:
        yield begin, end


def _merge_near_ranges(edges: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Merge ranges with at most ``MAX_GAP_BYTES`` bytes between them.

    >>> list(_merge_near_ranges([(0, 10), (12, 20), (900_000, 900_001)]))
    [(0, 20), (900000, 900001)]
    """
    begin, end = 0, -1
    for first, last in edges:
        if end >= 0 and first - end > MAX_GAP_BYTES:
            yield begin, end
        if end < 0 or first - end > MAX_GAP_BYTES:
            begin = first
        end = last
    if end >= 0:
        yield begin, end


#: Endings of the files with the ids of a volume: names, and GenBank numbers.
_IDS = ("db", "og")

#: Bytes up to which a file is compressed to see whether it may go with the command. It may if it gets as small as
#: _CARRIED, or to one _CARRIED_SHARE-th of its size.
_LOOKED_AT, _CARRIED, _CARRIED_SHARE = 1 << 20, 1 << 10, 16


def group_later_files(database: SearchedDatabase, later: Sequence[FetchedFile]) -> tuple[tuple[FetchedFile, ...], ...]:
    """Group the files that are fetched when a volume is searched by volume, in the order of volumes."""
    by_volume: dict[str, list[FetchedFile]] = defaultdict(list)
    for file in later:
        by_volume[file.name.rpartition(".")[0]].append(file)
    return tuple(tuple(by_volume[volume.base.name]) for volume in database.volumes if volume.entries)


def build_indices(
    database: SearchedDatabase, command: UserCommand, elsewhere: Collection[str]
) -> Iterator[VolumeIndex]:
    """Yield the index of each volume that has entries, and its ids, except files named in ``elsewhere``.

    Files of a database that is not behind a URL are read in place.
    """
    if not command.view:
        return
    files = {file.name: file for file in command.view.files}
    for volume in database.volumes:
        if volume.entries:
            with volume.index.open("rb") as index:
                head = zlib.compress(index.read(volume.head))
            yield VolumeIndex(file=files[volume.index.name], pieces=((0, head),))
        for suffix in _IDS if volume.entries else ():
            path = add_ending(volume.base, f"{volume.letter}{suffix}")
            if path.name in elsewhere or not (file := files.get(path.name)):
                continue
            pages = list_pages_without_ids(path) if suffix == "db" else []
            if pages is not None:  # else all nodes get it
                packed = tuple((at, zlib.compress(page)) for at, page in pages)
                yield VolumeIndex(file=file, pieces=packed, is_part=False)


def pack_carried_files(database: SearchedDatabase, command: UserCommand) -> Iterator[InlineFile]:
    """Yield the small files that go with the command: aliases, and mostly empty files, such as unparsed id lists."""
    heads = {volume.index.name for volume in database.volumes}
    for file in command.view.files if command.view else ():
        if (
            re.search(rf"\.{database.letter}[a-z][a-z]$", file.name)
            and file.name not in heads
            and file.size <= _LOOKED_AT
        ):
            assert command.view
            packed = zlib.compress((command.view.folder / file.name).read_bytes())
            if len(packed) <= max(_CARRIED, file.size // _CARRIED_SHARE):
                yield InlineFile(name=file.name, packed=packed)


def check_volumes(db: str, database: SearchedDatabase, later: Sequence[FetchedFile]) -> None:
    """Refuse to search volumes that are fetched later, if they are not all of one database.

    Raises:
        NotInFragmentsError: There are several databases, or files of a volume are missing on the shared storage.
    """
    if len(split_names(db)) > 1:
        raise NotInFragmentsError("nodes keep volumes of one database, not of several")
    if not all(len(files) == 2 for files in group_later_files(database, later)):
        raise NotInFragmentsError("not all of the database is volumes (NAME.00, NAME.01 ...)")
