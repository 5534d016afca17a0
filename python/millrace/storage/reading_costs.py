"""Costs of reading from a place, by its samples, and the choice of the cheapest place. Pure.

The default is a formula that is fitted to the samples: ``t = t0(c) + n / bw(c)`` for n bytes and c readers; the other
model takes the nearest sample, as dSOARS did. Readers of the whole run are counted, as they share the link of the server.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Protocol

import msgspec

from millrace.core.replica_rules import is_url
from millrace.core.tool_use import FrozenValue

#: Additional seconds to fetch a file into a node's cache, whatever its size: client, digests, disk.
FETCH_SECONDS = 0.3

#: Error factor of predicted times: of ways whose times differ by less, the one that loads servers least is taken. See
#: bench/probe.py.
MAX_TIME_RATIO = 1.1


class ReadSample(FrozenValue, frozen=True):
    """Measured time of one of several concurrent readers for a number of bytes."""

    readers: int
    size: int
    seconds: float


class ReadCostFunction(Protocol):
    """What reading at a place costs."""

    def predict_seconds(self, size: int, readers: int) -> float:
        """Return the seconds that each of ``readers`` concurrent readers takes for ``size`` bytes."""


class ReadCostModel(Protocol):
    """A model of costs: the entry points of ``millrace.costs`` are such functions."""

    def __call__(self, place: str, samples: tuple[ReadSample, ...]) -> ReadCostFunction | None:
        """Return the cost of a place, by the samples of its server; None: the default is to be used."""


class ReadCostLine(FrozenValue, frozen=True):
    """Expected time of one reader for a fixed number of concurrent readers: a start, and a time a byte."""

    readers: int
    start_seconds: float
    seconds_per_byte: float

    def predict_seconds(self, size: int) -> float:
        return self.start_seconds + size * self.seconds_per_byte


class ReadCost(FrozenValue, frozen=True):
    """Cost lines of a place, by rising number of readers."""

    lines: tuple[ReadCostLine, ...]

    def interpolate_line(self, readers: int) -> ReadCostLine:
        """Interpolate the line for a number of readers; beyond those measured, assume that the link is full."""
        before = max((line for line in self.lines if line.readers <= readers), key=lambda line: line.readers, default=self.lines[0])  # fmt: skip
        after = min(
            (line for line in self.lines if line.readers > readers), key=lambda line: line.readers, default=None
        )
        if after is None:
            slower = max(1.0, readers / before.readers)
            return ReadCostLine(readers=readers, start_seconds=before.start_seconds, seconds_per_byte=slower * before.seconds_per_byte)  # fmt: skip
        share = (readers - before.readers) / (after.readers - before.readers)
        return ReadCostLine(
            readers=readers,
            start_seconds=before.start_seconds + share * (after.start_seconds - before.start_seconds),
            seconds_per_byte=before.seconds_per_byte + share * (after.seconds_per_byte - before.seconds_per_byte),
        )

    def predict_seconds(self, size: int, readers: int) -> float:
        """Return the seconds that each of ``readers`` concurrent readers takes for ``size`` bytes.

        >>> ReadCost(lines=(ReadCostLine(readers=1, start_seconds=0.5, seconds_per_byte=1e-8),)).predict_seconds(100_000_000, 4)
        4.5
        """
        return self.interpolate_line(readers).predict_seconds(size)

    def scale_times(self, factor: float) -> ReadCost:
        """Return the cost with all times multiplied."""
        return ReadCost(lines=tuple(
            msgspec.structs.replace(
                line, start_seconds=factor * line.start_seconds, seconds_per_byte=factor * line.seconds_per_byte
            )
            for line in self.lines
        ))  # fmt: skip


def fit_read_cost(samples: Iterable[ReadSample]) -> ReadCost:
    """Fit a line to the samples of each number of readers: least squares of the relative error (weights 1 / t²).

    Raises:
        ValueError: There are no samples.
    """
    groups: dict[int, list[ReadSample]] = {}
    for sample in samples:
        groups.setdefault(sample.readers, []).append(sample)
    if not groups:
        raise ValueError("no samples")
    return ReadCost(lines=tuple(_fit_cost_line(readers, groups[readers]) for readers in sorted(groups)))


def _fit_cost_line(readers: int, samples: Sequence[ReadSample]) -> ReadCostLine:
    weights = [1 / max(sample.seconds, 1e-9) ** 2 for sample in samples]
    total = sum(weights)
    size = sum(w * s.size for w, s in zip(weights, samples, strict=True)) / total
    time = sum(w * s.seconds for w, s in zip(weights, samples, strict=True)) / total
    spread = sum(w * (s.size - size) ** 2 for w, s in zip(weights, samples, strict=True))
    both = sum(w * (s.size - size) * (s.seconds - time) for w, s in zip(weights, samples, strict=True))
    slope = both / spread if spread else 0.0
    start = time - slope * size
    if slope <= 0:  # noise, where larger parts take no longer: use the rate of the largest
        largest = max(samples, key=lambda sample: sample.size)
        slope, start = largest.seconds / largest.size, 0.0
    elif start < 0:
        squares = sum(w * s.size**2 for w, s in zip(weights, samples, strict=True))
        slope, start = sum(w * s.size * s.seconds for w, s in zip(weights, samples, strict=True)) / squares, 0.0
    return ReadCostLine(readers=readers, start_seconds=start, seconds_per_byte=slope)


class NearestSampleCost(FrozenValue, frozen=True):
    """The time of the nearest sample, without a formula: a table as that of dSOARS."""

    #: At least one.
    samples: tuple[ReadSample, ...]

    def predict_seconds(self, size: int, readers: int) -> float:
        """Return the time of the nearest size that was measured with the nearest number of readers.

        A size beyond all measured ones is a multiple of the largest: a probe reads parts of files.

        >>> samples = tuple(ReadSample(readers=1, size=n, seconds=t) for n, t in ((4096, 0.001), (65536, 0.004)))
        >>> [NearestSampleCost(samples=samples).predict_seconds(n, 3) for n in (0, 5000, 60_000, 655_360)]
        [0.001, 0.001, 0.004, 0.04]
        """
        n = min((sample.readers for sample in self.samples), key=lambda n: (abs(n - readers), -n))
        of_readers = [sample for sample in self.samples if sample.readers == n]
        nearest = min(of_readers, key=lambda sample: abs(sample.size - size))
        is_beyond = size > max(sample.size for sample in of_readers)
        return nearest.seconds * (size / nearest.size if is_beyond else 1.0)


def use_nearest_samples(place: str, samples: tuple[ReadSample, ...]) -> NearestSampleCost | None:
    """Return the table of a place's samples as its cost; None: it was not measured."""
    return NearestSampleCost(samples=samples) if samples else None


