"""Placement of tasks on nodes: over partitions at the root, and over nodes in a partition.

The same class places over partitions at the root, and over nodes in each partition.

Pure: events come in with their time, sends go out. Times are seconds on any one clock.

A node is sent as many tasks as it has slots, and as many more as end while a message travels, so that no slot waits
for the network. Task times and the delay of messages are measured from the replies.

Usage: carry out every ``SendTask`` in the order given, and report every end. A task may be out twice (a duplicate
near the end); its first end counts. Call ``TaskPlacement.duplicate_stragglers`` regularly once no more tasks will
come.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from millrace.scheduler import waiting_tasks
from millrace.scheduler.fragment_holders import FragmentReplicas
from millrace.scheduler.node_load import MAX_AHEAD_PER_SLOT, FreeNodeQueue, NodeLoad, NodeSpeeds
from millrace.scheduler.waiting_tasks import LocalSearchQueue, PlacedTask, WaitingTasks

#: Up to this many nodes communicate with the coordinator directly; more form partitions.
MAX_FLAT_NODES = 256

#: Nodes of a partition if the user sets no number.
MIN_PARTITION_NODES, MAX_PARTITION_NODES = 64, 128


def divide_into_partitions(nodes: int, size: int | None = None) -> list[range]:
    """Divide nodes into partitions of consecutive nodes, whose sizes differ by one at most.

    The first node of each leads it. With one partition there is no level between coordinator and nodes.

    Args:
        nodes: Number of nodes, which are numbered from 0.
        size: Maximum number of nodes of a partition, set by the user; None: no partitions up to ``MAX_FLAT_NODES`` nodes,
            then as many nodes in each as there are partitions, within ``MIN_PARTITION_NODES`` and ``MAX_PARTITION_NODES``, so that no
            process communicates with many others.

    Raises:
        ValueError: ``nodes`` or ``size`` is below 1.

    >>> divide_into_partitions(100)
    [range(0, 100)]
    >>> [len(part) for part in divide_into_partitions(1024)][:3]
    [64, 64, 64]
    >>> divide_into_partitions(5, 2)
    [range(0, 1), range(1, 3), range(3, 5)]
    """
    if nodes < 1 or (size is not None and size < 1):
        raise ValueError(f"{nodes} nodes, partitions of {size}")
    if size is None:
        size = (
            nodes
            if nodes <= MAX_FLAT_NODES
            else min(max(math.isqrt(nodes - 1) + 1, MIN_PARTITION_NODES), MAX_PARTITION_NODES)
        )
    parts = math.ceil(nodes / size)
    return [range(part * nodes // parts, (part + 1) * nodes // parts) for part in range(parts)]


def choose_routes(nodes: int, size: int | None = None) -> dict[int, int]:
    """Return the node by which the coordinator, node 0, reaches each other node: itself or its partition's leader.

    The coordinator leads the first partition, so it reaches these nodes directly.

    >>> choose_routes(7, 3)
    {1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4}
    """
    found = {}
    for part in divide_into_partitions(nodes, size):
        for node in part:
            if node:
                found[node] = part.start or node
    return found


class SendTask(NamedTuple):
    """Send ``task`` to ``node``; ``duplicate``: another node has it too, and the first end counts."""

    node: int
    task: int
    duplicate: bool = False


class TaskPlacement:
    """Places tasks on nodes.

    While a task waits, no slot is idle, and urgent tasks go first. A task goes to a node that it prefers when that
    leaves no slot idle, and at most as many later tasks pass it as there are slots. Searches of fragments with known
    holders (``set_replicas``) wait for ``fill_nodes``, so that each node can choose among all of them.

    Args:
        latency_seconds: See ``NodeSpeeds``.
        most_ahead: See ``NodeSpeeds``.
    """

    def __init__(self, latency_seconds: float = 0.005, most_ahead: int = MAX_AHEAD_PER_SLOT) -> None:
        self._nodes: dict[int, NodeLoad] = {}
        self._tasks: dict[int, PlacedTask] = {}
        self._slots, self._serial = 0, 0
        self._waiting = WaitingTasks()
        #: Searches of fragments with known holders.
        self.local = LocalSearchQueue()
        self._speeds = NodeSpeeds(latency_seconds, most_ahead)
        self._room = FreeNodeQueue(self._nodes, self._speeds)

    # State

    @property
    def n_waiting(self) -> int:
        """Number of tasks that are not sent."""
        return self._waiting.count + len(self.local)

    @property
    def n_slots(self) -> int:
        """Number of slots of all nodes."""
        return self._slots

    def get_depth(self, node: int) -> int:
        """Return the maximum number of tasks that ``node`` is sent."""
        return self._nodes[node].depth

    def is_task_open(self, task: int) -> bool:
        """Tell whether ``task`` waits or is out, and has not ended anywhere."""
        return task in self._tasks and not self._tasks[task].ended

    def get_task_nodes(self, task: int) -> tuple[int, ...]:
        """Return the nodes that have ``task``, also after its first end."""
        return tuple(self._tasks[task].nodes) if task in self._tasks else ()

    # Nodes

    def add_node(self, node: int, slots: int, now: float, members: int = 1) -> list[SendTask]:
        """Add a node, or change its number of slots.

        Args:
            members: Number of nodes that it stands for, if it is a partition; each of them gets a task ahead.

        Raises:
            ValueError: ``slots`` is below 1.
        """
        if slots < 1:
            raise ValueError(f"node {node} has {slots} slots")
        item = self._nodes.setdefault(node, NodeLoad(slots))
        self._waiting.add_node(node)
        self.local.holders.add_node(node)
        item.slots, item.members = slots, members
        item.start_queued(now)
        self._slots = sum(other.slots for other in self._nodes.values())
        item.depth = self._speeds.compute_depth(item)
        return self._fill_node(node, now)

    def remove_node(self, node: int, now: float) -> tuple[list[int], list[SendTask]]:
        """Remove a lost node.

        Returns:
            Tasks that only this node had, which wait again, before all others; and the sends.
        """
        item = self._nodes.pop(node, None)
        if item is None:
            return [], []
        self._slots -= item.slots
        self._waiting.remove_node(node)
        self.local.holders.remove_node(node)
        back = []
        for number in (*item.running, *item.queued):
            task = self._tasks[number]
            task.nodes.remove(node)
            if task.ended:
                self._forget_task(task)
            elif not task.nodes:
                back.append(task)
        self._return_tasks(back)
        return [task.number for task in back], self.fill_nodes(now)

    def _return_tasks(self, tasks: Sequence[PlacedTask]) -> None:
        """Return tasks of a lost node to the queues, before all others; searches wait for nodes that may fetch them."""
        bounded = [task for task in tasks if self.local.holders.max_copies and self._is_local(task)]
        self.local.return_searches(bounded)
        self._waiting.return_tasks([task for task in tasks if task not in bounded])

    def _is_local(self, task: PlacedTask) -> bool:
        """Tell whether a task searches a fragment with known holders."""
        return self.local.holders.is_known(task.fragment)

    def fill_nodes(self, now: float) -> list[SendTask]:
        """Send waiting tasks to nodes that have room."""
        sends: list[SendTask] = []
        # One at a time: a whole queue for one node would leave slots of others idle.
        while (best := self._room.get_best_node()) is not None and (sent := self._fill_node(best, now, most=1)):
            sends.extend(sent)
        # The node with most room may take none of the rest, while the next one may.
        for node in sorted(self._nodes, key=self._room.get_sort_key) if len(self.local) else ():
            sends += self._fill_node(node, now)
        return sends

    def set_replicas(self, replicas: Mapping[int, FragmentReplicas]) -> None:
        """Set the nodes with a replica, by fragment."""
        self.local.set_replicas(replicas)

    # Tasks

    def add_task(
        self,
        task: int,
        units: float,
        now: float,
        *,
        urgent: bool = False,
        prefer: Sequence[int] = (),
        fragment: int = 0,
        once: bool = False,
    ) -> list[SendTask]:
        """Add a task: it is sent at once if there is room, else when there is.

        Args:
            task: Its number; no other task ever had it.
            units: Cost units, the same unit for all tasks (see ``CostHint.unit``).
            urgent: Goes before all that is not urgent.
            prefer: Nodes where it costs less, such as those that hold its database fragment.
            fragment: Fragment that it searches. If its holders are known, it waits for the next ``fill_nodes``; else 0.
            once: It is not duplicated, however long it takes.

        Raises:
            ValueError: The task is known already.
        """
        if task in self._tasks:
            raise ValueError(f"task {task} is known already")
        self._serial += 1
        item = self._tasks[task] = PlacedTask(task, max(units, 0.0), self._serial, tuple(prefer), fragment, once)
        if self._is_local(item) and (not urgent or self.local.holders.max_copies):
            item.waiting = True
            self.local.add_search(item)
            return []
        node = self._room.choose_node(item.prefer, urgent=urgent)
        if node is None:
            self._waiting.add_task(item, urgent=urgent)
            return []
        return [self._send_task(node, item, now)]

    def end_task(self, node: int, task: int, seconds: float, now: float, *, counts: bool = True) -> list[SendTask]:
        """Note that a task ended at a node, well or not; the end at a node that was lost changes nothing.

        Args:
            seconds: Wall time of its run there; 0: it did not run, so nothing is measured.
            counts: False: it gave no result, so another copy of it is awaited.
        """
        item = self._nodes.get(node)
        if item is None or not (task in item.running or task in item.queued):
            return []
        sent = item.remove_task(task, now)
        known = self._tasks[task]
        known.nodes.remove(node)
        known.ended = known.ended or counts or not known.nodes
        self._forget_task(known)
        if seconds > 0:
            delay = None if sent is None else max(now - sent - seconds, 0.0)
            self._speeds.observe_task(item, known.units, seconds, delay)
        return self._fill_node(node, now)

    def end_input(self) -> None:
        """Note that all of the input was cut: tasks wait at nodes only where they are short (``NodeSpeeds``)."""
        self._speeds.is_end = True
        for number, item in self._nodes.items():
            item.depth = self._speeds.compute_depth(item)
            self._room.update_node(number)

    def withdraw_tasks(self) -> list[int]:
        """Forget all tasks that are not sent, and return them."""
        waiting = [task.number for task in self._tasks.values() if task.waiting]
        for number in waiting:
            del self._tasks[number]
        self._waiting.clear()
        self.local.clear()
        return waiting

    def duplicate_stragglers(self, now: float) -> list[SendTask]:
        """Duplicate tasks on idle slots where that likely ends sooner. Call it only when no more tasks will come."""
        if self.n_waiting or not self._speeds.is_known:
            return []
        return [
            self._send_task(node, task, now)
            for node, task in waiting_tasks.choose_copies(
                self._nodes, self._tasks, self._speeds, self.local.holders, now
            )
        ]

    # Sends

    def _fill_node(self, node: int, now: float, most: int = 0) -> list[SendTask]:
        """Send waiting tasks to a node until it has enough, or ``most`` tasks."""
        item = self._nodes[node]
        sends: list[SendTask] = []
        while item.n_tasks < item.depth and (not most or len(sends) < most):
            task = self._choose_task(node, idle=item.n_idle > 0)
            if task is None:
                break
            sends.append(self._record_send(node, task, now))
        self._room.update_node(node)
        return sends

    def _choose_task(self, node: int, *, idle: bool) -> PlacedTask | None:
        """Remove and return the next task for a node with room."""
        if self._waiting.count and (task := self._waiting.pop_task(node, self._slots, idle=idle)):
            return task
        local = self.local.pop_search(node, idle=idle) if len(self.local) else None
        if local:
            local.waiting = False
        return local

    def _send_task(self, node: int, task: PlacedTask, now: float) -> SendTask:
        sent = self._record_send(node, task, now)
        self._room.update_node(node)
        return sent

    def _record_send(self, node: int, task: PlacedTask, now: float) -> SendTask:
        self._nodes[node].add_task(task.number, now)
        task.nodes.append(node)
        if task.fragment:
            self.local.record_send(task.fragment, node)
        return SendTask(node, task.number, duplicate=len(task.nodes) > 1)

    def _forget_task(self, task: PlacedTask) -> None:
        if task.ended and not task.nodes:
            del self._tasks[task.number]
