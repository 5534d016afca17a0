"""Measurement of the cost of reading from a place, in less than five seconds.

Parts of a file are read at random offsets, so that the page caches of this node and of the server change the result
little. The sizes are chosen during the measurement: the largest takes some hundredths of a second. One size is not
fitted, but predicted.
"""

from __future__ import annotations

import random
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass

from millrace.errors import MillraceError, RefusedError
from millrace.model import Frozen
from millrace.plan.costs import Cost, Sample, fit
from millrace.storage import locations
from millrace.storage.clients.base import About, Location
from millrace.storage.clients.local import Local

#: Sizes in bytes that are tried, rising.
LADDER = tuple(4096 * 4**k for k in range(7))

#: Numbers of simultaneous readers.
READERS = (1, 4)

#: Seconds: how much longer the largest part should take than the smallest; for one cell; for all cells; for a quick
#: measurement.
LARGEST_SECONDS, CELL_SECONDS, ALL_SECONDS, QUICK_SECONDS = 0.05, 0.25, 4.0, 1.0

#: A second read that takes more than this share of the first one's time came from the place, not from memory.
AGAIN_SHARE = 0.5


class Check(Frozen, frozen=True):
    """A prediction of the fit for a size that was left out, and its measurement."""

    readers: int
    size: int
    predicted: float
    measured: float


class Measured(Frozen, frozen=True):
    """The result of a measurement."""

    #: The file that was read.
    place: str
    size: int
    cost: Cost
    checks: tuple[Check, ...]
    #: When, in seconds since 1970.
    when: float
    #: Whether read bytes stay in the memory of this node. Filesystems in user space often drop them when a file is
    #: opened again.
    is_kept: bool = True