class FitCheck(FrozenValue, frozen=True):
    """A prediction of the fit for a size that was left out, and its measurement."""

    readers: int
    size: int
    predicted: float
    measured: float


class MeasuredCost(FrozenValue, frozen=True):
    """The result of a measurement."""

    #: The file that was read.
    place: str
    size: int
    cost: ReadCost
    checks: tuple[FitCheck, ...]
    #: When, in seconds since 1970.
    when: float
    #: Whether read bytes stay in the memory of this node. Filesystems in user space often drop them when a file is
    #: opened again.
    is_kept: bool = True
    #: All measured times; ``cost`` is fitted to some of them.
    samples: tuple[ReadSample, ...] = ()

    def correct_times(self, n_bytes: int, seconds: float, share: float, when: float) -> MeasuredCost:
        """Correct all times by one more measured read of one reader: by a share of its relative error.

        >>> cost = fit_read_cost([ReadSample(readers=1, size=100_000_000, seconds=1.0)])
        >>> found = MeasuredCost(place="/nfs/nr", size=1, cost=cost, checks=(), when=0.0).correct_times(100_000_000, 2.0, 0.5, 1.0)
        >>> round(found.cost.predict_seconds(100_000_000, 1), 9)
        1.5
        """
        factor = 1 + share * (seconds / self.cost.predict_seconds(n_bytes, 1) - 1)
        scaled = tuple(msgspec.structs.replace(sample, seconds=factor * sample.seconds) for sample in self.samples)
        return msgspec.structs.replace(self, cost=self.cost.scale_times(factor), samples=scaled, when=when)


