"""A process of a simulated job that handles one message at a time and dispatches tasks to others."""

from __future__ import annotations

from collections.abc import Iterable

from millrace.schedule.dispatcher import TaskDispatcher
from millrace.schedule.node_load import MAX_AHEAD_PER_SLOT
from millrace.schedule.placement import TaskPlacement
from millrace.simulate.clock import ClockEvent, EventClock
from millrace.simulate.machine import SimulatedCluster
from millrace.simulate.work import SimulatedTask


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
