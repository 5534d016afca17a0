"""Digests of databases in the user's cache folder, so that an unchanged database is not read again.

A database is unchanged if each of its files, and the program that reads it, has the same path, size, inode, mtime and
ctime. In doubt it is read.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from millrace.core.errors import CorruptError
from millrace.core.tool_use import FrozenValue
from millrace.host import file_lock, permissions
from millrace.host.permissions import replace_file
from millrace.planning import dependency_files
from millrace.planning.dependency_files import DependencyFile
from millrace.rundir.checksummed_json import encode_checksummed, read_checksummed

#: What is read of the files of a database.
Found = TypeVar("Found")

#: Version of the digests and of the cache files; files of another version are ignored.
VERSION = 1

#: Longest time between two changes of a file to which a filesystem may give the same timestamp.
TICK_SECONDS = 2.0


class DatabaseEntries(FrozenValue, frozen=True):
    """Number, residues and digests of the entries of a database; see ``millrace.extensions.pack.layout.PackedDatabase``."""

    entries: int
    residues: int
    ordered: str
    unordered: str


def digest_entries(entries: Iterable[tuple[bytes, int]]) -> DatabaseEntries:
    """Digest all entries, each given as the bytes that distinguish it, and its residues."""
    ordered, total, n, residues = hashlib.sha256(), 0, 0, 0
    for text, length in entries:
        digest = hashlib.sha256(text).digest()
        ordered.update(digest)
        total = (total + int.from_bytes(digest, "big")) % (1 << 256)
        n, residues = n + 1, residues + length
    return DatabaseEntries(n, residues, ordered.hexdigest(), f"{total:064x}")


class KnownDatabase(FrozenValue, frozen=True):
    """A cache file: the entries of one database."""

    version: int
    #: States of the files before the database was read.
    files: tuple[DependencyFile, ...]
    found: DatabaseEntries
    #: Number of entries that were asked for; None: all.
    most: int | None = None


def get_database_entries(
    files: Iterable[Path | str], most: int | None, environ: Mapping[str, str], read: Callable[[], DatabaseEntries]
) -> DatabaseEntries:
    """Return the first ``most`` entries of a database, or all: from the cache, or by ``read``, and then cached.

    Args:
        files: All files that the answer depends on, in the order of the entries.
    """
    before = read_file_states(files)
    place = _get_cache_path(before, environ)
    known = _load_known_database(place) if place else None
    if known and known.files == before and can_answer(known, most):
        return known.found
    found, is_unchanged = read_unchanged(before, read)
    if place and is_unchanged:
        _save_known_database(place, KnownDatabase(VERSION, before, found, most))
    return found


def read_unchanged(before: tuple[DependencyFile, ...], read: Callable[[], Found]) -> tuple[Found, bool]:
    """Call ``read``; return its result, and whether the files, of states ``before``, are certain not to have changed by then."""
    begun = time.time()
    found = read()
    after = read_file_states(file.path for file in before)
    return found, bool(before) and before == after and _is_settled(before, begun)


def can_answer(known: KnownDatabase, most: int | None) -> bool:
    """Tell whether a cached result answers a request for the first ``most`` entries, or for all (None). Pure.

    >>> five, begin = DatabaseEntries(5, 0, "", ""), KnownDatabase(1, (), DatabaseEntries(5, 0, "", ""), 5)
    >>> [can_answer(KnownDatabase(1, (), five), most) for most in (None, 4, 5, 6)], [can_answer(begin, most) for most in (None, 4, 5, 6)]
    ([True, False, True, True], [False, False, True, False])
    """
    n = known.found.entries
    is_whole = known.most is None or n < known.most
    if most is None:
        return is_whole
    return n == most or (is_whole and n < most)


def read_file_states(files: Iterable[Path | str]) -> tuple[DependencyFile, ...]:
    """Return the present states of the files; empty if the state of one of them cannot show a change."""
    found = []
    for path in dict.fromkeys(os.path.realpath(each) for each in files):
        file = dependency_files.stat_file("", path)
        if file is None or not os.path.isfile(path) or file_lock.find_filesystem_kind(Path(path)).startswith("fuse"):
            return ()
        found.append(file)
    return tuple(found)


def _get_cache_path(files: tuple[DependencyFile, ...], environ: Mapping[str, str]) -> Path | None:
    folder = permissions.find_cache_folder(environ)
    if not files or folder is None:
        return None
    name = hashlib.sha256("\0".join(file.path for file in files).encode(errors="surrogateescape"))
    return folder / "databases" / f"{name.hexdigest()[:32]}.json"


def _load_known_database(place: Path) -> KnownDatabase | None:
    with suppress(FileNotFoundError, CorruptError):
        return read_checksummed(place, KnownDatabase, "what a database holds", VERSION)
    return None


def _is_settled(files: Iterable[DependencyFile], begun: float) -> bool:
    """Tell whether each change after ``begun``, in seconds since 1970, must show in the timestamps."""
    return max(max(file.mtime_ns, file.ctime_ns) for file in files) < (begun - TICK_SECONDS) * 1e9


def _save_known_database(place: Path, known: KnownDatabase) -> None:
    """Write the cache file. A failure is ignored: the next command reads the database again."""
    with suppress(OSError):
        place.parent.mkdir(parents=True, exist_ok=True)
        replace_file(place, encode_checksummed(known))
