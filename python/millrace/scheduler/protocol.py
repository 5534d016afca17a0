"""Events that the scheduler receives, actions that it returns, and orders from which it makes tasks.

Values, and two rules on them: the class of a failed task by its ending (``millrace.core.tasks``), and the steps that
end a run after a signal. Pure.
"""

from __future__ import annotations

import signal
from collections.abc import Container, Sequence
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from millrace.core.tasks import (
    BatchId,
    CommittedRecords,
    CompareTask,
    SlotsChanged,
    SlotTask,
    TaskEnded,
    TaskEnding,
    TaskId,
    TaskKind,
    TaskWithdrawn,
)

if TYPE_CHECKING:
    from millrace import _core


class TaskOrder(NamedTuple):
    """A task to be made."""

    batch: BatchId
    kind: TaskKind
    attempt: int
    urgent: bool = False
    found: Sequence[_core.BlockRef] = ()


class BatchExtent(msgspec.Struct, frozen=True):
    """A batch as the scheduler knows it: records ``[first, last)`` and their cost."""

    batch: BatchId
    first: int
    last: int
    units: int
    #: Whether it may be split; if not, its records belong together and count as one.
    is_divisible: bool = True

    @property
    def records(self) -> int:
        """Number of records that can stand alone."""
        return self.last - self.first if self.is_divisible else 1


class AttemptResult(Enum):
    """How an attempt at a batch ended."""

    DONE = "done"
    FAILED = "failed"
    #: Exceeded the user's time limit: not retried unchanged.
    TIMED_OUT = "timed out"
    #: Made no progress for too long: says little about its records.
    STALLED = "still"
    #: A filesystem that it reads was gone: says nothing about its records.
    FILESYSTEM_GONE = "away"
    #: Out of memory beside other tasks: says nothing about its records.
    OUT_OF_MEMORY_SHARED = "crowded"
    #: Out of memory while running alone.
    OUT_OF_MEMORY_ALONE = "starved"
    #: Wrote to its input: no result can be had.
    CHANGED = "changed"
    #: Failed for a reason that has nothing to do with records.
    FATAL = "fatal"

    @property
    def is_tool_failure(self) -> bool:
        """Whether this alone shows that the tool cannot do the work, whatever the records."""
        return self in (AttemptResult.CHANGED, AttemptResult.FATAL)


class TaskFailure(msgspec.Struct, frozen=True):
    """How and why a task failed."""

    result: AttemptResult
    #: Equal for failures of one kind: status and message without names and numbers.
    signature: str = ""
    #: In words: how it ended, then in further lines the tool's error output.
    reason: str = ""
    #: Exit status of the tool; None: it did not exit by itself.
    exit_status: int | None = None
    #: Whether the tool, or a process that its shell started, was killed by a signal.
    died: bool = False
    #: Whether a file exceeded the system's size limit.
    is_too_large: bool = False


# Events


class RunBegun(msgspec.Struct, frozen=True):
    """The run began: the first batches are about to be asked for."""


class BatchCut(msgspec.Struct, frozen=True):
    """A batch that was asked for is ready."""

    part: BatchExtent


class InputEnded(msgspec.Struct, frozen=True):
    """The end of the input was reached: no more batches can be cut."""


class BatchSplit(msgspec.Struct, frozen=True):
    """Reply to ``SplitBatch``: ``whole`` was replaced by ``parts``, or by one part that cannot be cut."""

    whole: BatchId
    parts: Sequence[BatchExtent]


class BatchDivided(msgspec.Struct, frozen=True):
    """Reply to ``DivideBatch``: ``whole``, which is in progress, was replaced by ``parts``; none: it cannot be divided."""

    whole: BatchId
    parts: Sequence[BatchExtent]


class BatchQuarantined(msgspec.Struct, frozen=True):
    """Reply to ``QuarantineBatch``: the quarantine is committed."""

    batch: BatchId


class TaskFailed(msgspec.Struct, frozen=True):
    """A task ended without a result."""

    task: TaskId
    failure: TaskFailure


class VerificationRequested(msgspec.Struct, frozen=True):
    """A second execution of records was asked for, to compare the tool's output; the reply is ``VerificationDone``."""

    part: BatchExtent
    attempt: int
    urgent: bool
    kind: CompareTask = CompareTask()


class RunInterrupted(msgspec.Struct, frozen=True):
    """A signal asked the run to stop: the first one soon, the second one at once."""


class TickEnded(msgspec.Struct, frozen=True):
    """All pending events were reported: decisions that are made as late as possible are made now."""


SchedulerEvent = (
    RunBegun | BatchCut | InputEnded | BatchSplit | BatchDivided | BatchQuarantined | TaskEnded | TaskFailed | TaskWithdrawn | SlotsChanged
    | VerificationRequested | RunInterrupted | TickEnded
)  # fmt: skip


# Actions


class CutBatches(msgspec.Struct, frozen=True):
    """Cut this many batches; each ends with the record that reaches a limit. 0: no limit."""

    records: int
    units: int
    bytes: int
    n_batches: int = 1


class SubmitTask(msgspec.Struct, frozen=True):
    """Submit a task to the slots."""

    task: SlotTask


