"""Tasks between scheduler and slots, the events that come back, and their numbers in the journal.

Values only. Between processes they are encoded as arrays of their fields, in this order
(``millrace.cluster.transport.message_encoding``). Ids are types of their own: a batch cannot be passed as a task.

The journal stores the kind of a task as a number, besides the records of the block: 0 is a part of the output by
itself, and the numbers of fragments stand for themselves; above these, the number of a slice or share contains how
many there are. Old journals have these numbers too: they must not change.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from itertools import zip_longest
from typing import NewType, Protocol

import msgspec

from millrace import _core
from millrace.core.tool_use import FrozenValue

#: A batch, for the lifetime of this process; batches cut out of it have numbers of their own.
BatchId = NewType("BatchId", int)

#: A task; each attempt is a task of its own.
TaskId = NewType("TaskId", int)

#: A slot among all slots of the run.
SlotId = NewType("SlotId", int)


class WholeTask(FrozenValue, frozen=True, array_like=True, tag=1):
    """Run the user's command on the batch."""


class SearchTask(FrozenValue, frozen=True, array_like=True, tag=2):
    """Search the batch in a fragment of the database, numbered from 1, for candidates."""

    fragment: int


class FinishTask(FrozenValue, frozen=True, array_like=True, tag=3):
    """Run the user's command on the batch, with its candidates as the database."""


class RankTask(FrozenValue, frozen=True, array_like=True, tag=4):
    """Find the ranks of share ``number``, from 0, of ``of`` of the candidates of one record."""

    number: int
    of: int


class SliceTask(FrozenValue, frozen=True, array_like=True, tag=5):
    """Write run ``number``, from 0, of ``of`` of the rows of one record: a part of a finish."""

    number: int
    of: int


class CompareTask(FrozenValue, frozen=True, array_like=True, tag=6):
    """Run the user's command on the batch, and compare its output with the committed one."""

    #: Whether the tool finds, at its output paths, the content that these held before the run.
    over: bool = False
    #: Whether the batch is several others in the opposite order.
    reversed: bool = False


#: The kind of a task. Only what ``WholeTask``, ``FinishTask``, and all ``SliceTask`` of a record together write is part of the
#: output.
TaskKind = WholeTask | SearchTask | FinishTask | RankTask | SliceTask | CompareTask


class SlotTask(FrozenValue, frozen=True, array_like=True):
    """One thing for a slot to do; the scheduler makes it, and it is carried to the slot unchanged."""

    id: TaskId
    batch: BatchId
    kind: TaskKind
    #: Number of the attempt at the batch, from 1.
    attempt: int = 1
    #: Goes before waiting tasks.
    urgent: bool = False
    #: It must run alone on its node.
    alone: bool = False
    timeout_seconds: float | None = None
    #: Maximum CPU time; None: no limit.
    cpu_limit_seconds: float | None = None
    #: Its input from other tasks, in order: candidates of all fragments, or the ranks of all shares.
    found: Sequence[_core.BlockRef] = ()

    @property
    def fragment(self) -> int:
        """The fragment of the database that it reads; 0: none."""
        return self.kind.fragment if isinstance(self.kind, SearchTask) else 0

    @property
    def should_show_stderr(self) -> bool:
        """Whether the tool's standard error is shown to the user; all slices of a record write the same."""
        return isinstance(self.kind, WholeTask | FinishTask) or (
            isinstance(self.kind, SliceTask) and self.kind.number == 0
        )


class TaskEnding(Enum):
    """How the execution of a task ended."""

    DONE = "done"
    #: A bad exit status, or a signal.
    FAILED = "failed"
    TIMEOUT = "timeout"
    #: Killed by us, as it made no progress for too long.
    STALLED = "still"
    #: It failed while a filesystem that it reads was gone; the filesystem is back.
    FILESYSTEM_GONE = "away"
    #: Killed by us, as the run is stopping.
    KILLED = "killed"
    #: An output is missing.
    MISSING = "missing"
    #: An input was changed while the tool had only a part of it.
    CHANGED = "changed"
    #: The tool's error output means failure.
    ERROR_REPORTED = "said"
    #: A slice has other rows than it should, or there are no slices.
    MISPLACED = "misplaced"
    #: An output could not be joined.
    UNJOINABLE = "shapeless"
    #: It was run in two ways, whose outputs differ.
    UNEQUAL = "unequal"
    #: The program could not be started.
    SPAWN = "spawn"
    #: The result could not be saved.
    IO = "io"


