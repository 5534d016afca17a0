"""Interface of the slots that run tasks, for the engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from millrace.ids import TaskId
from millrace.node.batch import Batch
from millrace.tasks import News, Task

#: Seconds for a program that stays alive between tasks to exit at the end of a run; on several nodes, which wait for
#: each other, less.
FAREWELL_SECONDS, SHORT_FAREWELL_SECONDS = 60.0, 5.0


class Slots(Protocol):
    """Slots of this machine (``millrace.node.agent.Node``) or of several."""

    #: Number of machines, each with its own page cache.
    n_nodes: int

    def events(self, timeout_seconds: float) -> Sequence[News]:
        """Wait for events, at most ``timeout_seconds``; return all that are there."""

    def submit(self, task: Task, batch: Batch) -> None:
        """Queue a task; ``batch`` has the bytes of its records."""

    def withdraw(self) -> list[TaskId]:
        """Remove the tasks that no slot has started; return their ids. ``millrace.tasks.Withdrawn`` may report more."""

    def kill_all(self) -> None:
        """Kill the running tools."""

    def argv(self, batch: Batch) -> list[bytes]:
        """Return the tool's arguments for ``batch``."""

    def no_more(self) -> None:
        """Announce that all batches were submitted, except for retries and parts of failed ones."""

    def part(self, patience_seconds: float = FAREWELL_SECONDS, look: Callable[[], object] = bool) -> str:
        """Let programs that stay alive between tasks end, after all tasks; return an error of one, in words.

        Args:
            look: Called at intervals; an exception from it kills the programs.
        """
