"""Events that the scheduler receives and actions that it returns. Values only; task endings: see ``millrace.tasks``."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

import msgspec

from millrace.committed import CommittedRecords
from millrace.ids import BatchId, TaskId
from millrace.tasks import SlotsChanged, SlotTask, TaskEnded, TaskWithdrawn


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
    #: See ``millrace.tasks.CompareTask``.
    over: bool = False


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
    """Take back the tasks that no slot has started, and report ``millrace.tasks.TaskWithdrawn`` for each."""


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
