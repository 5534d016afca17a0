"""Interface of the slots that run tasks, for the engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from millrace.ids import TaskId
from millrace.node.batch import SpooledBatch
from millrace.tasks import SlotEvent, SlotTask

#: Seconds for a program that stays alive between tasks to exit at the end of a run; on several nodes, which wait for
#: each other, less.
FAREWELL_SECONDS, SHORT_FAREWELL_SECONDS = 60.0, 5.0


class TaskSlots(Protocol):
    """Slots of this machine (``millrace.node.agent.LocalSlots``) or of several."""

    #: Number of machines, each with its own page cache.
    n_nodes: int

    def wait_for_events(self, timeout_seconds: float) -> Sequence[SlotEvent]:
        """Wait for events, at most ``timeout_seconds``; return all that are there."""

    def submit_task(self, task: SlotTask, batch: SpooledBatch) -> None:
        """Queue a task; ``batch`` has the bytes of its records."""

    def withdraw_tasks(self) -> list[TaskId]:
        """Remove the tasks that no slot has started; return their ids. ``millrace.tasks.TaskWithdrawn`` may report more."""

    def kill_all(self) -> None:
        """Kill the running tools."""

    def build_argv(self, batch: SpooledBatch) -> list[bytes]:
        """Return the tool's arguments for ``batch``."""

    def end_input(self) -> None:
        """Announce that all batches were submitted, except for retries and parts of failed ones."""

    def end_served_programs(self, patience_seconds: float = FAREWELL_SECONDS, look: Callable[[], object] = bool) -> str:
        """Let programs that stay alive between tasks end, after all tasks; return an error of one, in words.

        Args:
            look: Called at intervals; an exception from it kills the programs.
        """
