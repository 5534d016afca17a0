"""The path from which a program on this node reads a file: in place, a copy that is there, or one that is made first.

The arithmetic is pure: ``millrace.storage.reading_costs.choose_path``.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from millrace.core.errors import MillraceError, RefusedError
from millrace.core.job import JobSpec
from millrace.core.replica_rules import is_url, redact_place
from millrace.core.text_format import format_count, format_duration
from millrace.storage import cost_table, staging_choice
from millrace.storage.cache import cache_download, cache_location
from millrace.storage.cache.cache_files import CacheSource
from millrace.storage.cache.copy_cache import NodeCache
from millrace.storage.clients.base import FileStatus
from millrace.storage.cost_table import PlaceStatus
from millrace.storage.reading_costs import PathChoice, ReadOffer, choose_path


class FilePath(NamedTuple):
    """A path that a program opens, and how it was chosen."""

    path: str
    choice: PathChoice
    #: Why no copy could be made although it would pay; empty: it was made, or does not pay.
    why_not: str = ""

    def explain_no_copy(self, reads: int) -> str:
        """Explain why no copy was made; empty: there is one."""
        if self.why_not:
            return f"left in place, as it cannot be copied: {self.why_not}"
        if self.choice.is_copied:
            return ""
        times = format_count(reads, "read")
        here, copied = (format_duration(t) for t in (self.choice.in_place_seconds, self.choice.copied_seconds))
        return f"left in place: {times} there take {here}, with a copy {copied} (--all copies it)"


def query_all_places(name: str, settings: JobSpec, environ: Mapping[str, str]) -> list[PlaceStatus]:
    """Ask all places of a file: the named one, those of the rules, and the copies on this node."""
    found = cost_table.query_places(cost_table.make_absolute(name), settings.replica)
    same = [each for each in found if each.about and not each.why_not]
    sources = [source for each in same if each.about for source in _list_cache_sources(each.place, each.about)]
    copies = cache_location.find_copies(sources, environ) if sources else []
    told = {each.place for each in found}
    return [
        *found,
        *(
            PlaceStatus(place=str(copy), about=FileStatus(size=copy.stat().st_size, version=""))
            for copy in copies
            if str(copy) not in told
        ),
    ]


def _list_cache_sources(place: str, about: FileStatus) -> list[CacheSource]:
    """List the sources whose copies have the bytes of a place: fetched ones, and those that a run makes of a path."""
    fetched: list[CacheSource] = [cache_download.make_remote_file(place, about)] if about.version else []
    return fetched if is_url(place) else [*fetched, *staging_choice.list_database_files([Path(place)], Path("/"))]


def find_cheapest_place(
    name: str, readers: int, reads: int, settings: JobSpec, environ: Mapping[str, str]
) -> ReadOffer:
    """Return the place where all reads of a file cost least.

    Raises:
        RefusedError: No place has the file.
    """
    found = _query_usable_places(name, settings, environ)
    return min(
        cost_table.list_offers(found, readers, settings.costs, environ), key=lambda offer: offer.predict_reads(reads)
    )


def _query_usable_places(name: str, settings: JobSpec, environ: Mapping[str, str]) -> list[PlaceStatus]:
    found = query_all_places(name, settings, environ)
    if usable := [each for each in found if each.about and not each.why_not]:
        return usable
    why = "; ".join(f"{redact_place(each.place)}: {each.why_not}" for each in found)
    raise RefusedError(f"{redact_place(name)}: no place has it ({why})", "see: millrace data locate")


def make_best_path(
    name: str,
    readers: int,
    reads: int,
    settings: JobSpec,
    environ: Mapping[str, str],
    way: str = "",
    needs_copy: bool = False,
) -> FilePath:
    """Return the path from which a file is read at the least cost; make a copy first where that pays.

    Args:
        readers: Number of simultaneous readers on all nodes.
        reads: How often this node reads all of it.
        way: The place of the copy, as for ``--to``; empty: that of the settings, else a disk, else memory.
        needs_copy: Make a copy in any case.

    Raises:
        MillraceError: No place has the file; or no path has it, and it cannot be copied.
    """
    found = _query_usable_places(name, settings, environ)
    for each in found:
        cost_table.measure_unknown_place(each.place, each.about.size if each.about else 0, environ)
    offers = cost_table.list_offers(found, readers, settings.costs, environ)
    place = cache_location.resolve_cache_folder(way or _choose_way(settings.stage))
    table = cost_table.read_cost_table(environ)
    copy = cost_table.make_offer(str(place / "copy"), offers[0].size, 1, table, settings.costs)
    choice = choose_path(offers, copy, reads, needs_copy)
    if not choice.is_copied:
        return FilePath(choice.offer.place, choice)
    try:
        return FilePath(str(_fetch_copy(choice.offer.place, place, environ)), choice)
    except MillraceError as error:
        paths = [offer for offer in offers if not is_url(offer.place)]
        if needs_copy or not paths:
            raise
        here = min(paths, key=lambda offer: offer.predict_reads(reads))
        return FilePath(here.place, choice, error.message)


def _choose_way(stage: str) -> str:
    """Choose the place of copies that are to stay, by ``stage`` of the settings."""
    if stage not in ("auto", "off"):
        return stage
    return "disk" if cache_location.find_disk_folder() else "ram"


def _fetch_copy(source: str, place: Path, environ: Mapping[str, str]) -> Path:
    cache_location.register_cache_place(place, environ)
    with closing(NodeCache(place, fetched=True)) as cache:
        return cache_download.fetch_to_cache(source, cache, cache_location.compute_budget_bytes(cache))
