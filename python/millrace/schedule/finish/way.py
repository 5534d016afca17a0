"""What a way to finish a batch is given, and what it answers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from millrace.committed import Committed
from millrace.ids import BatchId
from millrace.schedule.orders import Order
from millrace.schedule.protocol import Divide
from millrace.tasks import Rank, Slice

if TYPE_CHECKING:
    from millrace import _core


class Ready(NamedTuple):
    """A batch for which everything is found."""

    batch: BatchId
    #: Which attempt at the batch its tasks belong to, from 1.
    attempt: int
    n_records: int
    #: What all fragments found, in their order.
    found: Sequence[_core.BlockRef]
    #: Wall seconds that its searches took; 0: an earlier run did them all.
    seconds: float = 0.0
    #: The ranks of all subjects, share by share; empty: they are not known.
    ranks: Sequence[_core.BlockRef] = ()
    #: Whether it was to be written in slices before, of which something came in between.
    was_sliced: bool = False

    @property
    def found_bytes(self) -> int:
        """Size of what all fragments found."""
        return sum(block.length for block in self.found)


class Slots(NamedTuple):
    """Where tasks run."""

    n: int
    #: Those that nothing waits for; below 0: more waits than there are.
    n_idle: int


class Ranks(NamedTuple):
    """The ranks of all subjects of a batch, which is to be finished by them."""

    blocks: Sequence[_core.BlockRef]


class Way(ABC):
    """A way to finish a batch."""

    @abstractmethod
    def begin(self, ready: Ready, slots: Slots) -> Divide | list[Order] | None:
        """The tasks that finish ``ready``; None: it is not to be finished in this way."""


class WayInShares(Way):
    """A way by several tasks of one kind, each of which does a share."""

    #: The kind of its tasks, which no other way has.
    kind: type[Rank | Slice]

    @abstractmethod
    def end(self, shares: Mapping[int, _core.TaskRef]) -> Committed | Ranks:
        """What all shares of a batch together are, given by their numbers, from 0."""
