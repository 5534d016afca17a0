"""Interface of the slots that run tasks, the lease of slots that several phases share, and the limits of a machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from millrace.core.tasks import SlotEvent, SlotsChanged, SlotTask, TaskEnded, TaskId, TaskStarted
from millrace.node.batch_files import SpooledBatch
from millrace.planning.dependency_files import DependencyFile, find_unserved_mount

if TYPE_CHECKING:
    from millrace.node.node_limits import FilesystemAbsence, MemoryLimiter

#: Seconds for a program that stays alive between tasks to exit at the end of a run; on several nodes, which wait for
#: each other, less.
FAREWELL_SECONDS, SHORT_FAREWELL_SECONDS = 60.0, 5.0


class Executor(Protocol):
    """What runs tasks on slots; no code that uses one knows which it is.

    There are three: the slots of this machine (``millrace.node.local_slots.LocalSlots``), of the processes of an MPI job
    (``millrace.cluster.remote_slots.RemoteSlots``), and of the workers of a Dask cluster
    (``millrace.cluster.dask.worker_slots.WorkerSlots``). What each owes (``tests/contract/test_executor_contract.py``):

    - A task that was submitted ends once: by ``TaskEnded``, by ``TaskWithdrawn``, or in the list of ``withdraw_tasks``.
      ``TaskStarted`` comes at most once, and before ``TaskEnded``.
    - When ``TaskEnded`` reports it as done, its blocks are in a journal that the coordinator can read.
    - A lost slot, node or worker is no failure of a task: the task runs elsewhere.
    - After ``withdraw_tasks`` and ``kill_all``, every other task ends soon.
    """

    #: Number of machines, each with its own page cache.
    n_nodes: int

    def wait_for_events(self, timeout_seconds: float) -> Sequence[SlotEvent]:
        """Wait for events, at most ``timeout_seconds``; return all that are there."""

    def submit_task(self, task: SlotTask, batch: SpooledBatch) -> None:
        """Queue a task; ``batch`` has the bytes of its records."""

    def withdraw_tasks(self) -> list[TaskId]:
        """Remove the tasks that no slot has started; return their ids. ``millrace.core.tasks.TaskWithdrawn`` may report more."""

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


class SlotLender(Protocol):
    """The owner of shared slots."""

    def lend(self, allow: Callable[[int], None]) -> None:
        """Have ``allow`` called, from any thread, with the number of slots to use when it changes; 0 before."""

    def report_demand(self, wanted: int, running: int) -> None:
        """Report the number of tasks that wait or run, and the number that run."""


class SlotLease:
    """The lease on the slots of a pool: as many as the lender and the memory allow.

    Args:
        allow: Sets the number of slots that the pool uses; ``ValueError`` if it is closed.
        slots: Slots of the pool.
    """

    def __init__(self, lender: SlotLender, allow: Callable[[int], None], slots: int) -> None:
        self._lender, self._allow = lender, allow
        self._by_memory, self._lent = slots, 0
        self._open: set[int] = set()
        self._running: set[int] = set()
        allow(0)
        lender.lend(self._limit_by_lender)

    def _limit_by_lender(self, slots: int) -> None:
        self._lent = slots
        with suppress(ValueError):  # the pool is closed, and no task runs
            self._allow(min(self._lent, self._by_memory))

    def limit_by_memory(self, slots: int) -> None:
        """Set the number of slots that the memory allows."""
        self._by_memory = slots
        self._allow(min(self._lent, self._by_memory))
        self._report_demand()

    def add_waiting_task(self, task: int) -> None:
        """Add a waiting task."""
        self._open.add(task)
        self._report_demand()

    def add_running_task(self, task: int) -> None:
        """Mark a task as running."""
        self._running.add(task)
        self._report_demand()

    def remove_tasks(self, tasks: list[int]) -> None:
        """Remove tasks that have ended or were withdrawn."""
        self._open.difference_update(tasks)
        self._running.difference_update(tasks)
        self._report_demand()

    def _report_demand(self) -> None:
        self._lender.report_demand(min(len(self._open), self._by_memory), len(self._running))


class SlotLimits:
    """What limits the slots of a machine during a run: the lender, memory, and filesystems that are not served.

    Args:
        allow: Sets the number of slots that the pool uses.
        slots: Slots of the pool.
        lender: Lender of the slots; None: they are this run's own.
        files: Files that the tools read; failures while the filesystem of one is not served are delayed.
    """

    def __init__(
        self, allow: Callable[[int], None], slots: int, lender: SlotLender | None, files: Sequence[DependencyFile]
    ) -> None:
        self._allow, self._slots = allow, slots
        #: Number of slots in use.
        self._allowed = slots
        self._lease = SlotLease(lender, allow, slots) if lender else None
        self._memory: MemoryLimiter | None = None
        self._messages: list[str] = []
        self._absence: FilesystemAbsence | None = None
        if any(file.mount for file in files):
            from millrace.node.node_limits import FilesystemAbsence  # few runs need it

            self._absence = FilesystemAbsence(lambda: find_unserved_mount(files), self._messages.append)

    def add_waiting_task(self, task: TaskId) -> None:
        """Add a task that waits for a slot."""
        if self._lease:
            self._lease.add_waiting_task(task)

    def remove_tasks(self, tasks: Sequence[TaskId]) -> None:
        """Remove tasks that were withdrawn."""
        if self._lease:
            self._lease.remove_tasks([*tasks])

    def stop_waiting(self) -> None:
        """Wait for no filesystem any more."""
        if self._absence:
            self._absence.stop_waiting()

    def filter_events(self, found: Sequence[SlotEvent], now: float) -> list[SlotEvent]:
        """Adapt the limits to events of the pool, and return the events to report at ``now``, in seconds."""
        ended = [news for news in found if isinstance(news, TaskEnded)]
        if self._lease:
            for news in found:
                if isinstance(news, TaskStarted):
                    self._lease.add_running_task(news.task)
            self._lease.remove_tasks([news.task for news in ended])
        changed = self._adapt_to_memory(ended)
        shown = self._absence.filter_events(found, now) if self._absence else found
        messages, self._messages[:] = [*self._messages], []
        return [*shown, *changed, *(SlotsChanged(self._allowed, text) for text in messages)]

    def _adapt_to_memory(self, ended: Sequence[TaskEnded]) -> list[SlotsChanged]:
        if not self._memory:
            if not any(news.out_of_memory for news in ended):
                return []
            from millrace.node.node_limits import MemoryLimiter  # as above

            self._memory = MemoryLimiter(self._lease.limit_by_memory if self._lease else self._allow, self._slots)
        changed = self._memory.adapt_slots(ended)
        self._allowed = changed[-1].slots if changed else self._allowed
        return changed
