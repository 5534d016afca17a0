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
from millrace.model import FrozenValue
from millrace.plan.costs import ReadCost, ReadSample, fit_read_cost
from millrace.storage import locations
from millrace.storage.clients.base import FileLocation, FileStatus
from millrace.storage.clients.local import LocalLocation

#: Sizes in bytes that are tried, rising.
LADDER = tuple(4096 * 4**k for k in range(7))

#: Numbers of simultaneous readers.
READERS = (1, 4)

#: Seconds: how much longer the largest part should take than the smallest; for one cell; for all cells; for a quick
#: measurement.
LARGEST_SECONDS, CELL_SECONDS, ALL_SECONDS, QUICK_SECONDS = 0.05, 0.25, 4.0, 1.0

#: A second read that takes more than this share of the first one's time came from the place, not from memory.
AGAIN_SHARE = 0.5


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


@dataclass(frozen=True)
class ProbeReader:
    """A reader of parts of one file; for one thread."""

    location: FileLocation
    about: FileStatus

    def time_read(self, size: int, clock: Callable[[], float]) -> float:
        """Return the seconds that reading a part of this size takes."""
        offset = random.randrange((self.about.size - size) // 4096 + 1) * 4096
        if isinstance(self.location, LocalLocation):
            self.location.drop_page_cache(offset, size)
        return self._time_part(offset, size, clock)

    def is_kept_in_memory(self, size: int, first_seconds: float, clock: Callable[[], float]) -> bool:
        """Tell whether a part that took ``first_seconds`` is read from memory when its file is opened again."""
        if not isinstance(self.location, LocalLocation):
            return True
        offset = (self.about.size - size) // 2
        return is_cached_after_read(first_seconds, [self._time_part(offset, size, clock) for _ in range(3)][1:])

    def _time_part(self, offset: int, size: int, clock: Callable[[], float]) -> float:
        start = clock()
        self.location.read_bytes(offset, size, self.about)
        return max(clock() - start, 1e-9)


def is_cached_after_read(first_seconds: float, again_seconds: Sequence[float]) -> bool:
    """Tell whether the fastest of several reads of the same part came from memory.

    >>> is_cached_after_read(0.05, [0.06, 0.001]), is_cached_after_read(0.05, [0.06, 0.05])
    (True, False)
    """
    return min(again_seconds) <= AGAIN_SHARE * first_seconds


def measure_place(place: str, clock: Callable[[], float] = time.monotonic) -> MeasuredCost:
    """Measure a place by reading a file in it.

    Raises:
        MillraceError: The file cannot be read, or not in parts.
    """
    began = clock()
    with ExitStack() as stack:
        opened = [stack.enter_context(closing(locations.open_location(place))) for _ in range(max(READERS))]
        about = _query_measurable_status(opened[0])
        readers = [ProbeReader(location, about) for location in opened]
        alone = _time_rising_sizes(readers[0], about.size, clock)
        is_kept = _is_largest_kept(readers[0], alone, clock)
        fitted, held_out = _choose_sizes(len(alone) - 1)
        samples: list[ReadSample] = []
        for n in READERS:
            sizes = sorted({*fitted, held_out})
            if n > 1 and clock() - began + sum(max(CELL_SECONDS, n * alone[size]) for size in sizes) > ALL_SECONDS:
                break  # the place is too slow for so many readers
            samples += [
                ReadSample(readers=n, size=size, seconds=_time_concurrent_reads(readers[:n], size, clock))
                for size in sizes
            ]
    cost = fit_read_cost(sample for sample in samples if sample.size in fitted)
    checks = tuple(
        FitCheck(readers=s.readers, size=s.size, predicted=cost.predict_seconds(s.size, s.readers), measured=s.seconds)
        for s in samples if s.size == held_out
    )  # fmt: skip
    return MeasuredCost(place=place, size=about.size, cost=cost, checks=checks, when=time.time(), is_kept=is_kept)


def measure_place_quickly(place: str, clock: Callable[[], float] = time.monotonic) -> MeasuredCost:
    """Measure a place with one reader in about a second: before a run, if it was never measured.

    Raises:
        MillraceError: As for ``measure_place``.
    """
    with closing(locations.open_location(place)) as location:
        about = _query_measurable_status(location)
        reader = ProbeReader(location, about)
        alone = _time_rising_sizes(reader, about.size, clock, QUICK_SECONDS)
        # The largest is read for longer: servers that limit rates send more at first than later.
        least, largest = min(alone), max(alone)
        alone[largest] = _time_concurrent_reads([reader], largest, clock)
        cost = fit_ends(*(ReadSample(readers=1, size=size, seconds=alone[size]) for size in (least, largest)))
        is_kept = _is_largest_kept(reader, alone, clock)
    return MeasuredCost(place=place, size=about.size, cost=cost, checks=(), when=time.time(), is_kept=is_kept)


def fit_ends(least: ReadSample, largest: ReadSample) -> ReadCost:
    """Fit the line through two samples; if it would start below 0, fit the larger one alone.

    >>> least, largest = (ReadSample(readers=1, size=n, seconds=t) for n, t in ((4096, 0.0002), (262144, 0.25)))
    >>> fit_ends(least, largest).predict_seconds(1_048_576, 1)
    1.0
    """
    cost = fit_read_cost([least, largest])
    return cost if cost.lines[0].start_seconds else fit_read_cost([largest])


def _query_measurable_status(location: FileLocation) -> FileStatus:
    about = location.query_status()
    if not about.has_ranges:
        raise RefusedError(f"{location.shown}: its server gives no parts of files", "it cannot be measured")
    if about.size < LADDER[1]:
        raise RefusedError(f"{location.shown}: too small to measure by", "name a file of some MB")
    return about


def _is_largest_kept(reader: ProbeReader, alone: dict[int, float], clock: Callable[[], float]) -> bool:
    largest = max(alone)
    return reader.is_kept_in_memory(largest, alone[largest], clock)


def _time_rising_sizes(
    reader: ProbeReader, size: int, clock: Callable[[], float], most_seconds: float = ALL_SECONDS
) -> dict[int, float]:
    """Time each size with one reader, up to the first that takes long enough to measure the bandwidth."""
    began = clock()
    reader.time_read(LADDER[0], clock)  # the first one opens the connection
    found: dict[int, float] = {}
    for each in LADDER:
        if each > size:
            break
        # One slow read may be chance.
        found[each] = min(reader.time_read(each, clock) for _ in range(2))
        if found[each] > found[LADDER[0]] + LARGEST_SECONDS:
            break
        if clock() - began > most_seconds:
            break
    return found


def _choose_sizes(top: int) -> tuple[set[int], int]:
    """Choose the sizes to fit and the one to predict, for this highest step of the ladder.

    On a low ladder the last step but one is both.
    """
    fitted = {LADDER[k] for k in (0, top - 1, top) if k >= 0}
    held_out = LADDER[top - 2] if top > 2 else LADDER[max(0, top - 1)]
    return (fitted if top > 2 else {LADDER[0], LADDER[top]}), held_out


def _time_concurrent_reads(readers: list[ProbeReader], size: int, clock: Callable[[], float]) -> float:
    """Return the seconds that a part of one size takes each reader, while all read at once until the cell ends.

    For one reader this is the median. Readers that share a link get unequal shares of it: a favoured one finishes
    sooner and more often, so the median would be too low. Total time divided by total parts has no such bias.
    """
    found: list[float] = []
    times: list[float] = []
    wrong: list[MillraceError] = []
    stop = clock() + CELL_SECONDS

    def time_reads(reader: ProbeReader) -> None:
        times.append(clock())
        try:
            found.append(reader.time_read(size, clock))
            while clock() < stop:
                found.append(reader.time_read(size, clock))
        except MillraceError as error:
            wrong.append(error)
        times.append(clock())

    threads = [threading.Thread(target=time_reads, args=(reader,)) for reader in readers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if wrong:
        raise wrong[0]
    if len(readers) == 1:
        return statistics.median(found)
    return len(readers) * (max(times) - min(times)) / len(found)