#: Upper limits of the classes of sizes in ``CallCounts.sizes``, in bytes; the last class has none.
SIZE_LIMITS = (64, 1 << 10, 16 << 10, 256 << 10, 4 << 20)


class IoCounts(FrozenValue, frozen=True, omit_defaults=True):
    """Totals of a task: bytes, calls and waits, of its processes and of the children that these waited for."""

    #: Bytes that calls read and wrote, from and to whatever it was.
    read: int = 0
    written: int = 0
    #: Calls that read, and that wrote.
    reads: int = 0
    writes: int = 0
    #: Bytes that came from a disk, also for mapped files, and that are to go to one.
    disk_read: int = 0
    disk_written: int = 0
    #: Page faults that waited for a disk.
    faults: int = 0
    #: Seconds for which the main threads waited for a disk; 0 where the kernel does not count them.
    disk_wait: float = 0.0
    #: Processes of another user (setuid programs), of which the kernel does not tell: they are not in these figures.
    hidden: int = 0


class CallCounts(FrozenValue, frozen=True, omit_defaults=True):
    """Calls on one file that read, or that wrote.

    >>> (CallCounts(calls=1, sizes=(1, 0)) + CallCounts() + CallCounts(calls=2, sizes=(0, 2))).sizes
    (1, 2)
    """

    calls: int = 0
    bytes: int = 0
    #: Seconds that the calls took.
    seconds: float = 0.0
    #: Calls that began elsewhere than where the one before had ended: random access.
    jumps: int = 0
    #: Number of calls of each class of sizes; see ``SIZE_LIMITS``.
    sizes: tuple[int, ...] = ()

    def __add__(self, other: CallCounts) -> CallCounts:
        return CallCounts(
            calls=self.calls + other.calls,
            bytes=self.bytes + other.bytes,
            seconds=self.seconds + other.seconds,
            jumps=self.jumps + other.jumps,
            sizes=tuple(a + b for a, b in zip_longest(self.sizes, other.sizes, fillvalue=0)),
        )


class FileCounts(FrozenValue, frozen=True, omit_defaults=True):
    """What tasks did with one file."""

    path: str
    #: Tasks that touched it.
    tasks: int = 1
    opens: int = 0
    #: Seconds that opening took.
    open_seconds: float = 0.0
    seeks: int = 0
    #: Bytes that were mapped into memory: reading these is no call.
    mapped: int = 0
    read: CallCounts = CallCounts()
    written: CallCounts = CallCounts()

    @property
    def seconds(self) -> float:
        """Seconds in calls on the file."""
        return self.open_seconds + self.read.seconds + self.written.seconds

    def __add__(self, other: FileCounts) -> FileCounts:
        return FileCounts(
            path=self.path,
            tasks=self.tasks + other.tasks,
            opens=self.opens + other.opens,
            open_seconds=self.open_seconds + other.open_seconds,
            seeks=self.seeks + other.seeks,
            mapped=self.mapped + other.mapped,
            read=self.read + other.read,
            written=self.written + other.written,
        )


class FileProfile(FrozenValue, frozen=True, array_like=True):
    """What one task did with its files, as far as its processes were heard of."""

    files: Sequence[FileCounts]
    #: Processes that were heard of.
    processes: int = 0
    #: Of these, those whose standard streams are not counted.
    streamless: int = 0
    #: Files for which there was no room.
    lost: int = 0


class TaskStarted(FrozenValue, frozen=True, array_like=True, tag=1):
    """A slot started a task."""

    task: TaskId
    slot: SlotId
    ago_seconds: float


