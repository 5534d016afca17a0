"""Nodes of a simulated cluster, its clock, and a process that handles one message at a time.

The clock is a queue of events in the order of time. A node has slots, queues, fragments in memory, random loss, and
failing records.
"""

from __future__ import annotations

import heapq
import random
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from enum import IntEnum
from itertools import count

from millrace.core.errors import RefusedError
from millrace.extensions.simulate.cost_trace import CostTrace, SimulatedCluster, SimulatedTask
from millrace.scheduler.dispatcher import TaskDispatcher
from millrace.scheduler.node_load import MAX_AHEAD_PER_SLOT
from millrace.scheduler.placement import TaskPlacement, divide_into_partitions


class ClockEvent(IntEnum):
    """The kinds of events, named from the side of their receiver; the number orders events of equal time."""

    TASK_ENDED = 0
    ROOT_TOLD = 1
    LEADER_TOLD = 2
    LEADER_GETS = 3
    NODE_GETS = 4
    LOOK = 5
    NODE_DIES = 6
    NODE_MISSED = 7
    JOB_ENDS = 8
    NODE_JOINS = 9
    DECIDE = 10


#: Handles an event, by member, task and time.
ClockHandler = Callable[[int, int, float], None]


class EventClock:
    """The pending events."""

    def __init__(self) -> None:
        self._events: list[tuple[float, int, int, int, int]] = []
        self._serial = count()

    def schedule_event(self, seconds: float, what: ClockEvent, member: int, task: int) -> None:
        """Schedule an event at the time ``seconds``, in seconds since the start."""
        heapq.heappush(self._events, (seconds, what, next(self._serial), member, task))

    def pop_event(self) -> tuple[float, int, int, int]:
        """Remove and return the next event, as (time, what, member, task)."""
        seconds, what, _, member, task = heapq.heappop(self._events)
        return seconds, what, member, task


class MessageQueue:
    """The message queue and dispatcher of the coordinator, or of the leader of a partition.

    Args:
        gets: Event at a receiver of a task.
        n_nodes: Nodes of its partition.
    """

    __slots__ = ("_clock", "_gets", "_machine", "copies", "dispatcher", "free_at", "handled", "n_nodes")

    def __init__(self, machine: SimulatedCluster, clock: EventClock, gets: ClockEvent, n_nodes: int = 0) -> None:
        self._machine, self._clock, self._gets, self.n_nodes = machine, clock, gets, n_nodes
        placement = TaskPlacement(2 * machine.latency_seconds, MAX_AHEAD_PER_SLOT if machine.prefetch else 0)
        self.dispatcher: TaskDispatcher[None] = TaskDispatcher(machine.fragments if machine.homes else 0, placement)
        self.free_at = 0.0
        #: Handled messages, and tasks that were dispatched a second time.
        self.handled = self.copies = 0

    def add_nodes(self, nodes: Iterable[int]) -> None:
        """Add nodes to the dispatcher."""
        for node in nodes:
            self.dispatcher.add_node(node, self._machine.cores, 0.0)

    def serve_message(self, now: float) -> float:
        """Handle one message that arrives at ``now``; return the time at which it is done."""
        self.handled += 1
        self.free_at = max(self.free_at, now) + self._machine.service_seconds
        return self.free_at

    def submit_task(self, work: SimulatedTask, now: float) -> None:
        """Queue a task, and send the tasks that can be dispatched."""
        self.dispatcher.submit_task(work.task, None, work.units, now)
        self.send_assignments(now)

    def send_assignments(self, now: float) -> None:
        """Send the tasks that the dispatcher has assigned."""
        for send, _ in self.dispatcher.pop_sends():
            self.copies += send.duplicate
            self._clock.schedule_event(
                self.serve_message(now) + self._machine.latency_seconds, self._gets, send.node, send.task
            )

    def check_stragglers(self, now: float) -> None:
        """Dispatch copies of stragglers to idle slots."""
        self.dispatcher.send_waiting(now)
        self.send_assignments(now)


