"""What each node has to do, how fast it does it, and how many tasks it is sent therefore. Pure; times are seconds."""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping

import msgspec

#: Tasks that wait at a node beyond its slots, at most so many for each slot.
MOST_AHEAD = 4

#: Weight that an older observation keeps when a new one comes.
MEMORY = 0.9

#: Measured speeds of nodes count within this factor of the mean: records differ too, and may have come in a row.
FASTEST = 8.0


class Mean(msgspec.Struct):
    """Mean with forgetting of units, seconds and tasks; its first values count in full."""

    units: float = 0.0
    seconds: float = 0.0
    tasks: float = 0.0

    def add(self, units: float, seconds: float) -> None:
        """A task took so long."""
        self.units = MEMORY * self.units + units
        self.seconds = MEMORY * self.seconds + seconds
        self.tasks = MEMORY * self.tasks + 1.0

    @property
    def task_seconds(self) -> float:
        """Mean time of a task; 0 if nothing is known."""
        return self.seconds / self.tasks if self.tasks else 0.0


class NodeLoad(msgspec.Struct):
    """A node and the tasks that are out there."""

    slots: int
    #: Nodes that it stands for, if it is a partition.
    members: int = 1
    #: Tasks that have a slot there, as far as known: since when, and whether the slot was idle before.
    running: dict[int, tuple[float, bool]] = msgspec.field(default_factory=dict)
    #: Tasks that wait there, oldest first.
    queued: dict[int, None] = msgspec.field(default_factory=dict)
    measured: Mean = msgspec.field(default_factory=Mean)
    #: Seconds from the end of a task to the start of the next; 0: not measured.
    latency: float = 0.0
    #: Tasks that it is sent at most.
    depth: int = 0
    #: Number of the valid entry of this node among those with room.
    stamp: int = 0

    @property
    def out(self) -> int:
        """Tasks that it has."""
        return len(self.running) + len(self.queued)

    @property
    def idle(self) -> int:
        """Slots without a task."""
        return max(self.slots - len(self.running), 0)

    def take(self, task: int, now: float) -> None:
        """A task is sent there."""
        if len(self.running) < self.slots:
            self.running[task] = (now, True)
        else:
            self.queued[task] = None

    def give(self, task: int, now: float) -> float | None:
        """A task has ended; return when it was sent, if it was to an idle slot."""
        since, found_idle = self.running.pop(task, (0.0, False))
        if self.queued:
            self.queued.pop(task, None)
            self.start(now)
        return since if found_idle else None

    def start(self, now: float) -> None:
        """Free slots take what waits there."""
        while self.queued and len(self.running) < self.slots:
            following = next(iter(self.queued))
            del self.queued[following]
            self.running[following] = (now, False)


class Speeds:
    """How fast nodes are, measured from the tasks that end.

    Args:
        latency_seconds: First guess of the time from the end of a task to the start of the next one that was not
            waiting at the node; replaced by measurement.
        most_ahead: Tasks that wait at a node at most, for each of its slots; 0: no prefetch.
    """

    def __init__(self, latency_seconds: float, most_ahead: int) -> None:
        self._latency_seconds, self._most_ahead = latency_seconds, most_ahead
        self._all = Mean()

    @property
    def is_known(self) -> bool:
        """Whether any task has ended."""
        return self._all.units > 0

    def measure(self, node: NodeLoad, units: float, seconds: float, delay: float | None) -> None:
        """A task of so many units took so long; ``delay``: seconds besides, if it was sent to an idle slot."""
        for mean in (node.measured, self._all):
            mean.add(units, max(seconds, 1e-6))
        if delay is not None:
            node.latency = MEMORY * node.latency + (1 - MEMORY) * delay if node.latency else delay
        node.depth = self.depth(node)

    def latency(self, node: NodeLoad) -> float:
        """Seconds from the end of a task there to the start of the next, if that has to be sent first."""
        return node.latency or self._latency_seconds

    def rate(self, node: NodeLoad) -> float:
        """Units a second of one slot; 1 while nothing is measured."""
        if not self._all.units:
            return 1.0
        mean = self._all.units / self._all.seconds
        own = node.measured.units / node.measured.seconds if node.measured.units else mean
        return min(max(own, mean / FASTEST), mean * FASTEST)

    def depth(self, node: NodeLoad) -> int:
        """Tasks that a node is sent at most: for its slots, and for those that end while a message travels."""
        latency = self.latency(node)
        task_seconds = node.measured.task_seconds or self._all.task_seconds
        # As many end within the delay on average; three standard deviations more, as if ends came at random.
        ends = node.slots * latency / task_seconds if task_seconds else 0.0
        ahead = max(math.ceil(ends + 3 * math.sqrt(ends)), node.members) if latency else 0
        return node.slots + min(ahead, self._most_ahead * node.slots)

    def left(self, node: NodeLoad, task: int, units: float, now: float) -> float:
        """Seconds until a task that runs there likely ends; of an overdue one, as much as has passed."""
        whole = units / self.rate(node)
        age = now - node.running[task][0]
        return whole - age if age < whole else age


class Room:
    """Nodes that can take a task, the one with the most to spare first."""

    def __init__(self, nodes: Mapping[int, NodeLoad], speeds: Speeds) -> None:
        self._nodes, self._speeds = nodes, speeds
        #: (no idle slot, load, node, stamp). An entry is valid if its stamp is the node's.
        self._heap: list[tuple[bool, float, int, int]] = []

    def best(self) -> int | None:
        """The node with the most to spare."""
        while self._heap:
            _, _, node, stamp = self._heap[0]
            if self._is_valid(node, stamp):
                return node
            heapq.heappop(self._heap)
        return None

    def key(self, node: int) -> tuple[bool, float, int]:
        """Nodes in the order of this take tasks."""
        item = self._nodes[node]
        return (not item.idle, item.out / (item.slots * self._speeds.rate(item)), node)

    def note(self, node: int) -> None:
        """What ``node`` has to do has changed."""
        item = self._nodes[node]
        item.stamp += 1
        if item.out >= item.depth:
            return
        heapq.heappush(self._heap, (*self.key(node), item.stamp))
        if len(self._heap) > 4 * len(self._nodes) + 64:
            self._heap = [entry for entry in self._heap if self._is_valid(entry[2], entry[3])]
            heapq.heapify(self._heap)

    def _is_valid(self, node: int, stamp: int) -> bool:
        return node in self._nodes and self._nodes[node].stamp == stamp
