"""Measure what reading from a place costs, in less than five seconds.

Parts of a file are read at random offsets, so that neither the page cache of this node nor that of the server tells more than it
knows. The sizes are found on the way: the largest takes some hundredths of a second. One size is not fitted, but predicted.
"""

from __future__ import annotations

import random
import statistics
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass

from millrace.errors import MillraceError, RefusedError
from millrace.model import Frozen
from millrace.plan.costs import Cost, Sample, fit
from millrace.storage import locations
from millrace.storage.clients.base import About, Location
from millrace.storage.clients.local import Local

#: Sizes that are tried, rising.
LADDER = tuple(4096 * 4**k for k in range(7))

#: Readers at a time.
READERS = (1, 4)

#: Seconds beyond the shortest that the largest part should take, that one cell may take, and all of them.
LARGEST_SECONDS, CELL_SECONDS, ALL_SECONDS = 0.05, 0.25, 4.0


class Check(Frozen, frozen=True):
    """What the fit says of a size that it has not seen, and what was seen."""

    readers: int
    size: int
    predicted: float
    measured: float


class Measured(Frozen, frozen=True):
    """What was found."""

    #: The file that was read.
    place: str
    size: int
    cost: Cost
    checks: tuple[Check, ...]
    #: When, in seconds since 1970.
    when: float


@dataclass(frozen=True)
class Reader:
    """Reads parts of one file; for one thread."""

    location: Location
    about: About

    def seconds(self, size: int, clock: Callable[[], float]) -> float:
        """How long a part of this size takes."""
        offset = random.randrange((self.about.size - size) // 4096 + 1) * 4096
        if isinstance(self.location, Local):
            self.location.forget(offset, size)
        start = clock()
        self.location.read(offset, size, self.about)
        return max(clock() - start, 1e-9)


def probe(place: str, clock: Callable[[], float] = time.monotonic) -> Measured:
    """Measure a place by a file in it.

    Raises:
        MillraceError: It cannot be read, or not in parts.
    """
    began = clock()
    with ExitStack() as stack:
        opened = [stack.enter_context(closing(locations.at(place))) for _ in range(max(READERS))]
        about = opened[0].about()
        if not about.has_ranges:
            raise RefusedError(f"{opened[0].shown}: its server gives no parts of files", "it cannot be measured")
        if about.size < LADDER[1]:
            raise RefusedError(f"{opened[0].shown}: too small to measure by", "name a file of some MB")
        readers = [Reader(location, about) for location in opened]
        alone = _climb(readers[0], about.size, clock)
        fitted, held_out = _sizes(len(alone) - 1)
        samples: list[Sample] = []
        for n in READERS:
            sizes = sorted({*fitted, held_out})
            if n > 1 and clock() - began + sum(max(CELL_SECONDS, n * alone[size]) for size in sizes) > ALL_SECONDS:
                break  # too slow a place for so many readers
            samples += [Sample(readers=n, size=size, seconds=_cell(readers[:n], size, clock)) for size in sizes]
    cost = fit(sample for sample in samples if sample.size in fitted)
    checks = tuple(
        Check(readers=s.readers, size=s.size, predicted=cost.seconds(s.size, s.readers), measured=s.seconds)
        for s in samples if s.size == held_out
    )  # fmt: skip
    return Measured(place=place, size=about.size, cost=cost, checks=checks, when=time.time())


def _climb(reader: Reader, size: int, clock: Callable[[], float]) -> dict[int, float]:
    """What one reader takes for each size, up to the one that takes long enough to tell the bandwidth."""
    reader.seconds(LADDER[0], clock)  # the first one opens the connection
    found: dict[int, float] = {}
    for each in LADDER:
        if each > size:
            break
        # What was slow once may be so by chance.
        found[each] = min(reader.seconds(each, clock) for _ in range(2))
        if found[each] > found[LADDER[0]] + LARGEST_SECONDS:
            break
    return found


def _sizes(top: int) -> tuple[set[int], int]:
    """(sizes to fit, the one to predict), for this highest step of the ladder; if it is low the highest but one is both."""
    fitted = {LADDER[k] for k in (0, top - 1, top) if k >= 0}
    held_out = LADDER[top - 2] if top > 2 else LADDER[max(0, top - 1)]
    return (fitted if top > 2 else {LADDER[0], LADDER[top]}), held_out


def _cell(readers: list[Reader], size: int, clock: Callable[[], float]) -> float:
    """What a part of one size takes each of these readers, who read at the same time until the cell is over.

    Alone it is the median. Those who share a link do not get the same of it: who is lucky ends sooner, and more often, so
    that the median would flatter. What all of them got in all of the time does not.
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
