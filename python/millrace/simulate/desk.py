"""A process of a simulated job that handles one message after the other, and gives tasks to others."""

from __future__ import annotations

from collections.abc import Iterable

from millrace.schedule.dispatcher import Dispatcher
from millrace.schedule.node_load import MOST_AHEAD
from millrace.schedule.placement import Placement
from millrace.simulate.clock import Clock, What
from millrace.simulate.machine import Machine
from millrace.simulate.work import Work


class Desk:
    """The coordinator, or the leader of a partition.

    Args:
        gets: What it is for the others that a task comes to them.
        n_nodes: Nodes that it stands for.
    """

    __slots__ = ("_clock", "_gets", "_machine", "copies", "dispatcher", "free_at", "handled", "n_nodes")

    def __init__(self, machine: Machine, clock: Clock, gets: What, n_nodes: int = 0) -> None:
        self._machine, self._clock, self._gets, self.n_nodes = machine, clock, gets, n_nodes
        placement = Placement(2 * machine.latency_seconds, MOST_AHEAD if machine.prefetch else 0)
        self.dispatcher: Dispatcher[None] = Dispatcher(machine.fragments if machine.homes else 0, placement)
        self.free_at = 0.0
        #: Messages that it has handled, and tasks that it had run a second time.
        self.handled = self.copies = 0

    def join(self, nodes: Iterable[int]) -> None:
        """These nodes are there."""
        for node in nodes:
            self.dispatcher.joined(node, self._machine.cores, 0.0)

    def serve(self, now: float) -> float:
        """Handle one message that is there at ``now``; return when that is done."""
        self.handled += 1
        self.free_at = max(self.free_at, now) + self._machine.service_seconds
        return self.free_at

    def submit(self, work: Work, now: float) -> None:
        """A task is to be done by one of the others."""
        self.dispatcher.submit(work.task, None, work.units, now)
        self.send(now)

    def send(self, now: float) -> None:
        """Send off what others are to do now."""
        for send, _ in self.dispatcher.take():
            self.copies += send.duplicate
            self._clock.later(self.serve(now) + self._machine.latency_seconds, self._gets, send.node, send.task)

    def look(self, now: float) -> None:
        """Look for stragglers."""
        self.dispatcher.look(now)
        self.send(now)
