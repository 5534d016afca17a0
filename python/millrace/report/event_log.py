"""The event log: its writer, the thinning of its lines, and the runs and nodes that are read from it.

Beyond the first ones, tasks that one slot did one after the other share a line, ever more of them; failed tasks and
the slowest keep theirs. A million tasks make about ten thousand lines. After a write error (a full disk) the writer
keeps the reason and writes no more. The runs of a log stand one after another on one axis of running time.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import heappush, heappushpop
from itertools import pairwise
from pathlib import Path

import msgspec

from millrace.core.errors import CorruptError
from millrace.core.tasks import IoCounts
from millrace.report.events import (
    AnyLogEvent,
    CheckEvent,
    EndEvent,
    FilesEvent,
    LogEvent,
    QuarantineEvent,
    RetryEvent,
    RunEvent,
    SlotsEvent,
    TaskEvent,
    TasksEvent,
    VolumesEvent,
    WarningEvent,
    escape_surrogates,
)

#: Number of tasks with a line of their own, and of lines after which twice as many share one.
ALONE, STEP = 10_000, 5_000

#: The slowest tasks so far have lines of their own: this many at a time, and this many ever.
SLOWEST, MAX_SLOW_LINES = 20, 1_000


class TaskThinner:
    """Takes tasks, and returns the lines that stand for them."""

    def __init__(self) -> None:
        self._lines = self._slow = 0
        self._seconds: list[float] = []
        self._waiting: dict[tuple[int, str, bool], list[TaskEvent]] = {}

    def add_task(self, task: TaskEvent) -> TaskEvent | None:
        """Add the next task; return the line to write now, or None."""
        slow = self._is_among_slowest(task)
        if self._lines < ALONE or task.is_failure or slow:
            self._lines += 1
            return task
        key = (task.slot, task.status, task.fragment > 0)
        tasks = self._waiting.setdefault(key, [])
        tasks.append(task)
        if len(tasks) < 2 << (self._lines - ALONE) // STEP:
            return None
        self._lines += 1
        return sum_tasks(self._waiting.pop(key))

    def pop_waiting_lines(self) -> Iterator[TaskEvent]:
        """Yield the lines of tasks that still wait for others."""
        waiting, self._waiting = self._waiting, {}
        yield from map(sum_tasks, waiting.values())

    def _is_among_slowest(self, task: TaskEvent) -> bool:
        if len(self._seconds) < SLOWEST:
            heappush(self._seconds, task.seconds)
            return True
        slow = task.seconds > heappushpop(self._seconds, task.seconds) and self._slow < MAX_SLOW_LINES
        self._slow += slow
        return slow


def sum_tasks(tasks: list[TaskEvent]) -> TaskEvent:
    """Sum up tasks that a slot did one after the other, as one line."""
    if len(tasks) == 1:
        return tasks[0]
    first = tasks[0]
    return TasksEvent(
        t=max(task.t for task in tasks), start=min(task.start for task in tasks), slot=first.slot,
        first=min(task.first for task in tasks), last=max(task.last for task in tasks),
        units=sum(task.units for task in tasks), bytes=sum(task.bytes for task in tasks),
        cpu=sum(task.cpu for task in tasks), rss=max(task.rss for task in tasks), out=sum(task.out for task in tasks),
        attempt=max(task.attempt for task in tasks), fragment=first.fragment, status=first.status,
        n=len(tasks), n_records=sum(task.records for task in tasks), busy=sum(task.seconds for task in tasks),
        io=sum_task_io(tasks) or msgspec.UNSET,
    )  # fmt: skip


def sum_task_io(tasks: Iterable[TaskEvent]) -> IoCounts | None:
    """Add up what tasks read and wrote; None: that was not measured."""
    counts = [task.io for task in tasks if isinstance(task.io, IoCounts)]
    sums = {name: sum(getattr(each, name) for each in counts) for name in IoCounts.__struct_fields__}
    return IoCounts(**sums) if counts else None


#: Maximum time that an event waits in memory, in seconds.
FLUSH_SECONDS = 1.0


#: Least time between two events of totals, in seconds.
TOTALS_SECONDS = 5.0


class EventLog:
    """Appends events to a file, about once a second. Not thread-safe.

    Args:
        path: Created if missing. An incomplete last line, left by a killed run, is closed with a newline, so
            that new events begin on a line of their own.

    Raises:
        CorruptError: It is a folder, a pipe, or a dangling link.
    """

    def __init__(self, path: Path) -> None:
        #: Why the log writes no more; None while all is well.
        self.failure: OSError | None = None
        self._thinner = TaskThinner()
        self._encoder = msgspec.json.Encoder()
        self._waiting = bytearray()
        self._flushed_at: float | None = None
        #: Makes an event of totals so far.
        self._make_totals: Callable[[float], AnyLogEvent | None] = lambda _: None
        self._totals_at = 0.0
        self._observe: Callable[[AnyLogEvent], None] = lambda _: None
        try:
            self._file: int | None = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except IsADirectoryError as error:
            raise CorruptError(f"{path}: is a folder, not the log of a run", "start over with --fresh") from error
        except FileNotFoundError as error:
            if not path.is_symlink():
                raise
            raise CorruptError(f"{path}: is a link, not the log of a run", "start over with --fresh") from error
        about = os.fstat(self._file)
        if stat.S_ISFIFO(about.st_mode):
            os.close(self._file)
            raise CorruptError(f"{path}: is a pipe, not the log of a run", "start over with --fresh")
        end = about.st_size
        if end and os.pread(self._file, 1, end - 1) != b"\n":
            self._waiting += b"\n"

    def __enter__(self) -> EventLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def write(self, event: AnyLogEvent, now: float) -> None:
        """Append ``event``; in large runs, several tasks share a line.

        ``now`` is any monotonic clock in seconds; it decides when the file is written.
        """
        self._observe(event)
        if self._file is None:
            return
        if isinstance(event, TaskEvent):
            line = self._thinner.add_task(event)
            if line is None:
                return
            event = line
        elif isinstance(event, EndEvent):
            self._write_thinned()
            self._append_totals(event.t)
        elif not isinstance(event, RunEvent) and now - self._totals_at >= TOTALS_SECONDS:
            self._totals_at = now
            self._append_totals(event.t)
        self._append_event(event)
        self.flush_if_due(now)

    def flush_if_due(self, now: float) -> None:
        """Hand over what has waited long enough; to be called also while nothing happens."""
        if self._waiting and (self._flushed_at is None or now - self._flushed_at >= FLUSH_SECONDS):
            self._flushed_at = now
            self.flush()

    def add_totals(self, make: Callable[[float], AnyLogEvent | None]) -> None:
        """Write what ``make`` returns for the time of the run, now and then, and before the end of the run."""
        self._make_totals = make

    def set_observer(self, observe: Callable[[AnyLogEvent], None]) -> None:
        """Call ``observe`` with each event from now on, whether it can be written or not."""
        self._observe = observe

    def _append_totals(self, at: float) -> None:
        if event := self._make_totals(at):
            self._append_event(event)

    def _write_thinned(self) -> None:
        for line in self._thinner.pop_waiting_lines():
            self._append_event(line)

    def _append_event(self, event: LogEvent) -> None:
        before = len(self._waiting)
        try:
            self._encoder.encode_into(event, self._waiting, -1)
        except UnicodeEncodeError:
            del self._waiting[before:]
            self._waiting += self._encoder.encode(escape_surrogates(msgspec.to_builtins(event)))
        self._waiting += b"\n"

    def flush(self) -> None:
        """Hand everything to the system. Does not fsync: only the journal promises durability."""
        waiting, self._waiting = memoryview(bytes(self._waiting)), bytearray()
        try:
            while waiting and self._file is not None:
                waiting = waiting[os.write(self._file, waiting) :]
        except OSError as error:
            self.failure = error
            self._close_file()

    def close(self) -> None:
        """Write the rest and close the file. May be called twice."""
        self._write_thinned()
        self.flush()
        self._close_file()

    def _close_file(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


class LoggedRun(msgspec.Struct):
    """One run of a job, up to the next resume; times in seconds since it began."""

    head: RunEvent
    tasks: list[TaskEvent] = msgspec.field(default_factory=list)
    retries: list[RetryEvent] = msgspec.field(default_factory=list)
    quarantined: list[QuarantineEvent] = msgspec.field(default_factory=list)
    warnings: dict[str, int] = msgspec.field(default_factory=dict)
    slot_changes: list[SlotsEvent] = msgspec.field(default_factory=list)
    volumes: VolumesEvent | None = None
    files: FilesEvent | None = None
    end: EndEvent | None = None
    checks: list[CheckEvent] = msgspec.field(default_factory=list)
    #: Time of the latest event: for a killed run, the best estimate of its end.
    seen: float = 0.0

    @property
    def wall(self) -> float:
        """Seconds from its begin to its end, or to its last event if it was killed."""
        return max(self.seen, self.end.t if self.end else 0.0)

    @property
    def n_slots(self) -> int:
        """Most slots that it had at once."""
        return max(self.head.slots, *(change.slots for change in self.slot_changes), 0)

    @property
    def present_slots(self) -> int:
        """Slots that it has now, or had at its end."""
        return self.slot_changes[-1].slots if self.slot_changes else self.head.slots

    @property
    def slot_seconds(self) -> float:
        """Seconds of all slots that were there, whether they worked or not."""
        times = [0.0, *(change.t for change in self.slot_changes), self.wall]
        numbers = [self.head.slots, *(change.slots for change in self.slot_changes)]
        return sum(slots * (end - begin) for slots, (begin, end) in zip(numbers, pairwise(times), strict=True))

    @property
    def known_slot_seconds(self) -> float:
        """The same, without the time in which tasks were under way that the log does not have: while it goes on, or if it was killed."""
        if self.end:
            return self.slot_seconds
        under_way = self.wall * self.present_slots - sum(self.find_last_ends().values())
        return max(self.slot_seconds - max(under_way, 0.0), sum(task.seconds for task in self.tasks))

    def find_last_ends(self) -> dict[int, float]:
        """Return when the last task of each slot ended, by slot, without slots that had none."""
        ends: dict[int, float] = {}
        for task in self.tasks:
            ends[task.slot] = max(task.t, ends.get(task.slot, 0.0))
        return ends

    @property
    def status(self) -> str:
        """Final status; ``unfinished`` while it goes on or if it was killed."""
        return self.end.status if self.end else "unfinished"

    @property
    def message(self) -> str:
        """Why it stopped early; empty if it did not, goes on, or was killed."""
        return self.end.message if self.end else ""

    @property
    def done_tasks(self) -> list[TaskEvent]:
        """The attempts whose output counts, each batch once."""
        once: dict[tuple[int, int], TaskEvent] = {}
        sums = []
        for task in self.tasks:
            if task.status == "done" and not task.fragment:
                if isinstance(task, TasksEvent):
                    sums.append(task)
                else:
                    once.setdefault((task.first, task.last), task)
        return [*once.values(), *sums]

    @property
    def records_done(self) -> int:
        """Number of records that are done after this run, those of earlier runs included."""
        if self.end and self.end.status in ("done", "quarantined"):
            return self.end.records_done  # a stopped run does not know it
        return self.head.records_resumed + sum(task.records for task in self.done_tasks)


def load_runs(events: Iterable[AnyLogEvent]) -> list[LoggedRun]:
    """Sort events into runs. Events before the first ``run`` event get a run with default fields."""
    runs: list[LoggedRun] = []
    for event in events:
        add_event(runs, event)
    return runs


def add_event(runs: list[LoggedRun], event: AnyLogEvent) -> None:
    """Add the next event of a log to the last of ``runs``."""
    if isinstance(event, RunEvent):
        runs.append(LoggedRun(event))
        return
    if not runs:
        runs.append(LoggedRun(RunEvent()))
    run = runs[-1]
    run.seen = max(run.seen, event.t)
    match event:
        case TaskEvent():
            run.tasks.append(event)
        case RetryEvent():
            run.retries.append(event)
        case QuarantineEvent():
            run.quarantined.append(event)
        case WarningEvent():
            # The count is "so far": the latest is the total.
            run.warnings[event.text] = max(event.count, run.warnings.get(event.text, 0))
        case SlotsEvent():
            run.slot_changes.append(event)
        case VolumesEvent():
            run.volumes = event
        case FilesEvent():
            run.files = event
        case EndEvent():
            run.end = event
        case CheckEvent():
            run.checks.append(event)


def list_still_quarantined(runs: Iterable[LoggedRun]) -> list[QuarantineEvent]:
    """Return the quarantined records that no later run has done, in input order."""
    given_up: dict[int, QuarantineEvent] = {}
    for run in runs:
        # A run with --retry-quarantined may do records that an earlier one quarantined; its own quarantines follow.
        for task in run.tasks if given_up else ():
            # The first tasks of a start have lines of their own, and at that time there are no others.
            if task.status == "done" and not task.fragment and not isinstance(task, TasksEvent):
                for record in [record for record in given_up if task.first <= record < task.last]:
                    del given_up[record]
        given_up.update({event.record: event for event in run.quarantined})
    return [given_up[record] for record in sorted(given_up)]


class NodeFigures(msgspec.Struct, frozen=True):
    """Figures of the slots of one node in the latest start."""

    host: str
    slots: int
    n_tasks: int
    n_failed: int
    records: int
    #: Share of time in which its slots had a task, counting tasks that have ended.
    busy: float
    #: Seconds since its last task end, at the latest event of the run; None: no task has ended.
    silent: float | None
    #: Seconds of its tasks, and their CPU.
    seconds: float = 0.0
    cpu: float = 0.0
    #: What its tasks read and wrote; None: that was not measured.
    io: IoCounts | None = None


def summarise_nodes(run: LoggedRun) -> list[NodeFigures]:
    """Return the figures of a start's nodes, in the order of their slots.

    Old logs name no nodes: all slots count as one.
    """
    hosts: dict[str, list[range]] = {}
    first = 0
    for host, n_slots in run.head.nodes or [("all", run.head.slots)]:
        hosts.setdefault(host, []).append(range(first, first + n_slots))
        first += n_slots
    owner = {slot: host for host, ranges in hosts.items() for each in ranges for slot in each}
    tasks: dict[str, list[TaskEvent]] = {host: [] for host in hosts}
    for task in run.tasks:
        if task.slot in owner:
            tasks[owner[task.slot]].append(task)
    return [_summarise_node(host, sum(map(len, ranges)), tasks[host], run.wall) for host, ranges in hosts.items()]


def _summarise_node(host: str, n_slots: int, tasks: Sequence[TaskEvent], wall: float) -> NodeFigures:
    return NodeFigures(
        host=host,
        slots=n_slots,
        n_tasks=sum(task.tasks for task in tasks),
        n_failed=sum(task.is_failure for task in tasks),
        records=sum(task.records for task in tasks if task.status == "done" and not task.fragment),
        busy=min(sum(task.seconds for task in tasks) / (wall * n_slots), 1.0) if wall and n_slots else 0.0,
        silent=wall - max(task.t for task in tasks) if tasks else None,
        seconds=sum(task.seconds for task in tasks),
        cpu=sum(task.cpu for task in tasks),
        io=sum_task_io(tasks),
    )
