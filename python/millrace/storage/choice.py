"""Which places have the bytes of a file now."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from millrace import replicas
from millrace.errors import MillraceError
from millrace.model import Frozen
from millrace.storage import locations
from millrace.storage.clients.base import About


class Found(Frozen, frozen=True):
    """A place that may have the file."""

    place: str
    about: About | None
    #: Why it cannot be read from there, in words; empty: it can.
    why_not: str = ""


def absolute(name: str) -> str:
    """The path, or URL, that a user means."""
    return name if replicas.is_url(name) else os.path.abspath(name)


def look(name: str, rules: Sequence[replicas.Replica]) -> list[Found]:
    """Ask all places of a file at the same time: the one that is named first, then those of the rules.

    The first that answers tells which bytes are meant: a place that has others is not one of the file's.
    """
    places = [name, *replicas.of(name, rules)]
    with ThreadPoolExecutor(len(places)) as pool:
        found = list(pool.map(_ask, places))
    original = next((each.about for each in found if each.about), None)
    return [_compare(each, original) for each in found]


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
    """Whether two checksums are of different bytes; those of different kinds do not tell."""
    return one != other and one.partition(":")[0] == other.partition(":")[0]
