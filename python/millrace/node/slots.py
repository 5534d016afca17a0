"""What runs tasks, as the engine sees it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from millrace.ids import TaskId
from millrace.node.batch import Batch
from millrace.tasks import News, Task

#: A program that stays alive has so long to end by itself when all is done; on several nodes, whose ends wait for each
#: other, less.
FAREWELL_SECONDS, SHORT_FAREWELL_SECONDS = 60.0, 5.0


class Slots(Protocol):
    """Where batches are run: the slots of this machine (`millrace.node.agent.Node`), or of several."""

    #: Machines that have a memory of their own for what is read again and again.
    n_nodes: int

    def events(self, timeout_seconds: float) -> Sequence[News]:
        """Wait for events, at most so long; return all that are there."""

    def submit(self, task: Task, batch: Batch) -> None:
        """Queue a task; ``batch`` has the bytes of its records."""

    def withdraw(self) -> list[TaskId]:
        """Take back the tasks that no slot has taken; others may follow as `millrace.tasks.Withdrawn`."""

    def kill_all(self) -> None:
        """End the tools that run."""

    def argv(self, batch: Batch) -> list[bytes]:
        """The tool's arguments for ``batch``."""

    def no_more(self) -> None:
        """All batches are there, except for retries and parts of those that fail."""

    def part(self, patience_seconds: float = FAREWELL_SECONDS, look: Callable[[], object] = bool) -> str:
        """All is done: let programs that stay alive end; what they did then that speaks against them, in words.

        Args:
            look: Called now and then; what it raises ends them at once.
        """