class SimulatedNodes:
    """The state of all nodes, and the busy time of their slots."""

    def __init__(self, machine: SimulatedCluster) -> None:
        self.speeds = list(machine.speeds) or [1.0] * machine.nodes
        self._machine = machine
        self._free = [machine.cores] * machine.nodes
        self._queues: list[deque[int]] = [deque() for _ in range(machine.nodes)]
        self._memory: list[OrderedDict[int, None]] = [OrderedDict() for _ in range(machine.nodes)]
        self._dead: set[int] = set()
        #: Number of fragments read into memory.
        self.loads = 0
        self._busy, self._busy_since, self._busy_seconds = 0, 0.0, 0.0

    def add_node(self) -> int:
        """Add a node of speed 1; return its number."""
        self.speeds.append(1.0)
        self._free.append(self._machine.cores)
        self._queues.append(deque())
        self._memory.append(OrderedDict())
        return len(self.speeds) - 1

    def count_running(self, node: int) -> int:
        """Return the number of slots of a node with a task."""
        return self._machine.cores - self._free[node]

    def is_dead(self, node: int) -> bool:
        """Tell whether ``node`` has died."""
        return node in self._dead

    def queue_task(self, node: int, task: int, *, urgent: bool) -> None:
        """Queue a task at a node, in front if ``urgent``; a task for a dead node is lost."""
        if node not in self._dead:
            (self._queues[node].appendleft if urgent else self._queues[node].append)(task)

    def start_tasks(self, node: int, now: float, seconds: Callable[[int], float]) -> Iterator[tuple[int, float]]:
        """Start queued tasks on the free slots of a node; yield each with the time of its end.

        Args:
            seconds: Returns the duration of a task on this node.
        """
        queue = self._queues[node]
        while queue and self._free[node]:
            task = queue.popleft()
            self._free[node] -= 1
            self._add_busy_time(now, 1)
            yield task, now + seconds(task)

    def free_slot(self, node: int, now: float) -> None:
        """Free a slot of a node."""
        self._free[node] += 1
        self._add_busy_time(now, -1)

    def kill_node(self, node: int, now: float) -> None:
        """Mark a node as dead; its tasks are lost."""
        self._dead.add(node)
        self._queues[node].clear()
        self._add_busy_time(now, self._free[node] - self._machine.cores)

    def load_fragment(self, node: int, fragment: int) -> float:
        """Load a fragment into the memory of a node; return the seconds, 0 if it is there. Fragment 0 is none."""
        if not fragment:
            return 0.0
        memory = self._memory[node]
        held = fragment in memory
        memory[fragment] = None
        memory.move_to_end(fragment)
        if len(memory) > self._machine.resident:
            memory.popitem(last=False)
        self.loads += not held
        return 0.0 if held else self._machine.load_seconds

    def count_busy_seconds(self, now: float) -> float:
        """Return the busy seconds of all slots up to ``now``."""
        self._add_busy_time(now, 0)
        return self._busy_seconds

    def _add_busy_time(self, now: float, change: int) -> None:
        self._busy_seconds += self._busy * (now - self._busy_since)
        self._busy_since = now
        self._busy += change


def draw_faults(
    machine: SimulatedCluster, trace: CostTrace, records: int, *, n_deaths: int, n_failing: int, seed: int
) -> SimulatedCluster:
    """Return ``machine`` with random nodes that die during the job, and random records that always fail.

    Raises:
        RefusedError: There are fewer such nodes or records.
    """
    chance = random.Random(seed)
    leaders = {part[0] for part in divide_into_partitions(machine.nodes, machine.partition_size)}
    others = [node for node in range(machine.nodes) if node not in leaders]
    if n_deaths > len(others):
        raise RefusedError(
            f"--lose {n_deaths}: {len(others)} of {machine.nodes} nodes can be lost",
            "the others lead, and a run that loses one of these starts again, which is not simulated",
        )
    if n_failing > records:
        raise RefusedError(f"--failing {n_failing}: there are {records} records", "let fewer fail")
    lasts = trace.sum_seconds_before(records) / (machine.nodes * machine.cores)
    deaths = [(chance.uniform(0.0, lasts), node) for node in chance.sample(others, n_deaths)]
    return replace(machine, deaths=deaths, failing=frozenset(chance.sample(range(records), n_failing)))
