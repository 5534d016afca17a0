"""A task on its way from the scheduler to a slot, and what comes back. Values only.

Those that travel from process to process are arrays there of their fields in this order, see `millrace.cluster.wire`.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from millrace import _core
from millrace.ids import BatchId, SlotId, TaskId
from millrace.model import Frozen


class Whole(Frozen, frozen=True, array_like=True, tag=1):
    """Run the user's command on the batch."""


class Search(Frozen, frozen=True, array_like=True, tag=2):
    """Search the batch in a fragment of the database, numbered from 1, for candidates."""

    fragment: int


class Finish(Frozen, frozen=True, array_like=True, tag=3):
    """Run the user's command on the batch, with its candidates as the database."""


class Rank(Frozen, frozen=True, array_like=True, tag=4):
    """Find the ranks of share ``number``, from 0, of ``of`` of the candidates of one record."""

    number: int
    of: int


class Slice(Frozen, frozen=True, array_like=True, tag=5):
    """Write run ``number``, from 0, of ``of`` of the rows of one record: a part of a finish."""

    number: int
    of: int


class Compare(Frozen, frozen=True, array_like=True, tag=6):
    """Run the user's command on the batch, and compare what it writes with what is committed."""

    #: Whether the tool finds what the outputs held before the run where it writes.
    over: bool = False


#: What is to be done. Only what `Whole`, `Finish`, and all `Slice` of a record together write is part of the output.
Kind = Whole | Search | Finish | Rank | Slice | Compare


class Task(Frozen, frozen=True, array_like=True):
    """One thing for a slot to do; the scheduler makes it, and it is carried to the slot as it is."""

    id: TaskId
    batch: BatchId
    kind: Kind
    #: Which attempt at the batch it belongs to, from 1.
    attempt: int = 1
    #: Goes before those that wait.
    urgent: bool = False
    #: Nothing is to run beside it on its node.
    alone: bool = False
    timeout_seconds: float | None = None
    #: CPU time that it may use; None: any.
    cpu_limit_seconds: float | None = None
    #: What it builds on, in order: what all fragments found, or the ranks of all shares.
    found: Sequence[_core.BlockRef] = ()

    @property
    def fragment(self) -> int:
        """The fragment of the database that it reads; 0: none."""
        return self.kind.fragment if isinstance(self.kind, Search) else 0

    @property
    def speaks(self) -> bool:
        """Whether what the tool says on standard error is for the user; all slices of a record say the same."""
        return isinstance(self.kind, Whole | Finish) or (isinstance(self.kind, Slice) and self.kind.number == 0)


class Ending(Enum):
    """How the execution of a task ended."""

    DONE = "done"
    #: A bad exit status, or a signal.
    FAILED = "failed"
    TIMEOUT = "timeout"
    #: Ended by us, as it did nothing any more.
    STILL = "still"
    #: It failed while a filesystem was away from which it reads, and which is back.
    AWAY = "away"
    #: Ended by us, as the run is to stop.
    KILLED = "killed"
    #: An output is not there.
    MISSING = "missing"
    #: An input was changed, of which the tool has but a part.
    CHANGED = "changed"
    #: What the tool said means failure.
    SAID = "said"
    #: The rows of a slice are not those that it is for, or there are no slices.
    MISPLACED = "misplaced"
    #: An output could not be joined.
    SHAPELESS = "shapeless"
    #: It was run in two ways, which gave other bytes.
    UNEQUAL = "unequal"
    #: The program could not be started.
    SPAWN = "spawn"
    #: The result could not be kept.
    IO = "io"


class Started(Frozen, frozen=True, array_like=True, tag=1):
    """A slot has taken a task."""

    task: TaskId
    slot: SlotId
    ago_seconds: float


class Ended(Frozen, frozen=True, array_like=True, tag=2):
    """A task came to its end."""

    task: TaskId
    slot: SlotId
    ago_seconds: float
    ending: Ending
    exit_status: int | None = None
    signal: int | None = None
    #: What there is to say of the ending, in words.
    detail: str = ""
    disk_full: bool = False
    cpu_seconds: float = 0.0
    wall_seconds: float = 0.0
    peak_rss_bytes: int = 0
    #: Whether the kernel killed a process of it because memory ran out.
    out_of_memory: bool = False
    #: Tasks of its node that were at work at once while it was, itself included, at most.
    side_by_side: int = 1
    #: What the tool said: its first and its last 64 KiB.
    stderr: bytes = b""
    #: Files that the tool wrote and nobody had asked for.
    extra: Sequence[str] = ()
    #: Whether it ran in a fork of a tool that had waited for its input.
    is_warm: bool = False
    #: CPU seconds that such forks saved; below 0: that they cost.
    saved_seconds: float = 0.0
    #: Why no task runs so any more; empty: nothing new.
    cold: str = ""
    #: What is in the journal now.
    committed: _core.TaskRef | None = None

    @property
    def is_done(self) -> bool:
        return self.ending is Ending.DONE


class Withdrawn(Frozen, frozen=True):
    """A task comes back as it went: no slot has taken it."""

    task: TaskId


class SlotsChanged(Frozen, frozen=True):
    """From now on, so many tools run side by side; as many as before where only the reason is news."""

    slots: int
    #: The reason, in words.
    why: str


class Woken(Frozen, frozen=True):
    """There may be news elsewhere."""


#: What the slots tell.
News = Started | Ended | Withdrawn | SlotsChanged | Woken


def news_of(event: _core.PoolEvent) -> Started | Ended | Woken:
    """What a pool of slots tells."""
    task, slot = TaskId(event.id), SlotId(event.slot)
    if event.kind == "started":
        return Started(task, slot, event.ago_seconds)
    if event.kind != "ended":
        return Woken()
    return Ended(
        task=task, slot=slot, ago_seconds=event.ago_seconds, ending=Ending(event.status), exit_status=event.exit_status,
        signal=event.signal, detail=event.detail, disk_full=event.disk_full, cpu_seconds=event.cpu_seconds,
        wall_seconds=event.wall_seconds, peak_rss_bytes=event.peak_rss_bytes, out_of_memory=event.out_of_memory,
        side_by_side=event.side_by_side, stderr=event.stderr, extra=event.extra, committed=event.task,
        is_warm=event.is_warm, saved_seconds=event.saved_seconds, cold=event.cold,
    )  # fmt: skip
