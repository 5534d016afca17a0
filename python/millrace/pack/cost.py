"""Whether packing pays: seconds to send a result as it is, compressed, or packed. Pure.

Source: the inequality of ParaMEDIC (Balaji, Feng, Archuleta, Lin, 2007): D - x > B (f(x) + g(x)), with D bytes of the result, x of the
pack, a bandwidth of B, and f and g seconds to pack and to regenerate.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from millrace.errors import RefusedError


@dataclass(frozen=True)
class Way:
    """One way to get a result to the other end."""

    name: str
    #: Bytes that are sent.
    bytes: int
    #: Seconds of work before they are sent, and after.
    before: float = 0.0
    after: float = 0.0

    def seconds(self, bandwidth: float) -> float:
        """From the finished result here to the result there, with ``bandwidth`` in bytes a second."""
        return self.before + self.bytes / bandwidth + self.after


def best(ways: list[Way], bandwidth: float) -> Way:
    """The way that takes least time; of equal ones the first.

    >>> ways = [Way("as it is", 1000), Way("packed", 10, before=3, after=6)]
    >>> [best(ways, bandwidth).name for bandwidth in (100, 110, 120)]
    ['packed', 'packed', 'as it is']
    """
    return min(ways, key=lambda way: way.seconds(bandwidth))


def pays_below(other: Way, packed: Way) -> float:
    """The bandwidth, in bytes a second, below which ``packed`` is there before ``other``; 0: at none, infinite: at all.

    >>> pays_below(Way("as it is", 1000), Way("packed", 10, before=3, after=6))
    110.0
    """
    saved, spent = other.bytes - packed.bytes, packed.before + packed.after - other.before - other.after
    if saved <= 0:
        return float("inf") if spent < 0 else 0.0
    return saved / spent if spent > 0 else float("inf")


@dataclass(frozen=True)
class Sample:
    """Some of a result, regenerated; all times in seconds."""

    #: From its begin to its end.
    wall: float
    #: How many slots there were, and the share of the time in which one had something to do.
    slots: int
    occupancy: float
    #: Which share of all work it is.
    share: float
    #: Batches in it, and in all.
    batches: int
    of: int

    def all_of_it(self) -> float:
        """What it takes to regenerate all: starts and ends are there once, and the tools' work goes on as it does in the sample.

        >>> Sample(wall=3, slots=1, occupancy=2 / 3, share=0.1, batches=1, of=10).all_of_it()
        21.0
        >>> Sample(wall=3, slots=2, occupancy=1 / 3, share=0.5, batches=1, of=2).all_of_it()
        3.0
        """
        work = self.wall * self.slots * self.occupancy
        beside = self.wall - work / min(self.slots, self.batches)
        return max(beside, 0.0) + work / self.share / min(self.slots, self.of)


def parse_bandwidth(text: str) -> float:
    """Bytes a second of ``100M``: bits a second, as networks are sold.

    >>> parse_bandwidth("100M"), parse_bandwidth("1.5Gbit/s"), parse_bandwidth("800")
    (12500000.0, 187500000.0, 100.0)

    Raises:
        RefusedError: It is no bandwidth.
    """
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([KMG]?)(?:bit(?:/s)?)?", text, re.IGNORECASE)
    if not found or not float(found[1]):
        raise RefusedError(f"--bandwidth {text}: not a bandwidth", "write bits a second: 100M, 1G")
    return float(found[1]) * 1000.0 ** " KMG".index(found[2].upper() or " ") / 8
