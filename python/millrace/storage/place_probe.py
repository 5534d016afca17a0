"""Measurement of what reading costs at a place: by this process, or by several nodes at once.

A measurement takes less than five seconds, and that for each number of nodes: parts of a file are read at random
offsets, so that the page caches of the node and of the server change the result little. The sizes are chosen during the
measurement: the largest takes some hundredths of a second. One size is not fitted, but predicted.
"""

from __future__ import annotations

import random
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from typing import BinaryIO, Literal, NamedTuple, Protocol

import msgspec

from millrace.core.errors import MillraceError, RefusedError
from millrace.core.tool_use import FrozenValue
from millrace.storage import locations
from millrace.storage.clients.base import FileLocation, FileStatus
from millrace.storage.locations import LocalLocation
from millrace.storage.reading_costs import FitCheck, MeasuredCost, ReadCost, ReadSample, fit_read_cost

#: Sizes in bytes that are tried, rising.
LADDER = tuple(4096 * 4**k for k in range(7))

#: Numbers of simultaneous readers.
READERS = (1, 4)

#: Seconds: how much longer the largest part should take than the smallest; for one cell; for all cells; for a quick
#: measurement.
LARGEST_SECONDS, CELL_SECONDS, ALL_SECONDS, QUICK_SECONDS = 0.05, 0.25, 4.0, 1.0

#: Seconds for the process of a node to end by itself.
END_SECONDS = 2.0

#: A second read that takes more than this share of the first one's time came from the place, not from memory.
AGAIN_SHARE = 0.5


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


class AloneTimes(NamedTuple):
    """What one reader alone has found out about a file."""

    size: int
    #: Seconds for a part, by its size: rising sizes, up to the first that takes long enough to measure the bandwidth.
    seconds: Mapping[int, float]
    is_kept: bool


class PartReaders(Protocol):
    """Readers of parts of one file: threads of this process, or nodes."""

    def survey_file(self) -> AloneTimes:
        """Let the first reader try rising sizes alone."""

    def time_reads(self, n: int, size: int) -> float:
        """Return the seconds that a part takes each of ``n`` readers, while all of them read."""


class ThreadReaders:
    """Threads of this process; each has a connection of its own.

    Raises:
        MillraceError: The file cannot be read, or not in parts.
    """

    def __init__(self, opened: Sequence[FileLocation], clock: Callable[[], float]) -> None:
        about = _query_measurable_status(opened[0])
        self._readers = [ProbeReader(location, about) for location in opened]
        self._clock = clock

    def survey_file(self) -> AloneTimes:
        reader = self._readers[0]
        alone = _time_rising_sizes(reader, reader.about.size, self._clock)
        return AloneTimes(reader.about.size, alone, _is_largest_kept(reader, alone, self._clock))

    def time_reads(self, n: int, size: int) -> float:
        return _time_concurrent_reads(self._readers[:n], size, self._clock)


def measure_place(place: str, clock: Callable[[], float] = time.monotonic) -> MeasuredCost:
    """Measure a place by reading a file in it.

    Raises:
        MillraceError: The file cannot be read, or not in parts.
    """
    with ExitStack() as stack:
        opened = [stack.enter_context(closing(locations.open_location(place))) for _ in range(max(READERS))]
        return measure_by_readers(place, ThreadReaders(opened, clock), READERS, clock)


