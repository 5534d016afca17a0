"""The simulated clock, and a simulated process that handles one message at a time.

The process dispatches tasks to others. The clock is a queue of events in the order of time.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from enum import IntEnum
from itertools import count

from millrace.extensions.simulate.cost_trace import SimulatedCluster, SimulatedTask
from millrace.scheduler.dispatcher import TaskDispatcher
from millrace.scheduler.node_load import MAX_AHEAD_PER_SLOT
from millrace.scheduler.placement import TaskPlacement


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
