"""Interface of the strategies to finish a batch: their input and their output."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from millrace.committed import CommittedRecords
from millrace.ids import BatchId
from millrace.schedule.orders import TaskOrder
from millrace.schedule.protocol import DivideBatch
from millrace.tasks import RankTask, SliceTask

if TYPE_CHECKING:
    from millrace import _core


class ReadyBatch(NamedTuple):
    """A batch whose candidates are complete."""

    batch: BatchId
    #: Number of the attempt to which its tasks belong, from 1.
    attempt: int
    n_records: int
    #: Candidates of all fragments, in their order.
    found: Sequence[_core.BlockRef]
    #: Wall seconds of its searches; 0: an earlier run did them all.
    seconds: float = 0.0
    #: The ranks of all subjects, share by share; empty: not known.
    ranks: Sequence[_core.BlockRef] = ()
    #: Whether an earlier plan to write it in slices had a setback.
    was_sliced: bool = False

    @property
    def found_bytes(self) -> int:
        """Size of the candidates of all fragments, in bytes."""
        return sum(block.length for block in self.found)


class SlotCounts(NamedTuple):
    """Numbers of slots."""

    n: int
    #: Number of slots for which no task waits; below 0: more tasks wait than there are slots.
    n_idle: int


class SubjectRanks(NamedTuple):
    """The ranks of all subjects of a batch, by which it is finished."""

    blocks: Sequence[_core.BlockRef]


class FinishStrategy(ABC):
    """A strategy to finish a batch."""

    @abstractmethod
    def plan_tasks(self, ready: ReadyBatch, slots: SlotCounts) -> DivideBatch | list[TaskOrder] | None:
        """Return the tasks that finish ``ready``; None: this strategy does not apply."""


class SharedFinishStrategy(FinishStrategy):
    """A strategy with several tasks of one kind, each of which does a share."""

    #: The kind of its tasks, which no other strategy has.
    kind: type[RankTask | SliceTask]

    @abstractmethod
    def combine_shares(self, shares: Mapping[int, _core.TaskRef]) -> CommittedRecords | SubjectRanks:
        """Combine all shares of a batch, by their numbers from 0, into its result or its ranks."""