#: Assumed costs of places that were never measured: (start in seconds, bytes a second).
GUESSES = {"memory": (1e-5, 4e9), "disk": (1e-4, 1e9), "shared": (2e-3, 1e8), "network": (5e-2, 5e7)}


def guess_read_cost(kind: str) -> ReadCost:
    """Return the assumed cost of a place that was never measured, by its kind in ``GUESSES``."""
    start, rate = GUESSES[kind]
    return ReadCost(lines=(ReadCostLine(readers=1, start_seconds=start, seconds_per_byte=1 / rate),))


class ReadOffer(FrozenValue, frozen=True):
    """A place that has the bytes, and the cost of reading them there."""

    place: str
    size: int
    cost: ReadCostFunction
    #: Number of concurrent readers there.
    readers: int
    #: Day of the measurement, or the model that knows the cost (``by NAME``); empty: the cost is a guess.
    measured: str = ""
    #: Whether later reads of the same bytes come from the memory of this node.
    is_kept: bool = False

    @property
    def seconds(self) -> float:
        return self.cost.predict_seconds(self.size, self.readers)

    def predict_reads(self, reads: int) -> float:
        """Return the seconds of several reads of all bytes by one node.

        >>> offer = ReadOffer(place="/nfs/nr", size=10**8, cost=guess_read_cost("shared"), readers=1)
        >>> round(offer.predict_reads(3), 3), round(ReadOffer(place="/nfs/nr", size=10**8, cost=guess_read_cost("shared"), readers=1, is_kept=True).predict_reads(3), 3)
        (3.006, 1.052)
        """
        again = guess_read_cost("memory").predict_seconds(self.size, 1) if self.is_kept else self.seconds
        return self.seconds + (reads - 1) * again


def choose_cheapest_offer(offers: Sequence[ReadOffer]) -> ReadOffer | None:
    """Return the offer that takes the fewest seconds, of equals the first; None: there are no offers."""
    return min(offers, key=lambda offer: offer.seconds, default=None)


class PathChoice(FrozenValue, frozen=True):
    """The way to a path that a program opens: in place, or a copy on this node that is made first."""

    #: The place that is read, or copied from.
    offer: ReadOffer
    is_copied: bool
    #: Seconds of all reads: at the best path, infinite if no path has the bytes; with a copy.
    in_place_seconds: float
    copied_seconds: float


def choose_path(offers: Sequence[ReadOffer], copy: ReadOffer, reads: int, needs_copy: bool = False) -> PathChoice:
    """Choose the path with the fewest seconds for all reads. A URL is only the source of a copy.

    A copy is made if that saves more than the error of such predictions.

    Args:
        offers: At least one.
        copy: A copy of the file on this node, once it is made.
        needs_copy: Make a copy in any case.
    """
    paths = [offer for offer in offers if not is_url(offer.place)]
    here = min(paths, key=lambda offer: offer.predict_reads(reads), default=None)
    source = min(offers, key=lambda offer: offer.seconds)
    in_place = here.predict_reads(reads) if here else math.inf
    copied = FETCH_SECONDS + source.seconds + copy.predict_reads(reads)
    if here and not needs_copy and in_place <= MAX_TIME_RATIO * copied:
        return PathChoice(offer=here, is_copied=False, in_place_seconds=in_place, copied_seconds=copied)
    return PathChoice(offer=source, is_copied=True, in_place_seconds=in_place, copied_seconds=copied)
