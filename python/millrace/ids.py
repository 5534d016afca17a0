"""Types of ids: a batch cannot be passed as a task."""

from __future__ import annotations

from typing import NewType

#: A batch, for the lifetime of this process; batches cut out of it have numbers of their own.
BatchId = NewType("BatchId", int)

#: A task; each attempt is a task of its own.
TaskId = NewType("TaskId", int)

#: A slot among all slots of the run.
SlotId = NewType("SlotId", int)
