"""Orders from which the scheduler makes tasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from millrace.ids import BatchId
from millrace.tasks import TaskKind

if TYPE_CHECKING:
    from millrace import _core


class TaskOrder(NamedTuple):
    """A task to be made."""

    batch: BatchId
    kind: TaskKind
    attempt: int
    urgent: bool = False
    found: Sequence[_core.BlockRef] = ()