def measure_by_readers(
    place: str, readers: PartReaders, counts: Sequence[int], clock: Callable[[], float] = time.monotonic
) -> MeasuredCost:
    """Measure a place with each of these numbers of readers, rising from 1, as far as the time allows.

    Raises:
        MillraceError: The file cannot be read, or not in parts.
    """
    began = clock()
    size, alone, is_kept = readers.survey_file()
    fitted, held_out = _choose_sizes(len(alone) - 1)
    sizes = sorted({*fitted, held_out})
    samples: list[ReadSample] = []
    for k, n in enumerate(counts):
        limit = ALL_SECONDS * max(1, k)
        if n > 1 and clock() - began + sum(max(CELL_SECONDS, n * alone[size]) for size in sizes) > limit:
            break  # the place is too slow for so many readers
        samples += [ReadSample(readers=n, size=size, seconds=readers.time_reads(n, size)) for size in sizes]
    cost = fit_read_cost(sample for sample in samples if sample.size in fitted)
    checks = tuple(
        FitCheck(readers=s.readers, size=s.size, predicted=cost.predict_seconds(s.size, s.readers), measured=s.seconds)
        for s in samples if s.size == held_out
    )  # fmt: skip
    single = {size: seconds for size, seconds in alone.items() if size not in sizes}
    return MeasuredCost(
        place=place, size=size, cost=cost, checks=checks, when=time.time(), is_kept=is_kept,
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


class NodeRequest(FrozenValue, frozen=True):
    """A request to a node: open a place, survey it, read parts of one size for a while, or keep what was measured."""

    what: Literal["open", "survey", "read", "keep"]
    place: str = ""
    size: int = 0
    measured: MeasuredCost | None = None


class NodeAnswer(FrozenValue, frozen=True):
    """The answer of a node."""

    #: Message and hint of an error; else empty.
    error: tuple[str, str] = ("", "")
    alone: AloneTimes | None = None
    #: Parts that it has read in a second.
    rate: float = 0.0


def serve_node_probe(source: BinaryIO, target: BinaryIO, keep: Callable[[MeasuredCost], None]) -> None:
    """Answer the requests of ``NodeReaders`` on this node, until they end."""
    readers: ThreadReaders | None = None
    with ExitStack() as stack:
        for line in source:
            request = msgspec.json.decode(line, type=NodeRequest)
            answer = NodeAnswer()
            try:
                if request.what == "open":
                    readers = ThreadReaders(
                        [stack.enter_context(closing(locations.open_location(request.place)))], time.monotonic
                    )
                elif request.what == "survey" and readers:
                    answer = NodeAnswer(alone=readers.survey_file())
                elif request.what == "read" and readers:
                    answer = NodeAnswer(rate=1 / readers.time_reads(1, request.size))
                elif request.measured:
                    keep(request.measured)
            except MillraceError as error:
                answer = NodeAnswer(error=(error.message, error.hint))
            target.write(msgspec.json.encode(answer) + b"\n")
            target.flush()


class NodeReaders:
    """Nodes that each run ``serve_node_probe``; each is one reader.

    Args:
        nodes: Their names.
        commands: The commands that start it there.
    """

    def __init__(self, nodes: Sequence[str], commands: Sequence[Sequence[str]]) -> None:
        self._nodes = list(nodes)
        self._said = [tempfile.TemporaryFile() for _ in nodes]  # noqa: SIM115 - as long as the processes
        self._processes = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said)
            for command, said in zip(commands, self._said, strict=True)
        ]

    def open_place(self, place: str) -> None:
        """Open a place at all nodes.

        Raises:
            MillraceError: A node cannot be reached, or cannot read there.
        """
        self._ask_nodes(len(self._nodes), NodeRequest(what="open", place=place))

    def survey_file(self) -> AloneTimes:
        found = self._ask_nodes(1, NodeRequest(what="survey"))[0].alone
        assert found
        return found

    def time_reads(self, n: int, size: int) -> float:
        # By the sum of their rates, as those that share a link get unequal shares of it.
        return n / sum(answer.rate for answer in self._ask_nodes(n, NodeRequest(what="read", size=size)))

    def keep_measurement(self, measured: MeasuredCost) -> None:
        """Add a measurement to the table of each node."""
        self._ask_nodes(len(self._nodes), NodeRequest(what="keep", measured=measured))

    def close(self) -> None:
        """End the processes, which end by themselves with their input unless they read at that time."""
        for process in self._processes:
            with suppress(OSError):
                if process.stdin:
                    process.stdin.close()
        for process, said in zip(self._processes, self._said, strict=True):
            with suppress(subprocess.TimeoutExpired):
                process.wait(END_SECONDS)
            process.kill()
            with process:
                said.close()

    def _ask_nodes(self, n: int, request: NodeRequest) -> list[NodeAnswer]:
        """Ask the first ``n`` nodes at once; return their answers.

        Raises:
            MillraceError: A node does not answer, or answers with an error.
        """
        text = msgspec.json.encode(request) + b"\n"
        for process in self._processes[:n]:
            assert process.stdin
            with suppress(OSError):  # its answer is missing, too
                process.stdin.write(text)
                process.stdin.flush()
        return [self._read_answer(k) for k in range(n)]

    def _read_answer(self, k: int) -> NodeAnswer:
        stdout = self._processes[k].stdout
        assert stdout
        try:
            answer = msgspec.json.decode(stdout.readline(), type=NodeAnswer)
        except msgspec.DecodeError as error:
            self._processes[k].wait()
            self._said[k].seek(0)
            last = self._said[k].read().decode(errors="replace").strip().splitlines()[-1:]
            raise MillraceError(
                f"{self._nodes[k]}: no probe there: {''.join(last) or 'its process has ended'}",
                "see that ssh reaches it without a question, and that this Millrace is there, too",
            ) from error
        if answer.error[0]:
            raise MillraceError(f"{self._nodes[k]}: {answer.error[0]}", answer.error[1])
        return answer


def list_node_counts(n: int) -> list[int]:
    """List the numbers of nodes to measure with: doubled each time, and all.

    >>> list_node_counts(1), list_node_counts(6)
    ([1], [1, 2, 4, 6])
    """
    return [*(2**k for k in range(n.bit_length()) if 2**k < n), n]
