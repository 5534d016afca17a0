"""Which node gets which task: the same class spreads over partitions at the root, over nodes in a partition.

Pure: what happened comes in with its time, what to send goes out. Times are seconds on any one clock.

A node is sent as many tasks as it has slots, and so many more that no slot waits for the network: those that end
while a message is under way. Task times and the delay of messages are measured from what comes back.

How to use it: carry out every `Send` in the order given, and report every end. A task may be out twice (a duplicate
near the end); its first end counts, `Spread.is_open` tells before it is reported. Call `Spread.straggling` now and
then once no more tasks will come.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

#: Tasks that wait at a node beyond its slots, at most so many for each slot.
MOST_AHEAD = 4

#: Weight that an older observation keeps when a new one comes.
MEMORY = 0.9

#: Measured speeds of nodes count within this factor of the mean: records differ too, and may have come in a row.
FASTEST = 8.0


class Send(NamedTuple):
    """Send ``task`` to ``node``; ``duplicate``: it is out elsewhere too, and the first end counts."""

    node: int
    task: int
    duplicate: bool = False


@dataclass(slots=True)
class _Mean:
    """Mean with forgetting of units, seconds and tasks; its first values count in full."""

    units: float = 0.0
    seconds: float = 0.0
    tasks: float = 0.0

    def add(self, units: float, seconds: float) -> None:
        self.units = MEMORY * self.units + units
        self.seconds = MEMORY * self.seconds + seconds
        self.tasks = MEMORY * self.tasks + 1.0

    @property
    def task_seconds(self) -> float:
        return self.seconds / self.tasks if self.tasks else 0.0


@dataclass(slots=True)
class _Node:
    slots: int
    members: int = 1
    #: Tasks that have a slot there, as far as known: since when, and whether the slot was idle before.
    running: dict[int, tuple[float, bool]] = field(default_factory=dict)
    #: Tasks that wait there, oldest first.
    queued: dict[int, None] = field(default_factory=dict)
    measured: _Mean = field(default_factory=_Mean)
    latency: float = 0.0
    depth: int = 0
    #: Number of the valid entry of this node among those with room.
    stamp: int = 0

    @property
    def out(self) -> int:
        return len(self.running) + len(self.queued)

    @property
    def idle(self) -> int:
        return max(self.slots - len(self.running), 0)

    def take(self, task: int, now: float) -> None:
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


@dataclass(slots=True)
class _Task:
    number: int
    units: float
    #: Place in the order of arrival.
    serial: int
    prefer: tuple[int, ...] = ()
    waiting: bool = True
    ended: bool = False
    nodes: list[int] = field(default_factory=list)


class Spread:
    """Spreads tasks over nodes.

    While a task waits, no slot is idle and urgent tasks go first. A task goes to a node that it prefers when that
    leaves no slot idle, and is then passed over by at most as many later tasks as there are slots.

    Args:
        latency_seconds: First guess of the time from the end of a task to the start of the next one that was not
            waiting at the node; replaced by measurement.
        most_ahead: Tasks that wait at a node at most, for each of its slots; 0: no prefetch.
    """

    def __init__(self, latency_seconds: float = 0.005, most_ahead: int = MOST_AHEAD) -> None:
        self.latency_seconds = latency_seconds
        self.most_ahead = most_ahead
        self._nodes: dict[int, _Node] = {}
        self._tasks: dict[int, _Task] = {}
        self._slots = 0
        self._serial = 0
        self._waiting = 0
        self._measured = _Mean()
        # Tasks that wait, oldest first. What was taken out of one is skipped when it is met in another.
        self._urgent: deque[_Task] = deque()
        self._plain: deque[_Task] = deque()  # all that are not urgent
        self._free: deque[_Task] = deque()  # of these, those without a living node that they prefer
        self._preferring: dict[int, deque[_Task]] = {}  # of these, by node
        #: Nodes with room: (no idle slot, load, node, stamp). An entry is valid if its stamp is the node's.
        self._room: list[tuple[bool, float, int, int]] = []

    # What is known

    @property
    def waiting(self) -> int:
        """Tasks that are not sent."""
        return self._waiting

    @property
    def slots(self) -> int:
        """Slots of all nodes."""
        return self._slots

    def depth(self, node: int) -> int:
        """Tasks that ``node`` is sent at most: for its slots, and for those that end while a message travels."""
        return self._nodes[node].depth

    def is_open(self, task: int) -> bool:
        """Whether ``task`` waits or is out, and has not ended anywhere."""
        return task in self._tasks and not self._tasks[task].ended

    def holders(self, task: int) -> tuple[int, ...]:
        """Nodes at which ``task`` is out, also after its first end."""
        return tuple(self._tasks[task].nodes) if task in self._tasks else ()

    # Nodes

    def node_joined(self, node: int, slots: int, now: float, members: int = 1) -> list[Send]:
        """A node is there, or has another number of slots than before.

        Args:
            members: Nodes that it stands for, if it is a partition; each of them gets a task ahead.

        Raises:
            ValueError: ``slots`` is below 1.
        """
        if slots < 1:
            raise ValueError(f"node {node} has {slots} slots")
        item = self._nodes.setdefault(node, _Node(slots))
        self._preferring.setdefault(node, deque())
        item.slots, item.members = slots, members
        item.start(now)
        self._slots = sum(other.slots for other in self._nodes.values())
        item.depth = self._depth(item)
        return self._fill(node, now)

    def node_lost(self, node: int, now: float) -> tuple[list[int], list[Send]]:
        """A node is gone.

        Returns:
            Tasks that were out there alone, which wait again, before all others; and what to send.
        """
        item = self._nodes.pop(node, None)
        if item is None:
            return [], []
        self._slots -= item.slots
        orphans = [task for task in self._preferring.pop(node) if task.waiting and not self._living(task)]
        if orphans:
            self._free = deque(sorted([*self._free, *orphans], key=lambda task: task.serial))
        back = []
        for number in (*item.running, *item.queued):
            task = self._tasks[number]
            task.nodes.remove(node)
            if task.ended:
                self._forget(task)
            elif not task.nodes:
                back.append(task)
        for task in reversed(back):
            task.waiting = True
            self._waiting += 1
            self._urgent.appendleft(task)
        sends = []
        while (best := self._best()) is not None:
            # One at a time: a whole queue for one node would leave slots of others idle.
            sent = self._fill(best, now, most=1)
            if not sent:
                break
            sends.extend(sent)
        return [task.number for task in back], sends

    # Tasks

    def task_ready(
        self, task: int, units: float, now: float, *, urgent: bool = False, prefer: Sequence[int] = ()
    ) -> list[Send]:
        """A task is to be sent: at once where there is room, else when there is.

        Args:
            task: Its number; no other task ever had it.
            units: Cost units, the same for all tasks (see `CostHint.unit`).
            urgent: Before all that is not urgent.
            prefer: Nodes where it is cheaper, such as those that hold its database fragment.

        Raises:
            ValueError: The task is known already.
        """
        if task in self._tasks:
            raise ValueError(f"task {task} is known already")
        self._serial += 1
        item = self._tasks[task] = _Task(task, max(units, 0.0), self._serial, tuple(prefer))
        node = self._place(item, urgent)
        if node is not None:
            sent = self._send(node, item, now)
            self._note_room(node)
            return [sent]
        self._waiting += 1
        if urgent:
            self._urgent.append(item)
            return []
        self._plain.append(item)
        living = self._living(item)
        for name in living:
            self._preferring[name].append(item)
        if not living:
            self._free.append(item)
        return []

    def task_ended(self, node: int, task: int, seconds: float, now: float, *, counts: bool = True) -> list[Send]:
        """A task came to its end at a node, well or not; the end of a node that was lost changes nothing.

        Args:
            seconds: Wall time of its run there; 0: it did not run, and says nothing of the node.
            counts: False: it gave nothing, so a copy that is out elsewhere is waited for.
        """
        item = self._nodes.get(node)
        if item is None or not (task in item.running or task in item.queued):
            return []
        sent = item.give(task, now)
        known = self._tasks[task]
        known.nodes.remove(node)
        known.ended = known.ended or counts or not known.nodes
        self._forget(known)
        if seconds > 0:
            self._measure(item, known.units, seconds, None if sent is None else max(now - sent - seconds, 0.0))
        return self._fill(node, now)

    def withdraw(self) -> list[int]:
        """Take back all tasks that are not sent; they are forgotten."""
        waiting = [task.number for task in self._tasks.values() if task.waiting]
        for number in waiting:
            del self._tasks[number]
        self._waiting = 0
        for queue in (self._urgent, self._plain, self._free, *self._preferring.values()):
            queue.clear()
        return waiting

    def straggling(self, now: float) -> list[Send]:
        """Duplicate tasks on idle slots where that is likely to end sooner. Only for when no more tasks will come.

        A task is out twice at most. It is copied if what is left of it is likely longer than a run from its start
        on the node with the idle slot: it waits behind others, its node is slow, or it is overdue. Of an overdue
        task, as much is taken to be left as has passed.

        Source: backup tasks of MapReduce (Dean and Ghemawat 2004, 3.6); the comparison of what is left with a new
        run is that of LATE (Zaharia et al. 2008).
        """
        if self._waiting or not self._measured.units:
            return []
        idle = [(self._rate(item), node) for node, item in self._nodes.items() if item.idle]
        if not idle:
            return []
        left = []
        for item in self._nodes.values():
            running = {number: self._left(item, self._tasks[number], now) for number in item.running}
            # What waits there waits at least for the first slot: a node that stands still never has one.
            wait = min(running.values(), default=0.0)
            queued = {number: wait + self._tasks[number].units / self._rate(item) for number in item.queued}
            left += [
                (seconds, -number)
                for number, seconds in (*running.items(), *queued.items())
                if not self._tasks[number].ended and len(self._tasks[number].nodes) == 1
            ]
        idle.sort(key=lambda pair: (-pair[0], pair[1]))
        left.sort(reverse=True)
        sends = []
        for seconds, negative in left:
            task = self._tasks[-negative]
            found = next(((rate, node) for rate, node in idle if node not in task.nodes), None)
            if found is None:
                continue
            rate, node = found
            if seconds <= task.units / rate + self._latency(self._nodes[node]):
                continue
            sends.append(self._send(node, task, now))
            self._note_room(node)
            if not self._nodes[node].idle:
                idle.remove(found)
                if not idle:
                    break
        return sends

    # Choosing

    def _living(self, task: _Task) -> list[int]:
        return [node for node in task.prefer if node in self._nodes]

    def _place(self, task: _Task, urgent: bool) -> int | None:
        """The node that a new task goes to at once, if any."""
        best = self._best()
        if best is None:
            return None
        roomy = [node for node in self._living(task) if self._nodes[node].out < self._nodes[node].depth]
        if roomy:
            preferred = min(roomy, key=self._key)
            if self._nodes[preferred].idle or not self._nodes[best].idle:
                return preferred
        if urgent or self._nodes[best].idle or not self._living(task):
            return best
        return None  # its nodes have a queue in which there will be room soon, and no slot is idle

    def _best(self) -> int | None:
        """The node with room that has the most to spare."""
        while self._room:
            _, _, node, stamp = self._room[0]
            if node in self._nodes and self._nodes[node].stamp == stamp:
                return node
            heapq.heappop(self._room)
        return None

    def _key(self, node: int) -> tuple[bool, float, int]:
        item = self._nodes[node]
        return (not item.idle, item.out / (item.slots * self._rate(item)), node)

    def _fill(self, node: int, now: float, most: int = 0) -> list[Send]:
        """Send what waits to a node until it has enough, or ``most`` tasks."""
        item = self._nodes[node]
        sends: list[Send] = []
        while self._waiting and item.out < item.depth and (not most or len(sends) < most):
            task = self._next(node, idle=item.idle > 0)
            if task is None:
                break
            self._waiting -= 1
            sends.append(self._send(node, task, now))
        self._note_room(node)
        return sends

    def _next(self, node: int, *, idle: bool) -> _Task | None:
        """The task among those that wait that a node with room gets; an idle slot takes any."""
        if (urgent := _head(self._urgent)) is not None:
            self._urgent.popleft()
            return urgent
        oldest = _head(self._plain)
        for queue in (self._preferring[node], self._free):
            task = _head(queue)
            if task is not None and oldest is not None and task.serial - oldest.serial <= self._slots:
                return task
        return oldest if idle else None

    def _send(self, node: int, task: _Task, now: float) -> Send:
        item = self._nodes[node]
        item.take(task.number, now)
        task.waiting = False
        task.nodes.append(node)
        return Send(node, task.number, duplicate=len(task.nodes) > 1)

    def _note_room(self, node: int) -> None:
        item = self._nodes[node]
        item.stamp += 1
        if item.out >= item.depth:
            return
        heapq.heappush(self._room, (*self._key(node), item.stamp))
        if len(self._room) > 4 * len(self._nodes) + 64:
            self._room = [entry for entry in self._room if self._valid(entry[2], entry[3])]
            heapq.heapify(self._room)

    def _valid(self, node: int, stamp: int) -> bool:
        return node in self._nodes and self._nodes[node].stamp == stamp

    def _forget(self, task: _Task) -> None:
        if task.ended and not task.nodes:
            del self._tasks[task.number]

    # Measuring

    def _measure(self, item: _Node, units: float, seconds: float, delay: float | None) -> None:
        for mean in (item.measured, self._measured):
            mean.add(units, max(seconds, 1e-6))
        if delay is not None:
            item.latency = MEMORY * item.latency + (1 - MEMORY) * delay if item.latency else delay
        item.depth = self._depth(item)

    def _latency(self, item: _Node) -> float:
        return item.latency or self.latency_seconds

    def _rate(self, item: _Node) -> float:
        """Units a second of one slot; 1 while nothing is measured."""
        if not self._measured.units:
            return 1.0
        mean = self._measured.units / self._measured.seconds
        own = item.measured.units / item.measured.seconds if item.measured.units else mean
        return min(max(own, mean / FASTEST), mean * FASTEST)

    def _depth(self, item: _Node) -> int:
        latency = self._latency(item)
        task_seconds = item.measured.task_seconds or self._measured.task_seconds
        # As many end within the delay on average; three standard deviations more, as if ends came at random.
        ends = item.slots * latency / task_seconds if task_seconds else 0.0
        ahead = max(math.ceil(ends + 3 * math.sqrt(ends)), item.members) if latency else 0
        return item.slots + min(ahead, self.most_ahead * item.slots)

    def _left(self, item: _Node, task: _Task, now: float) -> float:
        """Seconds until a task that runs likely ends."""
        whole = task.units / self._rate(item)
        age = now - item.running[task.number][0]
        return whole - age if age < whole else age


def _head(queue: deque[_Task]) -> _Task | None:
    """The oldest task of a queue that still waits."""
    while queue and not queue[0].waiting:
        queue.popleft()
    return queue[0] if queue else None