class SplitBatch(msgspec.Struct, frozen=True):
    """Cut a batch in two after its first ``records``, then report ``BatchSplit``."""

    batch: BatchId
    records: int
    #: Failure because of which it is cut; None: it is cut for another reason.
    failure: TaskFailure | None = None


class DivideBatch(msgspec.Struct, frozen=True):
    """Cut a batch into parts with about equal numbers of records, then report ``BatchDivided``."""

    batch: BatchId
    n_parts: int


class ReportRetry(msgspec.Struct, frozen=True):
    """Report that a batch is tried again."""

    batch: BatchId
    failure: TaskFailure


class OutputBatch(msgspec.Struct, frozen=True):
    """Commit the result of a batch to the output."""

    batch: BatchId
    result: CommittedRecords
    #: Wall time and CPU time of its last task.
    seconds: float
    cpu_seconds: float


class QuarantineBatch(msgspec.Struct, frozen=True):
    """Quarantine a batch of one record with its error, then report ``BatchQuarantined``."""

    batch: BatchId
    #: Its last failure.
    failure: TaskFailure


class ReleaseBatch(msgspec.Struct, frozen=True):
    """Free the bytes of a batch."""

    batch: BatchId


class VerificationDone(msgspec.Struct, frozen=True):
    """Report the result of a second execution to the verifier; None: it failed."""

    batch: BatchId
    result: CommittedRecords | None


class WithdrawTasks(msgspec.Struct, frozen=True):
    """Take back the tasks that no slot has started, and report ``millrace.core.tasks.TaskWithdrawn`` for each."""


class KillTasks(msgspec.Struct, frozen=True):
    """Kill the running tools."""


class StopReason(Enum):
    """Reasons for stopping a run early."""

    #: The tool cannot work at all.
    TOOL = "tool"
    #: The tool cannot work in the available memory.
    MEMORY = "memory"
    #: A record failed, and the user allows no failures.
    RECORD = "record"
    #: More records failed than may be quarantined.
    MANY = "many"


class StopRun(msgspec.Struct, frozen=True):
    """Stop the run."""

    batch: BatchId
    why: StopReason
    #: Failure of ``batch`` that is the reason.
    failure: TaskFailure


SchedulerAction = (
    SubmitTask
    | SplitBatch
    | DivideBatch
    | ReportRetry
    | OutputBatch
    | QuarantineBatch
    | ReleaseBatch
    | VerificationDone
    | WithdrawTasks
    | KillTasks
    | StopRun
)


_RESULTS = {
    TaskEnding.CHANGED: AttemptResult.CHANGED,
    TaskEnding.STALLED: AttemptResult.STALLED,
    TaskEnding.TIMEOUT: AttemptResult.TIMED_OUT,
}


def classify_failure(ended: TaskEnded, fatal_statuses: Container[int]) -> AttemptResult:
    """Return the result of an attempt that has a failed task.

    Args:
        fatal_statuses: Exit statuses of the tool that say "not the record's fault".
    """
    if ended.ending is TaskEnding.FILESYSTEM_GONE:
        return AttemptResult.FILESYSTEM_GONE
    if ended.out_of_memory:
        return AttemptResult.OUT_OF_MEMORY_SHARED if ended.side_by_side > 1 else AttemptResult.OUT_OF_MEMORY_ALONE
    if ended.ending is TaskEnding.SPAWN or ended.exit_status in fatal_statuses or is_file_too_large(ended):
        return AttemptResult.FATAL
    return _RESULTS.get(ended.ending, AttemptResult.FAILED)


def is_file_too_large(ended: TaskEnded) -> bool:
    """Tell whether the tool, or a process that its shell started, died at the system's limit of file sizes."""
    return signal.SIGXFSZ in (ended.signal, (ended.exit_status or 0) - 128)


#: Signals that the system sends for invalid operations; a shell adds 128.
_CRASHES = (signal.SIGILL, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGSEGV)


def has_tool_crashed(ended: TaskEnded) -> bool:
    """Tell whether the tool, or a process that its shell started, died by an invalid operation."""
    return ended.ending is TaskEnding.FAILED and (
        ended.signal in _CRASHES or (ended.exit_status or 0) - 128 in _CRASHES
    )


class RunInterruption:
    """Starts nothing new after the first signal; after a second one, or the grace time, kills running tools.

    Args:
        grace_seconds: Time that running tools may go on after the first signal.
    """

    def __init__(self, grace_seconds: float) -> None:
        self._grace = grace_seconds
        self._since: float | None = None
        self._killed = False

    def __bool__(self) -> bool:
        """Return whether there was a signal."""
        return self._since is not None

    def handle_signal(self, now: float) -> list[WithdrawTasks | KillTasks]:
        """Handle a signal; return the actions."""
        if self._since is not None:
            return self._kill_once()
        self._since = now
        return [WithdrawTasks()]

    def check_grace_time(self, now: float) -> list[WithdrawTasks | KillTasks]:
        """Return the actions that are due at ``now``."""
        return self._kill_once() if self._since is not None and now > self._since + self._grace else []

    def _kill_once(self) -> list[WithdrawTasks | KillTasks]:
        actions: list[WithdrawTasks | KillTasks] = [] if self._killed else [KillTasks()]
        self._killed = True
        return actions
