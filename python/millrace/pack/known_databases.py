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

from millrace import state
from millrace.errors import CorruptError
from millrace.model import Frozen
from millrace.own import replace_whole
from millrace.plan import filesystems, world
from millrace.plan.world import File
from millrace.sealed import seal, unseal

#: Version of the digests and of the cache files; files of another version are ignored.
VERSION = 1

#: Longest time between two changes of a file to which a filesystem may give the same timestamp.
TICK_SECONDS = 2.0


class Entries(Frozen, frozen=True):
    """Number, residues and digests of the entries of a database; see ``millrace.pack.recipe.Database``."""

    entries: int
    residues: int
    ordered: str
    unordered: str


class Known(Frozen, frozen=True):
    """A cache file: the entries of one database."""

    version: int
    #: States of the files before the database was read.
    files: tuple[File, ...]
    found: Entries
    #: Number of entries that were asked for; None: all.
    most: int | None = None


def entries(
    files: Iterable[Path | str], most: int | None, environ: Mapping[str, str], read: Callable[[], Entries]
) -> Entries:
    """Return the first ``most`` entries of a database, or all: from the cache, or by ``read``, and then cached.

    Args:
        files: All files that the answer depends on, in the order of the entries.
    """
    before = _seen(files)
    place = _place(before, environ)
    known = _known(place) if place else None
    if known and known.files == before and answers(known, most):
        return known.found
    begun = time.time()
    found = read()
    if place and before == _seen(file.path for file in before) and _is_settled(before, begun):
        _keep(place, Known(VERSION, before, found, most))
    return found


def answers(known: Known, most: int | None) -> bool:
    """Tell whether a cached result answers a request for the first ``most`` entries, or for all (None). Pure.

    >>> five, begin = Entries(5, 0, "", ""), Known(1, (), Entries(5, 0, "", ""), 5)
    >>> [answers(Known(1, (), five), most) for most in (None, 4, 5, 6)], [answers(begin, most) for most in (None, 4, 5, 6)]
    ([True, False, True, True], [False, False, True, False])
    """
    n = known.found.entries
    is_whole = known.most is None or n < known.most
    if most is None:
        return is_whole
    return n == most or (is_whole and n < most)


def _seen(files: Iterable[Path | str]) -> tuple[File, ...]:
    """Return the present states of the files; empty if the state of one of them cannot show a change."""
    found = []
    for path in dict.fromkeys(os.path.realpath(each) for each in files):
        file = world.look("", path)
        if file is None or not os.path.isfile(path) or filesystems.kind(Path(path)).startswith("fuse"):
            return ()
        found.append(file)
    return tuple(found)


def _place(files: tuple[File, ...], environ: Mapping[str, str]) -> Path | None:
    folder = state.cache(environ)
    if not files or folder is None:
        return None
    name = hashlib.sha256("\0".join(file.path for file in files).encode(errors="surrogateescape"))
    return folder / "databases" / f"{name.hexdigest()[:32]}.json"


def _known(place: Path) -> Known | None:
    with suppress(FileNotFoundError, CorruptError):
        return unseal(place, Known, "what a database holds", VERSION)
    return None


def _is_settled(files: Iterable[File], begun: float) -> bool:
    """Tell whether each change after ``begun``, in seconds since 1970, must show in the timestamps."""
    return max(max(file.mtime_ns, file.ctime_ns) for file in files) < (begun - TICK_SECONDS) * 1e9


def _keep(place: Path, known: Known) -> None:
    """Write the cache file. A failure is ignored: the next command reads the database again."""
    with suppress(OSError):
        place.parent.mkdir(parents=True, exist_ok=True)
        replace_whole(place, seal(known))
