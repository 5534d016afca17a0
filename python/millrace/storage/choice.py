"""The choice among the places of a file: which have its bytes now, and which is the cheapest."""

from __future__ import annotations

import fnmatch
import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress

from millrace import replicas
from millrace.errors import MillraceError, RefusedError
from millrace.model import Frozen
from millrace.plan import cores
from millrace.plan.costs import Offer, cheapest
from millrace.storage import cost_table, locations
from millrace.storage.clients.base import About


class Found(Frozen, frozen=True):
    """A place that may have the file, and its answer."""

    place: str
    about: About | None
    #: Why the file cannot be read from there; empty: it can.
    why_not: str = ""


def absolute(name: str) -> str:
    """Return a URL as it is, a path as an absolute one."""
    return name if replicas.is_url(name) else os.path.abspath(name)


def look(name: str, rules: Sequence[replicas.Replica]) -> list[Found]:
    """Ask all places of a file in parallel: the named one first, then those of the rules.

    The first that answers defines the bytes. A place with another size or checksum is marked as unusable.
    """
    places = [name, *replicas.of(name, rules)]
    with ThreadPoolExecutor(len(places)) as pool:
        found = list(pool.map(_ask, places))
    original = next((each.about for each in found if each.about), None)
    return [_compare(each, original) for each in found]


def offers(found: Sequence[Found], readers: int, environ: Mapping[str, str]) -> list[Offer]:
    """List the costs of the bytes at the places that have them.

    Args:
        readers: Number of readers of the whole run. On a node's own filesystem only the cores of this node count.
    """
    table = cost_table.read(environ)
    here = min(readers, cores.usable(environ)[0])
    made = []
    for each in found:
        if each.about and not each.why_not:
            cost, when = cost_table.cost_of(each.place, table)
            own = cost_table.nature(each.place) in ("memory", "disk")
            day = time.strftime("%Y-%m-%d", time.localtime(when)) if when else ""
            made.append(Offer(place=each.place, size=each.about.size, cost=cost, readers=here if own else readers, measured=day))  # fmt: skip
    return made


def best(name: str, readers: int, rules: Sequence[replicas.Replica], environ: Mapping[str, str]) -> Offer:
    """Return the place from which the bytes of a file cost least.

    Raises:
        RefusedError: No place has the file.
    """
    found = look(absolute(name), rules)
    if offer := cheapest(offers(found, readers, environ)):
        return offer
    why = "; ".join(f"{replicas.shown(each.place)}: {each.why_not}" for each in found)
    raise RefusedError(f"{replicas.shown(name)}: no place has it ({why})", "see: millrace data locate")


def examples(rules: Sequence[replicas.Replica]) -> list[str]:
    """List one large file at each place of the rules that can be listed."""
    found = []
    for place in dict.fromkeys(place for rule in rules for place in rule.at):
        if "*" not in place:
            found.append(place)
            continue
        folder, _, pattern = place.rpartition("/")
        with suppress(MillraceError), closing(locations.at(folder + "/")) as location:
            names = fnmatch.filter(location.names(), pattern)[:16]
            found.append(max((f"{folder}/{name}" for name in names), key=_size, default=""))
    return [place for place in found if place]


def _size(place: str) -> int:
    with suppress(MillraceError):
        return locations.about(place).size
    return 0


def _ask(place: str) -> Found:
    try:
        return Found(place=place, about=locations.about(place))
    except MillraceError as error:
        return Found(place=place, about=None, why_not=error.message.removeprefix(f"{replicas.shown(place)}: "))


def _compare(found: Found, original: About | None) -> Found:
    if not found.about or not original:
        return found
    why_not = ""
    if found.about.size != original.size:
        why_not = f"has {found.about.size:,} bytes, not {original.size:,}"
    elif _differ(found.about.checksum, original.checksum):
        why_not = "has another checksum"
    return Found(place=found.place, about=found.about, why_not=why_not)


def _differ(one: str, other: str) -> bool:
    """Tell whether two checksums of the same kind differ; False for different kinds."""
    return one != other and one.partition(":")[0] == other.partition(":")[0]
