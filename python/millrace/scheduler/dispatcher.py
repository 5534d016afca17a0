"""Dispatch of tasks to nodes: of a whole run at the coordinator, or of a partition at its leader. Pure.

It adds payloads to the decisions of ``TaskPlacement``, and reports each task once although two copies of it may be out.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Generic, TypeVar

import msgspec

from millrace.core.tasks import SlotTask, TaskId
from millrace.scheduler.fragment_holders import FragmentAffinity, FragmentReplicas
from millrace.scheduler.placement import SendTask, TaskPlacement

#: Node of the coordinator.
COORDINATOR = 0

Load = TypeVar("Load")

#: Interval between checks for stragglers while slots are idle.
STRAGGLER_INTERVAL_SECONDS = 0.25


class _SubmittedTask(msgspec.Struct, Generic[Load]):
    """A task that was submitted and has not ended."""

    load: Load
    fragment: int
    started: bool = False


class TaskDispatcher(Generic[Load]):
    """Sends tasks to nodes, and reports the end of each once.

    Every method may decide that tasks are sent: call ``pop_sends`` after each call.

    Args:
        fragments: Number of fragments of the database; 0: it is whole.
        placement: Placement to use instead of a new one.
        max_copies: Maximum number of nodes that fetch a fragment; 0: any number.
    """

    def __init__(self, fragments: int = 0, placement: TaskPlacement | None = None, max_copies: int = 0) -> None:
        self._placement = placement or TaskPlacement()
        self._homes, self._fragments = FragmentAffinity(fragments), fragments
        self._out: dict[TaskId, _SubmittedTask[Load]] = {}
        self._sends: list[SendTask] = []
        self._last, self._looked = False, 0.0
        #: Whether storage holds the fragments, from which nodes read them.
        self._is_held = False
        if max_copies:
            self._placement.local.holders.max_copies = max_copies
            self.set_replicas(dict.fromkeys(range(1, fragments + 1), ()))

    def pop_sends(self) -> list[tuple[SendTask, Load]]:
        """Return the sends decided since the last call, each with its payload."""
        found = [(send, self._out[TaskId(send.task)].load) for send in self._sends]
        self._sends.clear()
        return found

    # Nodes

    def add_node(self, node: int, slots: int, now: float, members: int = 1) -> None:
        """Add a node, or change its number of slots; see ``TaskPlacement.add_node``."""
        self._homes.add_node(node, slots)
        self._record_sends(self._placement.add_node(node, slots, now, members))

    def remove_node(self, node: int, now: float) -> int:
        """Remove a lost node; return the number of its tasks that are reassigned."""
        self._homes.remove_node(node)
        back, sends = self._placement.remove_node(node, now)
        self._record_sends(sends)
        return len(back)

    # Tasks

    def submit_task(self, task: SlotTask, load: Load, units: float, now: float, piece: int = 0) -> None:
        """Submit a task of ``units`` cost units; ``load`` is the payload sent with it, ``piece`` that of the input that it reads."""
        self._out[task.id] = _SubmittedTask(load, task.fragment)
        fragment = piece or (task.fragment if task.fragment <= self._fragments else 0)
        # A task that is no search reads parts of all volumes, of which the coordinator holds more than other nodes.
        reads_far = self._is_held and not fragment
        prefer = (COORDINATOR,) if reads_far else self._homes.get_home_nodes(task.fragment)
        self._record_sends(
            self._placement.add_task(
                task.id, units, now, urgent=task.urgent, prefer=prefer, fragment=fragment, once=reads_far
            )
        )

    def get_load(self, task: TaskId) -> Load | None:
        """Return the payload of a task that has not ended; else None."""
        return self._out[task].load if task in self._out else None

    def mark_started(self, task: TaskId) -> bool:
        """Note that a slot has started a task; return whether this is the first report."""
        out = self._out.get(task)
        if out is None or out.started:
            return False
        out.started = True
        return True

    def mark_ended(self, node: int, task: TaskId, seconds: float, now: float, *, counts: bool) -> bool:
        """Note the end of a task at a node; return whether the task has ended. See ``TaskPlacement.end_task``."""
        self._record_sends(self._placement.end_task(node, task, seconds, now, counts=counts))
        if task not in self._out or (not counts and self._placement.get_task_nodes(task)):
            return False  # an earlier copy has ended, or another slot may succeed
        del self._out[task]
        return True

    def mark_returned(self, node: int, task: TaskId, now: float) -> bool:
        """Note that a node returned a task that none of its slots had started; return whether no other has it."""
        return self.mark_ended(node, task, 0.0, now, counts=False)

    def withdraw_tasks(self) -> list[TaskId]:
        """Forget all tasks that are not sent and return them; nothing is run twice from now on."""
        self._last = False
        back = [TaskId(task) for task in self._placement.withdraw_tasks()]
        for task in back:
            del self._out[task]
        return back

    def end_submission(self) -> None:
        """Note that all batches are submitted: from now on, stragglers may be duplicated, and few tasks wait at nodes."""
        self._last = True
        self._placement.end_input()

    def send_waiting(self, now: float) -> None:
        """Send tasks that waited for a choice, and copies of stragglers to idle slots. Call it regularly.

        See ``TaskPlacement.fill_nodes``, ``TaskPlacement.duplicate_stragglers``.
        """
        if len(self._placement.local):
            self._record_sends(self._placement.fill_nodes(now))
        if self._last and self._out and now - self._looked > STRAGGLER_INTERVAL_SECONDS:
            self._looked = now
            self._record_sends(self._placement.duplicate_stragglers(now))

    # Fragments held by the nodes' storage

    def set_replicas(self, replicas: Mapping[int, FragmentReplicas]) -> None:
        """Set the nodes with a replica, by fragment: they search it as far as that leaves no slot idle."""
        self._is_held = self._fragments > 0
        self._placement.set_replicas(replicas)

    def set_pieces(self) -> None:
        """Take the pieces of an input for fragments; see ``LocalSearchQueue.set_pieces``."""
        self._placement.local.set_pieces()

    def reserve_nodes(self, nodes: Collection[int]) -> None:
        """Keep nodes for what they hold: they are about to know more of it."""
        self._placement.local.reserved = nodes

    @property
    def n_local(self) -> tuple[int, int]:
        """Number of searches of such fragments that were sent, and how many of them to nodes that hold theirs."""
        local = self._placement.local
        return local.n_sent, local.n_local

    def _record_sends(self, sends: list[SendTask]) -> None:
        for send in sends:
            if out := self._out.get(TaskId(send.task)):
                self._homes.record_search(out.fragment, send.node)
                self._sends.append(send)
