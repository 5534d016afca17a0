"""What the scheduler is told and what it wants done: values only. How a task ends is in `millrace.tasks`."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

import msgspec

from millrace.committed import Committed
from millrace.ids import BatchId, TaskId
from millrace.tasks import Ended, SlotsChanged, Task, Withdrawn


class Part(msgspec.Struct, frozen=True):
    """A batch as the scheduler knows it: records ``[first, last)`` and what they cost."""

    batch: BatchId
    first: int
    last: int
    units: int
    #: Whether it may be cut in two; else its records belong together and count as one.
    is_divisible: bool = True

    @property
    def records(self) -> int:
        """Records that can stand alone."""
        return self.last - self.first if self.is_divisible else 1


class Result(Enum):
    """How an attempt at a batch ended."""

    DONE = "done"
    FAILED = "failed"
    #: Took longer than the user allows: not tried again as it is.
    TIMED_OUT = "timed out"
    #: Did nothing any more: says little of its records.
    STILL = "still"
    #: What it reads was away: says nothing of its records.
    AWAY = "away"
    #: Memory ran out, while others ran beside it: says nothing of its records.
    CROWDED = "crowded"
    #: Memory ran out, though nothing ran beside it.
    STARVED = "starved"
    #: Wrote to its input: no result of it is to be had.
    CHANGED = "changed"
    #: Failed in a way that has nothing to do with records.
    FATAL = "fatal"

    @property
    def is_of_the_tool(self) -> bool:
        """Whether it shows by itself that the tool cannot do this work, whatever the records."""
        return self in (Result.CHANGED, Result.FATAL)


class Failure(msgspec.Struct, frozen=True):
    """Why a task failed."""

    result: Result
    #: What makes two failures alike: status and message without names and numbers.
    signature: str = ""
    #: In words: how it ended, and in further lines what the tool said.
    reason: str = ""
    #: With which the tool ended by itself; None: it did not.
    exit_status: int | None = None
    #: Whether it died by a signal, or a process did that a shell had started for it.
    died: bool = False
    #: Whether a file became larger than the limit of the system.
    is_too_large: bool = False


# What happens


class Begun(msgspec.Struct, frozen=True):
    """The run begins: the first batches are about to be asked for."""


class BatchCut(msgspec.Struct, frozen=True):
    """A batch that was asked for is there."""

    part: Part


class InputEnded(msgspec.Struct, frozen=True):
    """There is nothing more to cut."""


class BatchSplit(msgspec.Struct, frozen=True):
    """The answer to `Split`: ``whole`` is now ``parts``, or one part that cannot be cut."""

    whole: BatchId
    parts: Sequence[Part]


class BatchDivided(msgspec.Struct, frozen=True):
    """The answer to `Divide`: ``whole``, which is at work, goes on as ``parts``; none: it cannot be divided."""

    whole: BatchId
    parts: Sequence[Part]


class BatchQuarantined(msgspec.Struct, frozen=True):
    """The answer to `Quarantine`: it is committed."""

    batch: BatchId


class TaskFailed(msgspec.Struct, frozen=True):
    """A task ended, and gave nothing."""

    task: TaskId
    failure: Failure


class LookWanted(msgspec.Struct, frozen=True):
    """Records are to be run again, to compare what the tool writes; the answer is `Looked`."""

    part: Part
    attempt: int
    urgent: bool
    #: See `millrace.tasks.Compare`.
    over: bool = False


class Interrupted(msgspec.Struct, frozen=True):
    """The run is to stop: for the first time soon, then at once."""


class Turn(msgspec.Struct, frozen=True):
    """All that has happened was told: what is decided as late as possible is decided now."""


Happened = (
    Begun | BatchCut | InputEnded | BatchSplit | BatchDivided | BatchQuarantined | Ended | TaskFailed | Withdrawn | SlotsChanged
    | LookWanted | Interrupted | Turn
)  # fmt: skip


# What is to be done


class Ask(msgspec.Struct, frozen=True):
    """Cut so many batches; each ends with the record that reaches a limit. 0: no limit."""

    records: int
    units: int
    bytes: int
    n_batches: int = 1


class Submit(msgspec.Struct, frozen=True):
    """Give a task to the slots."""

    task: Task


class Split(msgspec.Struct, frozen=True):
    """Cut a batch in two after its first ``records``, then tell `BatchSplit`."""

    batch: BatchId
    records: int
    #: That it is cut for; None: it is cut for another reason.
    failure: Failure | None = None


class Divide(msgspec.Struct, frozen=True):
    """Cut a batch in so many parts of about the same number of records, then tell `BatchDivided`."""

    batch: BatchId
    n_parts: int


class Retry(msgspec.Struct, frozen=True):
    """Say that a batch is tried again."""

    batch: BatchId
    failure: Failure


class Output(msgspec.Struct, frozen=True):
    """A batch is done: put its result into the output."""

    batch: BatchId
    result: Committed
    #: That its last task took, and of CPU time.
    seconds: float
    cpu_seconds: float


class Quarantine(msgspec.Struct, frozen=True):
    """Give up a batch of one record, keep it aside with its error, then tell `BatchQuarantined`."""

    batch: BatchId
    #: The last of it.
    failure: Failure


class Release(msgspec.Struct, frozen=True):
    """The bytes of a batch are no longer needed."""

    batch: BatchId


class Looked(msgspec.Struct, frozen=True):
    """What was run again for comparison gave this; None: it failed."""

    batch: BatchId
    result: Committed | None


class Withdraw(msgspec.Struct, frozen=True):
    """Take back what no slot has taken, and tell `millrace.tasks.Withdrawn` of each."""


class Kill(msgspec.Struct, frozen=True):
    """End what runs."""


class Why(Enum):
    """Why a run ends before its time."""

    #: The tool cannot work at all.
    TOOL = "tool"
    #: Nor with the memory that there is.
    MEMORY = "memory"
    #: A record failed, and the user wants no failures.
    RECORD = "record"
    #: More records failed than may be given up.
    MANY = "many"


class Stop(msgspec.Struct, frozen=True):
    """End the run."""

    batch: BatchId
    why: Why
    #: That of ``batch``, which shows why.
    failure: Failure


Action = Submit | Split | Divide | Retry | Output | Quarantine | Release | Looked | Withdraw | Kill | Stop