@dataclass(frozen=True)
class Reader:
    """A reader of parts of one file; for one thread."""

    location: Location
    about: About

    def seconds(self, size: int, clock: Callable[[], float]) -> float:
        """Return the seconds that reading a part of this size takes."""
        offset = random.randrange((self.about.size - size) // 4096 + 1) * 4096
        if isinstance(self.location, Local):
            self.location.forget(offset, size)
        return self._read(offset, size, clock)

    def keeps(self, size: int, first_seconds: float, clock: Callable[[], float]) -> bool:
        """Tell whether a part that took ``first_seconds`` is read from memory when its file is opened again."""
        if not isinstance(self.location, Local):
            return True
        offset = (self.about.size - size) // 2
        return stays_in_memory(first_seconds, [self._read(offset, size, clock) for _ in range(3)][1:])

    def _read(self, offset: int, size: int, clock: Callable[[], float]) -> float:
        start = clock()
        self.location.read(offset, size, self.about)
        return max(clock() - start, 1e-9)


def stays_in_memory(first_seconds: float, again_seconds: Sequence[float]) -> bool:
    """Tell whether the fastest of several reads of the same part came from memory.

    >>> stays_in_memory(0.05, [0.06, 0.001]), stays_in_memory(0.05, [0.06, 0.05])
    (True, False)
    """
    return min(again_seconds) <= AGAIN_SHARE * first_seconds


def probe(place: str, clock: Callable[[], float] = time.monotonic) -> Measured:
    """Measure a place by reading a file in it.

    Raises:
        MillraceError: The file cannot be read, or not in parts.
    """
    began = clock()
    with ExitStack() as stack:
        opened = [stack.enter_context(closing(locations.at(place))) for _ in range(max(READERS))]
        about = _about(opened[0])
        readers = [Reader(location, about) for location in opened]
        alone = _climb(readers[0], about.size, clock)
        is_kept = _keeps(readers[0], alone, clock)
        fitted, held_out = _sizes(len(alone) - 1)
        samples: list[Sample] = []
        for n in READERS:
            sizes = sorted({*fitted, held_out})
            if n > 1 and clock() - began + sum(max(CELL_SECONDS, n * alone[size]) for size in sizes) > ALL_SECONDS:
                break  # the place is too slow for so many readers
            samples += [Sample(readers=n, size=size, seconds=_cell(readers[:n], size, clock)) for size in sizes]
    cost = fit(sample for sample in samples if sample.size in fitted)
    checks = tuple(
        Check(readers=s.readers, size=s.size, predicted=cost.seconds(s.size, s.readers), measured=s.seconds)
        for s in samples if s.size == held_out
    )  # fmt: skip
    return Measured(place=place, size=about.size, cost=cost, checks=checks, when=time.time(), is_kept=is_kept)


def probe_quickly(place: str, clock: Callable[[], float] = time.monotonic) -> Measured:
    """Measure a place with one reader in about a second: before a run, if it was never measured.

    Raises:
        MillraceError: As for ``probe``.
    """
    with closing(locations.at(place)) as location:
        about = _about(location)
        reader = Reader(location, about)
        alone = _climb(reader, about.size, clock, QUICK_SECONDS)
        # The largest is read for longer: servers that limit rates send more at first than later.
        least, largest = min(alone), max(alone)
        alone[largest] = _cell([reader], largest, clock)
        cost = fit_ends(*(Sample(readers=1, size=size, seconds=alone[size]) for size in (least, largest)))
        is_kept = _keeps(reader, alone, clock)
    return Measured(place=place, size=about.size, cost=cost, checks=(), when=time.time(), is_kept=is_kept)


def fit_ends(least: Sample, largest: Sample) -> Cost:
    """Fit the line through two samples; if it would start below 0, fit the larger one alone.

    >>> least, largest = (Sample(readers=1, size=n, seconds=t) for n, t in ((4096, 0.0002), (262144, 0.25)))
    >>> fit_ends(least, largest).seconds(1_048_576, 1)
    1.0
    """
    cost = fit([least, largest])
    return cost if cost.lines[0].start_seconds else fit([largest])


def _about(location: Location) -> About:
    about = location.about()
    if not about.has_ranges:
        raise RefusedError(f"{location.shown}: its server gives no parts of files", "it cannot be measured")
    if about.size < LADDER[1]:
        raise RefusedError(f"{location.shown}: too small to measure by", "name a file of some MB")
    return about


def _keeps(reader: Reader, alone: dict[int, float], clock: Callable[[], float]) -> bool:
    largest = max(alone)
    return reader.keeps(largest, alone[largest], clock)


def _climb(
    reader: Reader, size: int, clock: Callable[[], float], most_seconds: float = ALL_SECONDS
) -> dict[int, float]:
    """Time each size with one reader, up to the first that takes long enough to measure the bandwidth."""
    began = clock()
    reader.seconds(LADDER[0], clock)  # the first one opens the connection
    found: dict[int, float] = {}
    for each in LADDER:
        if each > size:
            break
        # One slow read may be chance.
        found[each] = min(reader.seconds(each, clock) for _ in range(2))
        if found[each] > found[LADDER[0]] + LARGEST_SECONDS:
            break
        if clock() - began > most_seconds:
            break
    return found


def _sizes(top: int) -> tuple[set[int], int]:
    """Choose the sizes to fit and the one to predict, for this highest step of the ladder.

    On a low ladder the last step but one is both.
    """
    fitted = {LADDER[k] for k in (0, top - 1, top) if k >= 0}
    held_out = LADDER[top - 2] if top > 2 else LADDER[max(0, top - 1)]
    return (fitted if top > 2 else {LADDER[0], LADDER[top]}), held_out


def _cell(readers: list[Reader], size: int, clock: Callable[[], float]) -> float:
    """Return the seconds that a part of one size takes each reader, while all read at once until the cell ends.

    For one reader this is the median. Readers that share a link get unequal shares of it: a favoured one finishes
    sooner and more often, so the median would be too low. Total time divided by total parts has no such bias.
    """
    found: list[float] = []
    times: list[float] = []
    wrong: list[MillraceError] = []
    stop = clock() + CELL_SECONDS

    def work(reader: Reader) -> None:
        times.append(clock())
        try:
            found.append(reader.seconds(size, clock))
            while clock() < stop:
                found.append(reader.seconds(size, clock))
        except MillraceError as error:
            wrong.append(error)
        times.append(clock())

    threads = [threading.Thread(target=work, args=(reader,)) for reader in readers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if wrong:
        raise wrong[0]
    if len(readers) == 1:
        return statistics.median(found)
    return len(readers) * (max(times) - min(times)) / len(found)
