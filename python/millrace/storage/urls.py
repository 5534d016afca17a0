"""Files that a command names by URLs: how they are found, and copied to this node."""

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

#: Files that a place is asked for at the same time.
ASKED_AT_ONCE = 8

#: Assumed ratio of unpacked to packed size, for the choice of a cache.
UNPACKED_TIMES = 5


class Found(NamedTuple):
    """A file that belongs to a URL of the command."""

    name: str
    place: str
    about: About
    #: Whether only searches of one volume read it.
    apart: bool = False
    #: Whether no tool reads it if the files that are apart are left out.
    unread: bool = False
    #: Whether a node may fetch only a piece of it.
    in_pieces: bool = False

    @property
    def bytes(self) -> int:
        """Bytes that it may need in the end, unpacked."""
        return self.about.size * (UNPACKED_TIMES if self.name.endswith((*unpack.PACKED, unpack.ARCHIVE)) else 1)


def beside(url: str, name: str) -> str:
    """Return the URL of another file in the same folder.

    >>> beside("s3://bucket/blast/nr", "nr.00.psq")
    's3://bucket/blast/nr.00.psq'
    """
    parts = urlsplit(url, allow_fragments=False)
    # S3 object names are not quoted in URLs.
    typed = name if parts.scheme == "s3" else quote(name)
    return urlunsplit(parts._replace(path=parts.path.rpartition("/")[0] + "/" + typed))


def look(url: str, parts: Parts | None) -> list[Found]:
    """Find the files that belong to a URL, with their current status.

    Args:
        parts: Patterns of the names to find in its folder; None: it is one file.

    Raises:
        MillraceError: It does not exist, or cannot be read.
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
    """List the names in the folder of a URL; empty if it cannot be listed, though its files may be readable."""
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
    # Some places deny access to a file that does not exist.
    if not found and (denied := next((each for each in answers if isinstance(each, DeniedError)), None)):
        raise denied
    return found


def choose(way: str, wanted: int) -> Path:
    """Return the folder for copies: the one asked for, else memory if ``wanted`` bytes fit, else a disk.

    Raises:
        RefusedError: There is no such folder.
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
    """Copy files into the cache of this node; they are held until it is closed.

    Raises:
        MillraceError: A file cannot be read, has changed, or does not fit.
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
    """Describe a file before it is copied."""
    about = found.about
    key = fetch.Remote(place=found.place, size=about.size, version=about.version, mtime_ns=about.mtime_ns).key
    return _fetched(found.name, found, key, about.size, about.mtime_ns)


def _fetched(name: str, found: Found, key: str, n_bytes: int, mtime_ns: int) -> Fetched:
    return Fetched(name=name, place=shown(found.place), key=key, size=n_bytes, version=found.about.version, mtime_ns=mtime_ns)  # fmt: skip
