"""Numbers that mean different things have different types: a batch cannot be passed as a task."""

from __future__ import annotations

from typing import NewType

#: A batch, for as long as this process lives; what is cut out of it has numbers of its own.
BatchId = NewType("BatchId", int)

#: A task; each attempt is a task of its own.
TaskId = NewType("TaskId", int)

#: A slot among all of the run.
SlotId = NewType("SlotId", int)
