"""Files that a command names by URLs: which they are, and copies of them on this node."""

from __future__ import annotations

import re
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, urlsplit, urlunsplit

from millrace.errors import RefusedError
from millrace.model import Fetched
from millrace.plan import memory
from millrace.plan.staging import AVAILABLE_SHARE, MEMORY_SHARE
from millrace.replicas import shown
from millrace.storage import fetch, keep, locations, unpack
from millrace.storage.cache import Cache
from millrace.storage.clients.base import About, DeniedError, LocationError, MissingError
from millrace.tools.base import Parts
from millrace.words import size

#: Files of which a place is asked at the same time.
ASKED_AT_ONCE = 8

#: How much larger than it came what is packed may be, for the choice of a place.
UNPACKED_TIMES = 5


class Found(NamedTuple):
    """A file that belongs to what a URL names."""

    name: str
    place: str
    about: About
    #: Whether it is read by searches of a volume alone.
    apart: bool = False
    #: Whether nobody reads it where those are left that are apart.
    unread: bool = False
    #: Whether nodes may fetch pieces of it.
    in_pieces: bool = False

    @property
    def bytes(self) -> int:
        """What it may need in the end."""
        return self.about.size * (UNPACKED_TIMES if self.name.endswith((*unpack.PACKED, unpack.ARCHIVE)) else 1)


def beside(url: str, name: str) -> str:
    """The URL of another file in the folder of one.

    >>> beside("s3://bucket/blast/nr", "nr.00.psq")
    's3://bucket/blast/nr.00.psq'
    """
    parts = urlsplit(url, allow_fragments=False)
    # The names of S3's objects stand in URLs as they are.
    typed = name if parts.scheme == "s3" else quote(name)
    return urlunsplit(parts._replace(path=parts.path.rpartition("/")[0] + "/" + typed))


def look(url: str, parts: Parts | None) -> list[Found]:
    """The files that belong to what a URL names, as they are now.

    Args:
        parts: What to look for in its folder; None: it is one file.

    Raises:
        MillraceError: It is not there, or cannot be read.
    """
    if parts is None:
        return [Found(fetch.base_name(url), url, locations.about(url))]
    there = _names(url)
    names = [name for name in there if re.fullmatch(parts.pattern, name)]
    if not any(re.fullmatch(parts.needed, name) for name in names):
        names = [name for name in there if parts.packed and re.fullmatch(parts.packed, name)]
    found = _ask(url, names or parts.usual)
    if not any(
        re.fullmatch(f"{parts.needed}|{parts.packed}" if parts.packed else parts.needed, each.name) for each in found
    ):
        if _ask(url, [fetch.base_name(url)]):
            raise MissingError(
                f"{shown(url)}: is there as one file, and not as a database: nothing has a name like {parts.usual[0]}",
                "make a database of it (of sequences for BLAST: makeblastdb), or name it where the tool takes a plain file (-subject)",
            )
        raise MissingError(
            f"{shown(url)}: nothing there has a name like {parts.usual[0]}", "see that its name is right, and that it is still there"
        )  # fmt: skip
    return [
        each._replace(
            apart=_matches(parts.apart, each),
            unread=_matches(parts.unread, each),
            in_pieces=_matches(parts.in_pieces, each),
        )
        for each in found
    ]


def _matches(pattern: str, found: Found) -> bool:
    return bool(pattern and re.fullmatch(pattern, found.name))


def _names(url: str) -> list[str]:
    """The names in its folder; none if it cannot be listed, which its files may be read for all that."""
    try:
        with closing(locations.at(urlunsplit(urlsplit(beside(url, ""))._replace(query="")))) as folder:
            return folder.names()
    except LocationError:
        return []


def _ask(url: str, names: Iterable[str]) -> list[Found]:
    def ask(name: str) -> Found | LocationError:
        place = beside(url, name)
        try:
            return Found(name, place, locations.about(place))
        except (MissingError, DeniedError) as error:
            return error

    with ThreadPoolExecutor(ASKED_AT_ONCE) as pool:
        answers = list(pool.map(ask, dict.fromkeys(names)))
    found = [each for each in answers if isinstance(each, Found)]
    # Of a file that is not there some places say that it may not be read.
    if not found and (denied := next((each for each in answers if isinstance(each, DeniedError)), None)):
        raise denied
    return found


def choose(way: str, wanted: int) -> Path:
    """The folder in which copies are kept: that which is asked for, else memory if so many bytes fit, else a disk.

    Raises:
        RefusedError: There is no such place.
    """
    if way in ("ram", "disk") or way.startswith("/"):
        return keep.place(way)
    shared, disk = keep.in_memory(), keep.on_disk()
    room = min(AVAILABLE_SHARE * memory.available(), memory.usable()[0] * MEMORY_SHARE)
    if shared and (wanted < room or not disk):
        return shared
    if not disk:
        raise RefusedError(f"no place for {size(wanted)} of files behind URLs", "name one with --stage DIR")
    return disk


def bring(found: Iterable[Found], cache: Cache) -> list[Fetched]:
    """Copy files into the cache of this node; they are in use until it is closed.

    Raises:
        MillraceError: One cannot be read, has changed since, or does not fit.
    """
    budget = keep.budget(cache)
    files: list[Fetched] = []
    for each in found:
        if unpack.is_packed(each.name) or each.name.endswith(unpack.ARCHIVE):
            members = unpack.contents(each.place, each.about, cache, budget)
            files += [_fetched(member.name, each, member.key, member.size, member.mtime_ns) for member in members]
        else:
            path = fetch.fetch(each.place, cache, budget, wanted=each.about)
            files.append(_fetched(each.name, each, path.name, each.about.size, each.about.mtime_ns))
    return files


def later(found: Found) -> Fetched:
    """What is known of a file before it is copied."""
    about = found.about
    key = fetch.Remote(place=found.place, size=about.size, version=about.version, mtime_ns=about.mtime_ns).key
    return _fetched(found.name, found, key, about.size, about.mtime_ns)


def _fetched(name: str, found: Found, key: str, n_bytes: int, mtime_ns: int) -> Fetched:
    return Fetched(name=name, place=shown(found.place), key=key, size=n_bytes, version=found.about.version, mtime_ns=mtime_ns)  # fmt: skip
