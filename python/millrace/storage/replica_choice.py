"""The choice among the places of a file: which have its bytes now, and which is the cheapest."""

from __future__ import annotations

import fnmatch
import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress

from millrace.core import replica_rules
from millrace.core.errors import MillraceError, RefusedError
from millrace.core.tool_use import FrozenValue
from millrace.host import core_allocation
from millrace.storage import cost_table, locations
from millrace.storage.clients.base import FileStatus
from millrace.storage.reading_costs import ReadOffer, choose_cheapest_offer


class PlaceStatus(FrozenValue, frozen=True):
    """A place that may have the file, and its answer."""

    place: str
    about: FileStatus | None
    #: Why the file cannot be read from there; empty: it can.
    why_not: str = ""


def make_absolute(name: str) -> str:
    """Return a URL as it is, a path as an absolute one."""
    return name if replica_rules.is_url(name) else os.path.abspath(name)


def query_places(name: str, rules: Sequence[replica_rules.ReplicaRule]) -> list[PlaceStatus]:
    """Ask all places of a file in parallel: the named one first, then those of the rules.

    The first that answers defines the bytes. A place with another size or checksum is marked as unusable.
    """
    places = [name, *replica_rules.find_replicas(name, rules)]
    with ThreadPoolExecutor(len(places)) as pool:
        found = list(pool.map(_query_place, places))
    original = next((each.about for each in found if each.about), None)
    return [_compare_with_original(each, original) for each in found]


def list_offers(found: Sequence[PlaceStatus], readers: int, environ: Mapping[str, str]) -> list[ReadOffer]:
    """List the costs of the bytes at the places that have them.

    Args:
        readers: Number of readers of the whole run. On a node's own filesystem only the cores of this node count.
    """
    table = cost_table.read_cost_table(environ)
    here = min(readers, core_allocation.count_usable_cores(environ)[0])
    made = []
    for each in found:
        if each.about and not each.why_not:
            cost, when = cost_table.find_cost(each.place, table)
            own = cost_table.classify_place(each.place) in ("memory", "disk")
            day = time.strftime("%Y-%m-%d", time.localtime(when)) if when else ""
            made.append(ReadOffer(place=each.place, size=each.about.size, cost=cost, readers=here if own else readers, measured=day))  # fmt: skip
    return made


def find_cheapest_place(
    name: str, readers: int, rules: Sequence[replica_rules.ReplicaRule], environ: Mapping[str, str]
) -> ReadOffer:
    """Return the place from which the bytes of a file cost least.

    Raises:
        RefusedError: No place has the file.
    """
    found = query_places(make_absolute(name), rules)
    if offer := choose_cheapest_offer(list_offers(found, readers, environ)):
        return offer
    why = "; ".join(f"{replica_rules.redact_place(each.place)}: {each.why_not}" for each in found)
    raise RefusedError(f"{replica_rules.redact_place(name)}: no place has it ({why})", "see: millrace data locate")


def list_example_files(rules: Sequence[replica_rules.ReplicaRule]) -> list[str]:
    """List one large file at each place of the rules that can be listed."""
    found = []
    for place in dict.fromkeys(place for rule in rules for place in rule.at):
        if "*" not in place:
            found.append(place)
            continue
        folder, _, pattern = place.rpartition("/")
        with suppress(MillraceError), closing(locations.open_location(folder + "/")) as location:
            names = fnmatch.filter(location.list_names(), pattern)[:16]
            found.append(max((f"{folder}/{name}" for name in names), key=_query_size, default=""))
    return [place for place in found if place]


def _query_size(place: str) -> int:
    with suppress(MillraceError):
        return locations.query_file_status(place).size
    return 0


def _query_place(place: str) -> PlaceStatus:
    try:
        return PlaceStatus(place=place, about=locations.query_file_status(place))
    except MillraceError as error:
        return PlaceStatus(
            place=place, about=None, why_not=error.message.removeprefix(f"{replica_rules.redact_place(place)}: ")
        )


def _compare_with_original(found: PlaceStatus, original: FileStatus | None) -> PlaceStatus:
    if not found.about or not original:
        return found
    why_not = ""
    if found.about.size != original.size:
        why_not = f"has {found.about.size:,} bytes, not {original.size:,}"
    elif _has_other_bytes(found.about.checksum, original.checksum):
        why_not = "has another checksum"
    return PlaceStatus(place=found.place, about=found.about, why_not=why_not)


def _has_other_bytes(one: str, other: str) -> bool:
    """Tell whether two checksums of the same kind differ; False for different kinds."""
    return one != other and one.partition(":")[0] == other.partition(":")[0]
