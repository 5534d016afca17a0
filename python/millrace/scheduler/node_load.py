"""The load and speed of each node, and the number of tasks that it is sent. Pure; times are seconds."""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence

import msgspec

#: Maximum number of tasks that wait at a node, for each of its slots.
MAX_AHEAD_PER_SLOT = 4

#: Once all of the input was cut, no task waits at a node if its slots would wait this share of their time for messages: a
#: task that waits behind a long one while other slots are idle costs more.
MAX_MESSAGE_SHARE = 0.005

#: Weight of older observations when a new one is measured.
MEMORY = 0.9

#: Measured speeds are limited to this factor of the mean: records differ, and costly ones may come in a row.
MAX_SPEED_FACTOR = 8.0


class DecayingMean(msgspec.Struct):
    """Mean with forgetting of units, seconds and tasks; its first values count in full."""

    units: float = 0.0
    seconds: float = 0.0
    tasks: float = 0.0

    def add_task(self, units: float, seconds: float) -> None:
        """Add the time of one task."""
        self.units = MEMORY * self.units + units
        self.seconds = MEMORY * self.seconds + seconds
        self.tasks = MEMORY * self.tasks + 1.0

    @property
    def task_seconds(self) -> float:
        """Mean time of a task; 0: unknown."""
        return self.seconds / self.tasks if self.tasks else 0.0


class NodeLoad(msgspec.Struct):
    """A node and the tasks that were sent to it."""

    slots: int
    #: Number of nodes that it stands for, if it is a partition.
    members: int = 1
    #: Tasks that have a slot there, as far as known: start time, and whether the slot was idle before.
    running: dict[int, tuple[float, bool]] = msgspec.field(default_factory=dict)
    #: Tasks that wait there, oldest first.
    queued: dict[int, None] = msgspec.field(default_factory=dict)
    measured: DecayingMean = msgspec.field(default_factory=DecayingMean)
    #: Seconds from the end of a task to the start of the next; 0: not measured.
    latency: float = 0.0
    #: Maximum number of tasks that it is sent.
    depth: int = 0
    #: Number of this node's valid entry in ``FreeNodeQueue``.
    stamp: int = 0

    @property
    def n_tasks(self) -> int:
        """Number of tasks at the node."""
        return len(self.running) + len(self.queued)

    @property
    def n_idle(self) -> int:
        """Number of slots without a task."""
        return max(self.slots - len(self.running), 0)

    def add_task(self, task: int, now: float) -> None:
        """Add a task that is sent to the node."""
        if len(self.running) < self.slots:
            self.running[task] = (now, True)
        else:
            self.queued[task] = None

    def remove_task(self, task: int, now: float) -> float | None:
        """Remove a task that has ended; return its send time if it was sent to an idle slot."""
        since, found_idle = self.running.pop(task, (0.0, False))
        if self.queued:
            self.queued.pop(task, None)
            self.start_queued(now)
        return since if found_idle else None

    def start_queued(self, now: float) -> None:
        """Move waiting tasks to free slots."""
        while self.queued and len(self.running) < self.slots:
            following = next(iter(self.queued))
            del self.queued[following]
            self.running[following] = (now, False)


