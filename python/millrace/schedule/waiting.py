"""Queue of the tasks that wait to be sent to a node. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import msgspec


class PlacedTask(msgspec.Struct):
    """A task as far as its placement is concerned."""

    number: int
    #: Cost units, the same unit for all tasks.
    units: float
    #: Position in the order of arrival.
    serial: int
    #: Nodes where it costs less.
    prefer: tuple[int, ...] = ()
    #: Fragment of the database that it searches; 0: none.
    fragment: int = 0
    #: Must never be duplicated.
    once: bool = False
    waiting: bool = False
    ended: bool = False
    #: Nodes that it was sent to.
    nodes: list[int] = msgspec.field(default_factory=list)


class WaitingTasks:
    """Urgent tasks first, then the oldest; each node finds its preferred tasks without a scan of all others."""

    def __init__(self) -> None:
        #: Number of waiting tasks.
        self.count = 0
        # Oldest first. A task that was removed from one queue is skipped when it is met in another.
        self._urgent: deque[PlacedTask] = deque()
        self._plain: deque[PlacedTask] = deque()  # all that are not urgent
        self._free: deque[PlacedTask] = deque()  # of these, those that no live node prefers
        self._preferring: dict[int, deque[PlacedTask]] = {}  # of these, by preferred node

    def add_node(self, node: int) -> None:
        """Add a node, which tasks may prefer from now on."""
        self._preferring.setdefault(node, deque())

    def remove_node(self, node: int) -> None:
        """Remove a node, and free the tasks that prefer it and no other live node."""
        orphans = [task for task in self._preferring.pop(node) if task.waiting and not self._list_living_nodes(task)]
        if orphans:
            self._free = deque(sorted([*self._free, *orphans], key=lambda task: task.serial))

    def _list_living_nodes(self, task: PlacedTask) -> list[int]:
        return [node for node in task.prefer if node in self._preferring]

    def add_task(self, task: PlacedTask, *, urgent: bool) -> None:
        """Queue a task."""
        task.waiting = True
        self.count += 1
        if urgent:
            self._urgent.append(task)
            return
        self._plain.append(task)
        living = self._list_living_nodes(task)
        for node in living:
            self._preferring[node].append(task)
        if not living:
            self._free.append(task)

    def return_tasks(self, tasks: Sequence[PlacedTask]) -> None:
        """Return sent tasks to the queue, before all others."""
        for task in reversed(tasks):
            task.waiting = True
            self._urgent.appendleft(task)
        self.count += len(tasks)

    def pop_task(self, node: int, most_passed: int, *, idle: bool) -> PlacedTask | None:
        """Remove and return the task for a node with room, or None.

        Args:
            most_passed: Maximum number of later tasks that may pass a task.
            idle: A slot is idle there, which takes any task; else only a task that prefers the node, or that is free.
        """
        task = self._choose_task(node, most_passed, idle=idle)
        if task is not None:
            task.waiting = False
            self.count -= 1
        return task

    def _choose_task(self, node: int, most_passed: int, *, idle: bool) -> PlacedTask | None:
        if (urgent := _peek_waiting(self._urgent)) is not None:
            self._urgent.popleft()
            return urgent
        oldest = _peek_waiting(self._plain)
        for queue in (self._preferring[node], self._free):
            task = _peek_waiting(queue)
            if task is not None and oldest is not None and task.serial - oldest.serial <= most_passed:
                return task
        return oldest if idle else None

    def clear(self) -> None:
        """Remove all tasks."""
        self.count = 0
        for queue in (self._urgent, self._plain, self._free, *self._preferring.values()):
            queue.clear()


def _peek_waiting(queue: deque[PlacedTask]) -> PlacedTask | None:
    """Return the oldest task of a queue that still waits."""
    while queue and not queue[0].waiting:
        queue.popleft()
    return queue[0] if queue else None