class TaskEnded(FrozenValue, frozen=True, array_like=True, tag=2):
    """A task ended."""

    task: TaskId
    slot: SlotId
    ago_seconds: float
    ending: TaskEnding
    exit_status: int | None = None
    signal: int | None = None
    #: Details of the ending, in words.
    detail: str = ""
    disk_full: bool = False
    cpu_seconds: float = 0.0
    wall_seconds: float = 0.0
    peak_rss_bytes: int = 0
    #: Whether the kernel killed a process of it because memory ran out.
    out_of_memory: bool = False
    #: Maximum number of tasks that ran on its node at once while it did, itself included.
    side_by_side: int = 1
    #: Standard error of the tool: its first and its last 64 KiB.
    stderr: bytes = b""
    #: Files that the tool wrote although they are no declared outputs.
    extra: Sequence[str] = ()
    #: Whether it ran in a fork of a tool that had waited for its input.
    is_warm: bool = False
    #: CPU seconds that these forks saved; below 0: their cost.
    saved_seconds: float = 0.0
    #: Why no more tasks run in such forks; empty: no change.
    cold: str = ""
    #: The blocks that are in the journal now.
    committed: _core.TaskRef | None = None
    #: What it read and wrote, and file by file, in a run that profiles that.
    io: IoCounts | None = None
    files: FileProfile | None = None
    #: Bytes of these blocks, if its node shares no folder with the coordinator, which appends them to its own journal; else None.
    contents: Sequence[bytes] | None = None

    @property
    def is_done(self) -> bool:
        return self.ending is TaskEnding.DONE


class TaskWithdrawn(FrozenValue, frozen=True):
    """A task was returned unstarted."""

    task: TaskId


class SlotsChanged(FrozenValue, frozen=True):
    """From now on, this many tools run side by side; the number may be the same and only the reason new."""

    slots: int
    #: The reason, in words.
    why: str


class PoolWoken(FrozenValue, frozen=True):
    """The wait ended without an event of a task: there may be events elsewhere."""


#: Events of slots.
SlotEvent = TaskStarted | TaskEnded | TaskWithdrawn | SlotsChanged | PoolWoken


def convert_pool_event(event: _core.PoolEvent, *, with_io: bool = False) -> TaskStarted | TaskEnded | PoolWoken:
    """Convert an event of a slot pool.

    Args:
        with_io: Include what the task read and wrote.
    """
    task, slot = TaskId(event.id), SlotId(event.slot)
    if event.kind == _core.EventKind.Started:
        return TaskStarted(task, slot, event.ago_seconds)
    if event.kind != _core.EventKind.Ended:
        return PoolWoken()
    return TaskEnded(
        task=task, slot=slot, ago_seconds=event.ago_seconds, ending=TaskEnding(event.status), exit_status=event.exit_status,
        signal=event.signal, detail=event.detail, disk_full=event.disk_full, cpu_seconds=event.cpu_seconds,
        wall_seconds=event.wall_seconds, peak_rss_bytes=event.peak_rss_bytes, out_of_memory=event.out_of_memory,
        side_by_side=event.side_by_side, stderr=event.stderr, extra=event.extra, committed=event.task,
        is_warm=event.is_warm, saved_seconds=event.saved_seconds, cold=event.cold,
        io=convert_io(event) if with_io else None, files=convert_calls(event) if with_io else None,
    )  # fmt: skip


#: Calls, bytes, nanoseconds, jumps, and calls of each class of sizes.
_Calls = tuple[int, int, int, int, Sequence[int]]


def convert_io(event: _core.PoolEvent) -> IoCounts:
    """Convert the totals of a task that ended."""
    read, written, reads, writes, disk_read, disk_written, faults, disk_wait, hidden = event.io
    return IoCounts(
        read=read, written=written, reads=reads, writes=writes, disk_read=disk_read, disk_written=disk_written,
        faults=faults, disk_wait=disk_wait, hidden=hidden,
    )  # fmt: skip


def convert_calls(event: _core.PoolEvent) -> FileProfile | None:
    """Convert what a task that ended did with its files; None: that was not counted."""
    if event.calls is None:
        return None
    files, *counts = event.calls
    return FileProfile([_convert_file(*each) for each in files], *counts)


