"""Tasks that wait to be sent to a node, in the order in which nodes get them. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import msgspec


class PlacedTask(msgspec.Struct):
    """A task as far as its placement goes."""

    number: int
    #: Cost units, the same for all tasks.
    units: float
    #: Place in the order of arrival.
    serial: int
    #: Nodes where it is cheaper.
    prefer: tuple[int, ...] = ()
    #: Fragment of the database that it searches; 0: none.
    fragment: int = 0
    #: Never out twice.
    once: bool = False
    waiting: bool = False
    ended: bool = False
    #: Where it is out.
    nodes: list[int] = msgspec.field(default_factory=list)


class Waiting:
    """Urgent tasks first, then the oldest; a node finds those that prefer it without a look at all others."""

    def __init__(self) -> None:
        #: How many tasks wait.
        self.count = 0
        # Oldest first. What was taken out of one is skipped when it is met in another.
        self._urgent: deque[PlacedTask] = deque()
        self._plain: deque[PlacedTask] = deque()  # all that are not urgent
        self._free: deque[PlacedTask] = deque()  # of these, those without a living node that they prefer
        self._preferring: dict[int, deque[PlacedTask]] = {}  # of these, by node

    def node_joined(self, node: int) -> None:
        """Tasks may prefer ``node`` from now on."""
        self._preferring.setdefault(node, deque())

    def node_lost(self, node: int) -> None:
        """Free the tasks that prefer ``node`` and no other node that is there."""
        orphans = [task for task in self._preferring.pop(node) if task.waiting and not self._living(task)]
        if orphans:
            self._free = deque(sorted([*self._free, *orphans], key=lambda task: task.serial))

    def _living(self, task: PlacedTask) -> list[int]:
        return [node for node in task.prefer if node in self._preferring]

    def add(self, task: PlacedTask, *, urgent: bool) -> None:
        """A task is to wait."""
        task.waiting = True
        self.count += 1
        if urgent:
            self._urgent.append(task)
            return
        self._plain.append(task)
        living = self._living(task)
        for node in living:
            self._preferring[node].append(task)
        if not living:
            self._free.append(task)

    def put_back(self, tasks: Sequence[PlacedTask]) -> None:
        """Tasks that were sent wait again, before all others."""
        for task in reversed(tasks):
            task.waiting = True
            self._urgent.appendleft(task)
        self.count += len(tasks)

    def take(self, node: int, most_passed: int, *, idle: bool) -> PlacedTask | None:
        """Take the task that a node with room gets.

        Args:
            most_passed: A task is passed over by so many later ones at most.
            idle: A slot is idle there, which takes any task; else only what the node is preferred by or what is free.
        """
        task = self._choose(node, most_passed, idle=idle)
        if task is not None:
            task.waiting = False
            self.count -= 1
        return task

    def _choose(self, node: int, most_passed: int, *, idle: bool) -> PlacedTask | None:
        if (urgent := _head(self._urgent)) is not None:
            self._urgent.popleft()
            return urgent
        oldest = _head(self._plain)
        for queue in (self._preferring[node], self._free):
            task = _head(queue)
            if task is not None and oldest is not None and task.serial - oldest.serial <= most_passed:
                return task
        return oldest if idle else None

    def clear(self) -> None:
        """Forget all."""
        self.count = 0
        for queue in (self._urgent, self._plain, self._free, *self._preferring.values()):
            queue.clear()


def _head(queue: deque[PlacedTask]) -> PlacedTask | None:
    """The oldest task of a queue that still waits."""
    while queue and not queue[0].waiting:
        queue.popleft()
    return queue[0] if queue else None
