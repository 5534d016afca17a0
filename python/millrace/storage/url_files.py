"""Files that a command names by URLs: how they are found, and copied to this node."""

from __future__ import annotations

import re
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, urlsplit, urlunsplit

from millrace.adapters.adapter_base import FileNamePatterns
from millrace.core.errors import RefusedError
from millrace.core.replica_rules import redact_place
from millrace.core.text_format import format_size
from millrace.core.tool_use import FetchedFile
from millrace.host import memory_limits
from millrace.storage import locations, unpacked_copies
from millrace.storage.cache import cache_download, cache_location
from millrace.storage.cache.copy_cache import NodeCache
from millrace.storage.clients.base import DeniedError, FileStatus, LocationError, MissingError
from millrace.storage.staging_choice import AVAILABLE_SHARE, MEMORY_SHARE

#: Files that a place is asked for at the same time.
MAX_CONCURRENT_QUERIES = 8

#: Assumed ratio of unpacked to packed size, for the choice of a cache.
UNPACKED_TIMES = 5


class UrlFile(NamedTuple):
    """A file that belongs to a URL of the command."""

    name: str
    place: str
    about: FileStatus
    #: Whether only searches of one volume read it.
    apart: bool = False
    #: Whether no tool reads it if the files that are apart are left out.
    unread: bool = False
    #: Whether a node may fetch only a piece of it.
    in_pieces: bool = False

    @property
    def bytes(self) -> int:
        """Bytes that it may need in the end, unpacked."""
        return self.about.size * (
            UNPACKED_TIMES if self.name.endswith((*unpacked_copies.PACKED, unpacked_copies.ARCHIVE)) else 1
        )


def make_sibling_url(url: str, name: str) -> str:
    """Return the URL of another file in the same folder.

    >>> make_sibling_url("s3://bucket/blast/nr", "nr.00.psq")
    's3://bucket/blast/nr.00.psq'
    """
    parts = urlsplit(url, allow_fragments=False)
    # S3 object names are not quoted in URLs.
    typed = name if parts.scheme == "s3" else quote(name)
    return urlunsplit(parts._replace(path=parts.path.rpartition("/")[0] + "/" + typed))


def find_url_files(url: str, parts: FileNamePatterns | None) -> list[UrlFile]:
    """Find the files that belong to a URL, with their current status.

    Args:
        parts: Patterns of the names to find in its folder; None: it is one file.

    Raises:
        MillraceError: It does not exist, or cannot be read.
    """
    if parts is None:
        return [UrlFile(cache_download.extract_base_name(url), url, locations.query_file_status(url))]
    there = _list_folder(url)
    names = [name for name in there if re.fullmatch(parts.pattern, name)]
    if not any(re.fullmatch(parts.needed, name) for name in names):
        names = [name for name in there if parts.packed and re.fullmatch(parts.packed, name)]
    found = _query_files(url, names or parts.usual)
    if not any(
        re.fullmatch(f"{parts.needed}|{parts.packed}" if parts.packed else parts.needed, each.name) for each in found
    ):
        if _query_files(url, [cache_download.extract_base_name(url)]):
            raise MissingError(
                f"{redact_place(url)}: is there as one file, and not as a database: nothing has a name like {parts.usual[0]}",
                "make a database of it (of sequences for BLAST: makeblastdb), or name it where the tool takes a plain file (-subject)",
            )
        raise MissingError(
            f"{redact_place(url)}: nothing there has a name like {parts.usual[0]}", "see that its name is right, and that it is still there"
        )  # fmt: skip
    return [
        each._replace(
            apart=_has_matching_name(parts.apart, each),
            unread=_has_matching_name(parts.unread, each),
            in_pieces=_has_matching_name(parts.in_pieces, each),
        )
        for each in found
    ]


def _has_matching_name(pattern: str, found: UrlFile) -> bool:
    return bool(pattern and re.fullmatch(pattern, found.name))


def _list_folder(url: str) -> list[str]:
    """List the names in the folder of a URL; empty if it cannot be listed, though its files may be readable."""
    try:
        with closing(
            locations.open_location(urlunsplit(urlsplit(make_sibling_url(url, ""))._replace(query="")))
        ) as folder:
            return folder.list_names()
    except LocationError:
        return []


def _query_files(url: str, names: Iterable[str]) -> list[UrlFile]:
    def query_file(name: str) -> UrlFile | LocationError:
        place = make_sibling_url(url, name)
        try:
            return UrlFile(name, place, locations.query_file_status(place))
        except (MissingError, DeniedError) as error:
            return error

    with ThreadPoolExecutor(MAX_CONCURRENT_QUERIES) as pool:
        answers = list(pool.map(query_file, dict.fromkeys(names)))
    found = [each for each in answers if isinstance(each, UrlFile)]
    # Some places deny access to a file that does not exist.
    if not found and (denied := next((each for each in answers if isinstance(each, DeniedError)), None)):
        raise denied
    return found


def choose_cache_folder(way: str, wanted: int) -> Path:
    """Return the folder for copies: the one asked for, else memory if ``wanted`` bytes fit, else a disk.

    Raises:
        RefusedError: There is no such folder.
    """
    if way in ("ram", "disk") or way.startswith("/"):
        return cache_location.resolve_cache_folder(way)
    shared, disk = cache_location.find_memory_folder(), cache_location.find_disk_folder()
    room = min(
        AVAILABLE_SHARE * memory_limits.read_available_memory(), memory_limits.read_usable_memory()[0] * MEMORY_SHARE
    )
    if shared and (wanted < room or not disk):
        return shared
    if not disk:
        raise RefusedError(f"no place for {format_size(wanted)} of files behind URLs", "name one with --stage DIR")
    return disk


def copy_to_cache(found: Iterable[UrlFile], cache: NodeCache) -> list[FetchedFile]:
    """Copy files into the cache of this node; they are held until it is closed.

    Raises:
        MillraceError: A file cannot be read, has changed, or does not fit.
    """
    budget = cache_location.compute_budget_bytes(cache)
    files: list[FetchedFile] = []
    for each in found:
        if unpacked_copies.is_packed(each.name) or each.name.endswith(unpacked_copies.ARCHIVE):
            members = unpacked_copies.unpack_to_cache(each.place, each.about, cache, budget)
            files += [_make_fetched(member.name, each, member.key, member.size, member.mtime_ns) for member in members]
        else:
            path = cache_download.fetch_to_cache(each.place, cache, budget, wanted=each.about)
            files.append(_make_fetched(each.name, each, path.name, each.about.size, each.about.mtime_ns))
    return files


def describe_before_copy(found: UrlFile) -> FetchedFile:
    """Describe a file before it is copied."""
    about = found.about
    key = cache_download.RemoteFile(
        place=found.place, size=about.size, version=about.version, mtime_ns=about.mtime_ns
    ).key
    return _make_fetched(found.name, found, key, about.size, about.mtime_ns)


def _make_fetched(name: str, found: UrlFile, key: str, n_bytes: int, mtime_ns: int) -> FetchedFile:
    return FetchedFile(name=name, place=redact_place(found.place), key=key, size=n_bytes, version=found.about.version, mtime_ns=mtime_ns)  # fmt: skip
