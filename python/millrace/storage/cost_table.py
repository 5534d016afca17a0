"""Costs of reading from places, as this node measures them, and the choice of the cheapest place of a file.

The table is a small file in the user's cache folder. A measurement takes less than five seconds: parts of a file are
read at random offsets, so that the page caches of this node and of the server change the result little. The sizes are
chosen during the measurement: the largest takes some hundredths of a second. One size is not fitted, but predicted.
Places are asked which have the bytes now, before one is chosen.
"""

from __future__ import annotations

import fcntl
import fnmatch
import functools
import os
import random
import socket
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

import msgspec

from millrace.core import replica_rules
from millrace.core.errors import MillraceError, RefusedError
from millrace.core.replica_rules import is_url
from millrace.core.tool_use import FrozenValue
from millrace.host import core_allocation, file_lock, memory_limits, permissions
from millrace.host.file_lock import IN_MEMORY, SHARED, find_filesystem_kind, has_unknown_speed
from millrace.host.permissions import replace_file
from millrace.storage import locations, reading_costs
from millrace.storage.clients.base import FileLocation, FileStatus
from millrace.storage.locations import LocalLocation
from millrace.storage.reading_costs import (
    ReadCost,
    ReadCostFunction,
    ReadCostModel,
    ReadOffer,
    ReadSample,
    fit_read_cost,
)
from millrace.storage.staging_choice import MEMORY_SHARE

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
    #: All measured times; ``cost`` is fitted to some of them.
    samples: tuple[ReadSample, ...] = ()

    def correct_times(self, n_bytes: int, seconds: float, share: float) -> MeasuredCost:
        """Correct all times by one more measured read of one reader: by a share of its relative error.

        >>> cost = fit_read_cost([ReadSample(readers=1, size=100_000_000, seconds=1.0)])
        >>> found = MeasuredCost(place="/nfs/nr", size=1, cost=cost, checks=(), when=0.0).correct_times(100_000_000, 2.0, 0.5)
        >>> round(found.cost.predict_seconds(100_000_000, 1), 9)
        1.5
        """
        factor = 1 + share * (seconds / self.cost.predict_seconds(n_bytes, 1) - 1)
        scaled = tuple(msgspec.structs.replace(sample, seconds=factor * sample.seconds) for sample in self.samples)
        return msgspec.structs.replace(self, cost=self.cost.scale_times(factor), samples=scaled, when=time.time())


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
    single = {size: seconds for size, seconds in alone.items() if not any(sample.size == size for sample in samples)}
    return MeasuredCost(
        place=place, size=about.size, cost=cost, checks=checks, when=time.time(), is_kept=is_kept,
        samples=(*samples, *_make_samples(single)),
    )  # fmt: skip


def _make_samples(alone: Mapping[int, float]) -> tuple[ReadSample, ...]:
    return tuple(ReadSample(readers=1, size=size, seconds=seconds) for size, seconds in alone.items())


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
    return MeasuredCost(
        place=place,
        size=about.size,
        cost=cost,
        checks=(),
        when=time.time(),
        is_kept=is_kept,
        samples=_make_samples(alone),
    )


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


def find_server(place: str) -> str:
    """Return the resource that readers of a place share: the server of a URL, or the mount point of a path."""
    if is_url(place):
        parts = urlsplit(place)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
    path = os.path.realpath(place)
    while not os.path.ismount(path) and path != "/":
        path = os.path.dirname(path)
    return path


def classify_place(place: str) -> str:
    """Classify a place into one of ``millrace.storage.reading_costs.GUESSES``."""
    if is_url(place):
        return "network"
    found = find_filesystem_kind(Path(place))
    return "memory" if found in IN_MEMORY else "shared" if found in SHARED else "disk"


#: Group of entry points, each a model of costs (``millrace.storage.reading_costs.ReadCostModel``).
COSTS_GROUP = "millrace.costs"

#: Names of our own models: the default, and the table of dSOARS.
FITTED, NEAREST = "fitted", "nearest"


@functools.cache
def load_cost_model(name: str) -> ReadCostModel:
    """Load the model that ``costs`` of the settings names.

    Raises:
        RefusedError: There is none, or it cannot be loaded.
    """
    if name in (FITTED, NEAREST):
        return reading_costs.use_nearest_samples if name == NEAREST else _use_default
    from importlib.metadata import entry_points

    points = entry_points(group=COSTS_GROUP)
    for point in points.select(name=name):
        try:
            model = point.load()
        except Exception as error:
            raise RefusedError(
                f"costs = {name!r}: {point.value} cannot be loaded: {error}", "repair its package"
            ) from error
        if not callable(model):
            raise RefusedError(
                f"costs = {name!r}: {point.value} is no function", "see: millrace.costs in docs/storage.md"
            )
        return cast(ReadCostModel, model)
    known = ", ".join(sorted({FITTED, NEAREST, *points.names}))
    raise RefusedError(f"costs = {name!r}: no such model of costs is installed", f"known are {known}")


