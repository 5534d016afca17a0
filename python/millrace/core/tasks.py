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


def convert_pool_event(event: _core.PoolEvent) -> TaskStarted | TaskEnded | PoolWoken:
    """Convert an event of a slot pool."""
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
    )  # fmt: skip


#: Bits of the number of a slice or share. The bit above says that it is a share; their total is above that.
_BITS = 15

#: Maximum number of slices of one record.
MAX_SLICES = (1 << _BITS) - 1

#: Largest number of a fragment or a comparison.
_FRAGMENTS = (1 << _BITS + 1) - 1

#: Output that is only compared with results.
_COMPARE = _FRAGMENTS

#: The same, from a tool that found the outputs' earlier content.
_COMPARE_OVER = _COMPARE - 1


def encode_task_kind(kind: TaskKind) -> int:
    """Return the number of blocks from tasks of this kind.

    >>> [encode_task_kind(kind) for kind in (WholeTask(), FinishTask(), SearchTask(7), CompareTask(), CompareTask(over=True), SliceTask(0, 2), RankTask(1, 2))]
    [0, 0, 7, 65535, 65534, 131072, 163841]
    """
    match kind:
        case WholeTask() | FinishTask():
            return 0
        case SearchTask(fragment):
            return fragment
        case CompareTask(over):
            return _COMPARE_OVER if over else _COMPARE
        case SliceTask(number, of):
            return of << _BITS + 1 | number
        case RankTask(number, of):
            return (of << 1 | 1) << _BITS | number


def decode_task_kind(number: int) -> TaskKind:
    """Return the kind of task that wrote a block; ``WholeTask`` for a part of the output by itself.

    >>> [decode_task_kind(number) for number in (0, 7, 65535, 65534, 131072, 163841)]
    [WholeTask(), SearchTask(fragment=7), CompareTask(over=False), CompareTask(over=True), SliceTask(number=0, of=2), RankTask(number=1, of=2)]
    """
    if number == 0:
        return WholeTask()
    if number in (_COMPARE, _COMPARE_OVER):
        return CompareTask(over=number == _COMPARE_OVER)
    if number < _COMPARE_OVER:
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
