"""The cost of sending a result uncompressed, compressed or packed, in seconds. Pure.

Source: the inequality of ParaMEDIC (Balaji, Feng, Archuleta, Lin, 2007): D - x > B (f(x) + g(x)), with D bytes of the
result, x of the pack, a bandwidth of B, and f and g seconds to pack and to regenerate.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from millrace.errors import RefusedError


@dataclass(frozen=True)
class TransferMethod:
    """One way to transfer a result."""

    name: str
    #: Bytes that are sent.
    bytes: int
    #: Seconds of work before the transfer, and after it.
    before: float = 0.0
    after: float = 0.0

    def estimate_seconds(self, bandwidth: float) -> float:
        """Return the seconds from the finished result to its copy there; ``bandwidth`` is in bytes a second."""
        return self.before + self.bytes / bandwidth + self.after


def choose_fastest_transfer(ways: list[TransferMethod], bandwidth: float) -> TransferMethod:
    """Return the way that takes least time; of equal ones the first.

    >>> ways = [TransferMethod("as it is", 1000), TransferMethod("packed", 10, before=3, after=6)]
    >>> [choose_fastest_transfer(ways, bandwidth).name for bandwidth in (100, 110, 120)]
    ['packed', 'packed', 'as it is']
    """
    return min(ways, key=lambda way: way.estimate_seconds(bandwidth))


def compute_break_even_bandwidth(other: TransferMethod, packed: TransferMethod) -> float:
    """Return the bandwidth, in bytes a second, below which ``packed`` is faster; 0: at none, infinite: at all.

    >>> compute_break_even_bandwidth(TransferMethod("as it is", 1000), TransferMethod("packed", 10, before=3, after=6))
    110.0
    """
    saved, spent = other.bytes - packed.bytes, packed.before + packed.after - other.before - other.after
    if saved <= 0:
        return float("inf") if spent < 0 else 0.0
    return saved / spent if spent > 0 else float("inf")


@dataclass(frozen=True)
class RegenerationSample:
    """The regeneration of a part of a result; times in seconds."""

    #: Elapsed time.
    wall: float
    #: Number of slots, and the mean share of the time in which a slot was busy.
    slots: int
    occupancy: float
    #: Share of all work.
    share: float
    #: Batches in the part, and in all.
    batches: int
    of: int

    def estimate_total_seconds(self) -> float:
        """Return the seconds to regenerate all: start and end count once, the tools work at the rate of the sample.

        >>> RegenerationSample(wall=3, slots=1, occupancy=2 / 3, share=0.1, batches=1, of=10).estimate_total_seconds()
        21.0
        >>> RegenerationSample(wall=3, slots=2, occupancy=1 / 3, share=0.5, batches=1, of=2).estimate_total_seconds()
        3.0
        """
        work = self.wall * self.slots * self.occupancy
        beside = self.wall - work / min(self.slots, self.batches)
        return max(beside, 0.0) + work / self.share / min(self.slots, self.of)


def parse_bandwidth(text: str) -> float:
    """Parse a bandwidth such as ``100M``, in bits a second; return bytes a second.

    >>> parse_bandwidth("100M"), parse_bandwidth("1.5Gbit/s"), parse_bandwidth("800")
    (12500000.0, 187500000.0, 100.0)

    Raises:
        RefusedError: The text is not a bandwidth.
    """
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([KMG]?)(?:bit(?:/s)?)?", text, re.IGNORECASE)
    if not found or not float(found[1]):
        raise RefusedError(f"--bandwidth {text}: not a bandwidth", "write bits a second: 100M, 1G")
    return float(found[1]) * 1000.0 ** " KMG".index(found[2].upper() or " ") / 8