def _use_default(place: str, samples: tuple[ReadSample, ...]) -> None:
    return None


def find_cost(place: str, table: Mapping[str, MeasuredCost], costs: str) -> tuple[ReadCostFunction, str]:
    """Return the cost of a place, and when it was measured or by which model; empty: it is a guess.

    Args:
        costs: Name of the model.

    Raises:
        RefusedError: There is no such model, or it fails.
    """
    model, measured = load_cost_model(costs), table.get(find_server(place))
    try:
        found = model(place, measured.samples if measured else ())
    except Exception as error:
        shown = replica_rules.redact_place(place)
        raise RefusedError(f"costs = {costs!r}: it fails for {shown}: {error}", "repair its package") from error
    if found and costs != NEAREST:
        return found, f"by {costs}"
    if measured:
        return found or measured.cost, time.strftime("%Y-%m-%d", time.localtime(measured.when))
    return reading_costs.guess_read_cost(classify_place(place)), ""


def find_table_path(environ: Mapping[str, str]) -> Path | None:
    """Return the path of this node's table, existing or not; None for a user without a home folder."""
    folder = permissions.find_cache_folder(environ)
    return folder / f"costs-{socket.gethostname()}.json" if folder else None


def read_cost_table(environ: Mapping[str, str]) -> dict[str, MeasuredCost]:
    """Read the measurements, by server; empty if the file is missing or invalid."""
    path = find_table_path(environ)
    with suppress(OSError, msgspec.MsgspecError):
        return msgspec.json.decode(path.read_bytes(), type=dict[str, MeasuredCost]) if path else {}
    return {}


def add_measurement(measured: MeasuredCost, environ: Mapping[str, str]) -> None:
    """Add a measurement to the table; write errors are ignored."""
    if path := find_table_path(environ):
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            with _lock_table(path):
                replace_file(
                    path, msgspec.json.encode({**read_cost_table(environ), find_server(measured.place): measured})
                )


def measure_unknown_place(place: str, size: int, environ: Mapping[str, str]) -> dict[str, MeasuredCost]:
    """Read the table; first measure a place quickly if its kind tells nothing and it is not in the table.

    A network share, or a filesystem in user space, may be faster than a disk or slower than a long-distance line.

    Args:
        place: A file there.
        size: Its bytes; a place of a small file is not measured.
    """
    table = read_cost_table(environ)
    if (
        size < MIN_TRANSFER_BYTES
        or is_url(place)
        or find_server(place) in table
        or not has_unknown_speed(find_filesystem_kind(Path(place)))
    ):
        return table
    with suppress(MillraceError, OSError):
        measured = measure_place_quickly(place)
        add_measurement(measured, environ)
        table[find_server(place)] = measured
    return table


#: Fewest bytes of a transfer that measure a place, and the weight of the last transfer against the earlier ones.
MIN_TRANSFER_BYTES, SHARE = 4 << 20, 0.3


def learn_from_transfer(place: str, n_bytes: int, seconds: float, environ: Mapping[str, str]) -> None:
    """Correct the measured cost of a place by a transfer of one reader; a place without a measurement gets none."""
    measured = read_cost_table(environ).get(find_server(place))
    if measured and n_bytes >= MIN_TRANSFER_BYTES and seconds > 0:
        add_measurement(measured.correct_times(n_bytes, seconds, SHARE), environ)


@contextmanager
def _lock_table(path: Path) -> Iterator[None]:
    descriptor = os.open(path.with_name(f"{path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        file_lock.wait_for_flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


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


def list_offers(found: Sequence[PlaceStatus], readers: int, costs: str, environ: Mapping[str, str]) -> list[ReadOffer]:
    """List the costs of the bytes at the places that have them.

    Args:
        readers: Number of readers of the whole run. On a node's own filesystem only the cores of this node count.
        costs: Name of the model of costs.
    """
    table = read_cost_table(environ)
    here = min(readers, core_allocation.count_usable_cores(environ)[0])
    made = []
    for each in found:
        if each.about and not each.why_not:
            own = classify_place(each.place) in ("memory", "disk")
            made.append(make_offer(each.place, each.about.size, here if own else readers, table, costs))
    return made


def make_offer(place: str, size: int, readers: int, table: Mapping[str, MeasuredCost], costs: str) -> ReadOffer:
    """Make the offer of a place for ``size`` bytes."""
    cost, source = find_cost(place, table, costs)
    known = table.get(find_server(place))
    is_kept = not is_url(place) and (known is None or known.is_kept) and fits_in_page_cache(size)
    return ReadOffer(place=place, size=size, cost=cost, readers=readers, measured=source, is_kept=is_kept)


def fits_in_page_cache(size: int) -> bool:
    """Tell whether this node keeps so many bytes in memory once they were read."""
    return size < MEMORY_SHARE * memory_limits.read_usable_memory()[0]


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