class NodeSpeeds:
    """Speeds of the nodes, measured from the tasks that end.

    Args:
        latency_seconds: First guess of the time from the end of a task to the start of the next one that was not
            waiting at the node; replaced by measurement.
        most_ahead: Maximum number of tasks that wait at a node, for each of its slots; 0: no prefetch.
    """

    def __init__(self, latency_seconds: float, most_ahead: int) -> None:
        self._latency_seconds, self._most_ahead = latency_seconds, most_ahead
        self._all = DecayingMean()
        #: Whether all of the input was cut.
        self.is_end = False

    @property
    def is_known(self) -> bool:
        """Whether any task has ended."""
        return self._all.units > 0

    def observe_task(self, node: NodeLoad, units: float, seconds: float, delay: float | None) -> None:
        """Learn from a task of ``units``; ``delay``: seconds beyond its run time, if it was sent to an idle slot."""
        for mean in (node.measured, self._all):
            mean.add_task(units, max(seconds, 1e-6))
        if delay is not None:
            node.latency = MEMORY * node.latency + (1 - MEMORY) * delay if node.latency else delay
        node.depth = self.compute_depth(node)

    def get_latency(self, node: NodeLoad) -> float:
        """Return the seconds from the end of a task there to the start of a next one that must be sent first."""
        return node.latency or self._latency_seconds

    def get_rate(self, node: NodeLoad) -> float:
        """Return the units per second of one slot; 1 while nothing is measured."""
        if not self._all.units:
            return 1.0
        mean = self._all.units / self._all.seconds
        own = node.measured.units / node.measured.seconds if node.measured.units else mean
        return min(max(own, mean / MAX_SPEED_FACTOR), mean * MAX_SPEED_FACTOR)

    def compute_depth(self, node: NodeLoad) -> int:
        """Return the maximum number of tasks for a node: its slots, and those that end while a message travels."""
        latency = self.get_latency(node)
        task_seconds = node.measured.task_seconds or self._all.task_seconds
        # As many end within the delay on average; three standard deviations more, as if ends came at random.
        ends = node.slots * latency / task_seconds if task_seconds else 0.0
        if self.is_end and 0.0 < ends <= MAX_MESSAGE_SHARE * node.slots:
            return node.slots
        ahead = max(math.ceil(ends + 3 * math.sqrt(ends)), node.members) if latency else 0
        return node.slots + min(ahead, self._most_ahead * node.slots)

    def estimate_remaining(self, node: NodeLoad, task: int, units: float, now: float) -> float:
        """Estimate the seconds until a running task ends; for an overdue one, its run time so far."""
        whole = units / self.get_rate(node)
        age = now - node.running[task][0]
        return whole - age if age < whole else age


class FreeNodeQueue:
    """Priority queue of the nodes with room for a task, the least loaded first."""

    def __init__(self, nodes: Mapping[int, NodeLoad], speeds: NodeSpeeds) -> None:
        self._nodes, self._speeds = nodes, speeds
        #: (no idle slot, load, node, stamp). An entry is valid if its stamp is the node's.
        self._heap: list[tuple[bool, float, int, int]] = []

    def get_best_node(self) -> int | None:
        """Return the least loaded node, or None."""
        while self._heap:
            _, _, node, stamp = self._heap[0]
            if self._is_current_entry(node, stamp):
                return node
            heapq.heappop(self._heap)
        return None

    def choose_node(self, prefer: Sequence[int], *, urgent: bool) -> int | None:
        """Return the node to which a new task goes at once, if any.

        Args:
            prefer: Nodes where the task costs less.
        """
        best = self.get_best_node()
        if best is None:
            return None
        living = [node for node in prefer if node in self._nodes]
        roomy = [node for node in living if self._nodes[node].n_tasks < self._nodes[node].depth]
        if roomy:
            preferred = min(roomy, key=self.get_sort_key)
            if self._nodes[preferred].n_idle or not self._nodes[best].n_idle:
                return preferred
        if urgent or self._nodes[best].n_idle or not living:
            return best
        return None  # no slot is idle, and its preferred nodes will soon have room

    def get_sort_key(self, node: int) -> tuple[bool, float, int]:
        """Return the sort key of a node: nodes receive tasks in this order."""
        item = self._nodes[node]
        return (not item.n_idle, item.n_tasks / (item.slots * self._speeds.get_rate(item)), node)

    def update_node(self, node: int) -> None:
        """Update the entry of ``node`` after its load has changed."""
        item = self._nodes[node]
        item.stamp += 1
        if item.n_tasks >= item.depth:
            return
        heapq.heappush(self._heap, (*self.get_sort_key(node), item.stamp))
        if len(self._heap) > 4 * len(self._nodes) + 64:
            self._heap = [entry for entry in self._heap if self._is_current_entry(entry[2], entry[3])]
            heapq.heapify(self._heap)

    def _is_current_entry(self, node: int, stamp: int) -> bool:
        return node in self._nodes and self._nodes[node].stamp == stamp