def _convert_file(
    path: str, opens: int, open_ns: int, seeks: int, mapped: int, read: _Calls, written: _Calls
) -> FileCounts:
    return FileCounts(
        path=path, opens=opens, open_seconds=open_ns / 1e9, seeks=seeks, mapped=mapped,
        read=_convert_call_counts(*read), written=_convert_call_counts(*written),
    )  # fmt: skip


def _convert_call_counts(calls: int, n_bytes: int, ns: int, jumps: int, sizes: Sequence[int]) -> CallCounts:
    return CallCounts(calls=calls, bytes=n_bytes, seconds=ns / 1e9, jumps=jumps, sizes=tuple(sizes) if calls else ())


#: Bits of the number of a slice or share. The bit above says that it is a share; their total is above that.
_BITS = 15

#: Maximum number of slices of one record.
MAX_SLICES = (1 << _BITS) - 1

#: Largest number of a fragment or a comparison.
_FRAGMENTS = (1 << _BITS + 1) - 1

#: Output that is only compared with results.
_COMPARE = _FRAGMENTS

#: The same, from a tool that found the outputs' earlier content, and of batches in the opposite order.
_COMPARE_OVER, _COMPARE_REVERSED = _COMPARE - 1, _COMPARE - 2


def encode_task_kind(kind: TaskKind) -> int:
    """Return the number of blocks from tasks of this kind.

    >>> [encode_task_kind(kind) for kind in (WholeTask(), FinishTask(), SearchTask(7), CompareTask(), CompareTask(over=True), CompareTask(reversed=True), SliceTask(0, 2), RankTask(1, 2))]
    [0, 0, 7, 65535, 65534, 65533, 131072, 163841]
    """
    match kind:
        case WholeTask() | FinishTask():
            return 0
        case SearchTask(fragment):
            return fragment
        case CompareTask(over, is_reversed):
            return _COMPARE_OVER if over else _COMPARE_REVERSED if is_reversed else _COMPARE
        case SliceTask(number, of):
            return of << _BITS + 1 | number
        case RankTask(number, of):
            return (of << 1 | 1) << _BITS | number


def decode_task_kind(number: int) -> TaskKind:
    """Return the kind of task that wrote a block; ``WholeTask`` for a part of the output by itself.

    >>> [decode_task_kind(number) for number in (0, 7, 65535, 131072, 163841)]
    [WholeTask(), SearchTask(fragment=7), CompareTask(over=False, reversed=False), SliceTask(number=0, of=2), RankTask(number=1, of=2)]
    """
    if number == 0:
        return WholeTask()
    if _COMPARE_REVERSED <= number <= _COMPARE:
        return CompareTask(over=number == _COMPARE_OVER, reversed=number == _COMPARE_REVERSED)
    if number < _COMPARE_REVERSED:
        return SearchTask(number)
    is_share = bool(number >> _BITS & 1)
    return (RankTask if is_share else SliceTask)(number & MAX_SLICES, number >> _BITS + 1)


class CommittedRecords(Protocol):
    """The committed result of records ``[first, last)``: a ``millrace._core.TaskRef``, or several."""

    @property
    def first(self) -> int: ...
    @property
    def last(self) -> int: ...
    @property
    def quarantined(self) -> bool: ...
    @property
    def inputs(self) -> Sequence[tuple[int, int]]: ...
    @property
    def blocks(self) -> Sequence[_core.BlockRef]: ...


def count_records(tasks: Iterable[CommittedRecords]) -> int:
    """Return the number of records of ``tasks``."""
    return sum(task.last - task.first for task in tasks)


class GatheredSlices(msgspec.Struct, frozen=True):
    """All slices of a record; blocks of the same stream follow each other."""

    first: int
    last: int
    inputs: Sequence[tuple[int, int]]
    blocks: Sequence[_core.BlockRef]
    quarantined: bool = False


def gather_slices(slices: Mapping[int, _core.TaskRef]) -> GatheredSlices:
    """Gather the result of a record from all of its slices, by number."""
    one = slices[0]
    blocks = [block for number in sorted(slices) for block in slices[number].blocks]
    return GatheredSlices(one.first, one.last, one.inputs, blocks)
