"""Empty id tables for the volumes that BLAST opens but does not search.

A search opens the ids of all volumes of a database (``.pdb``, LMDB, with the tables ``volname``, ``volinfo`` and
``acc2oid``), and looks up the ids of the entries that it finds. A volume that is not searched needs no ids.

Source: "BLAST Database Version 5" of the NCBI C++ Toolkit (``seqdb_lmdb.cpp``); ``mdb.c`` of LMDB for the format of
pages: 16 bytes of head, then the offset of each node in the page; a node has the length of its data, flags, the length
of its key, the key, and the data; a table's record has 48 bytes, the last 8 its root.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

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
