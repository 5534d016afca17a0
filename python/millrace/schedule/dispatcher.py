"""The tasks of all nodes at the coordinator, or those of a partition at its leader, and where they go. Pure.

What `Placement` decides, for tasks that carry something, may be out twice, and are told of once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, TypeVar

import msgspec

from millrace.ids import TaskId
from millrace.schedule.holders import Replicas
from millrace.schedule.locality import Homes
from millrace.schedule.placement import Placement, Send
from millrace.tasks import Task

#: The node that the coordinator is on.
COORDINATOR = 0

Load = TypeVar("Load")

#: Seconds between looks for tasks that take too long while slots are idle.
STRAGGLER_LOOK_SECONDS = 0.25


class _Out(msgspec.Struct, Generic[Load]):
    """A task that was submitted and has not come to its end."""

    load: Load
    fragment: int
    started: bool = False


class Dispatcher(Generic[Load]):
    """Sends tasks to nodes, and tells of each once.

    Whatever happens may send tasks to nodes: `take` them after each call.

    Args:
        fragments: Fragments of the database; 0: it is whole.
        placement: How tasks are placed, if not as usual.
    """

    def __init__(self, fragments: int = 0, placement: Placement | None = None) -> None:
        self._placement = placement or Placement()
        self._homes, self._fragments = Homes(fragments), fragments
        self._out: dict[TaskId, _Out[Load]] = {}
        self._sends: list[Send] = []
        self._last, self._looked = False, 0.0
        #: Whether storage holds the fragments, from which nodes read them.
        self._is_held = False

    def take(self) -> list[tuple[Send, Load]]:
        """What is to be sent now, and what it carries."""
        found = [(send, self._out[TaskId(send.task)].load) for send in self._sends]
        self._sends.clear()
        return found

    # Nodes

    def joined(self, node: int, slots: int, now: float, members: int = 1) -> None:
        """A node is there, or has another number of slots than before; see `Placement.node_joined`."""
        self._homes.joined(node, slots)
        self._note(self._placement.node_joined(node, slots, now, members))

    def lost(self, node: int, now: float) -> int:
        """A node is gone; return how many tasks of its own go to others."""
        self._homes.lost(node)
        back, sends = self._placement.node_lost(node, now)
        self._note(sends)
        return len(back)

    # Tasks

    def submit(self, task: Task, load: Load, units: float, now: float) -> None:
        """A task is to be done, of so many units of work; ``load`` is sent with it."""
        self._out[task.id] = _Out(load, task.fragment)
        fragment = task.fragment if task.fragment <= self._fragments else 0
        # What is no search reads some of all volumes, which the coordinator has more of than others.
        reads_far = self._is_held and not fragment
        prefer = (COORDINATOR,) if reads_far else self._homes.of(task.fragment)
        self._note(
            self._placement.task_ready(
                task.id, units, now, urgent=task.urgent, prefer=prefer, fragment=fragment, once=reads_far
            )
        )

    def started(self, task: TaskId) -> bool:
        """A slot has taken a task. Whether that is news."""
        out = self._out.get(task)
        if out is None or out.started:
            return False
        out.started = True
        return True

    def ended(self, node: int, task: TaskId, seconds: float, now: float, *, counts: bool) -> bool:
        """A task came to its end at a node; see `Placement.task_ended`. Whether it is the end of the task."""
        self._note(self._placement.task_ended(node, task, seconds, now, counts=counts))
        if task not in self._out or (not counts and self._placement.holders(task)):
            return False  # it has ended before, or another slot may do better
        del self._out[task]
        return True

    def came_back(self, node: int, task: TaskId, now: float) -> bool:
        """A node gives a task back that none of its slots had taken. Whether no other has it."""
        return self.ended(node, task, 0.0, now, counts=False)

    def withdraw(self) -> list[TaskId]:
        """Take back all tasks that are not sent; they are forgotten, and nothing is run twice any more."""
        self._last = False
        back = [TaskId(task) for task in self._placement.withdraw()]
        for task in back:
            del self._out[task]
        return back

    def no_more(self) -> None:
        """All tasks are there: from here on, what takes too long may be run twice."""
        self._last = True

    def look(self, now: float) -> None:
        """Send what waits for a choice, and what takes too long to idle slots too; to be called now and then.

        See `Placement.fill`, `Placement.straggling`.
        """
        if len(self._placement.local):
            self._note(self._placement.fill(now))
        if self._last and self._out and now - self._looked > STRAGGLER_LOOK_SECONDS:
            self._looked = now
            self._note(self._placement.straggling(now))

    # Fragments that storage of the nodes holds

    def hold(self, replicas: Mapping[int, Replicas]) -> None:
        """Nodes with a replica, by fragment, are these now: they search it, as far as that leaves no slot idle."""
        self._is_held = True
        self._placement.hold(replicas)

    @property
    def n_local(self) -> tuple[int, int]:
        """Searches of such fragments that were sent, and how many of them to nodes that hold the fragment."""
        local = self._placement.local
        return local.n_sent, local.n_local

    def _note(self, sends: list[Send]) -> None:
        for send in sends:
            if out := self._out.get(TaskId(send.task)):
                self._homes.sent(out.fragment, send.node)
                self._sends.append(send)
