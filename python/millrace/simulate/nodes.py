"""The nodes of a simulated cluster: slots that take the time that the trace says, a memory for fragments, and death."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator

from millrace.simulate.machine import Machine


class Nodes:
    """What each node has to do, and how long all slots have been busy."""

    def __init__(self, machine: Machine) -> None:
        self.speeds = list(machine.speeds) or [1.0] * machine.nodes
        self._machine = machine
        self._free = [machine.cores] * machine.nodes
        self._queues: list[deque[int]] = [deque() for _ in range(machine.nodes)]
        self._memory: list[OrderedDict[int, None]] = [OrderedDict() for _ in range(machine.nodes)]
        self._dead: set[int] = set()
        #: Fragments that were read.
        self.loads = 0
        self._busy, self._busy_since, self._busy_seconds = 0, 0.0, 0.0

    def is_dead(self, node: int) -> bool:
        """Whether nothing comes from ``node`` any more."""
        return node in self._dead

    def gets(self, node: int, task: int, *, urgent: bool) -> None:
        """A task comes to a node; what comes to a dead one is lost."""
        if node not in self._dead:
            (self._queues[node].appendleft if urgent else self._queues[node].append)(task)

    def starts(self, node: int, now: float, seconds: Callable[[int], float]) -> Iterator[tuple[int, float]]:
        """Tasks that free slots of a node take now, and when they end.

        Args:
            seconds: What a task takes on this node.
        """
        queue = self._queues[node]
        while queue and self._free[node]:
            task = queue.popleft()
            self._free[node] -= 1
            self._count(now, 1)
            yield task, now + seconds(task)

    def ends(self, node: int, now: float) -> None:
        """A slot of a node is free again."""
        self._free[node] += 1
        self._count(now, -1)

    def dies(self, node: int, now: float) -> None:
        """Whatever a node has is lost."""
        self._dead.add(node)
        self._queues[node].clear()
        self._count(now, self._free[node] - self._machine.cores)

    def load_seconds(self, node: int, fragment: int) -> float:
        """Seconds that a node needs to read a fragment, unless it is in its memory; 0 is no fragment."""
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

    def busy_seconds(self, now: float) -> float:
        """How long slots have been busy, all together."""
        self._count(now, 0)
        return self._busy_seconds

    def _count(self, now: float, change: int) -> None:
        self._busy_seconds += self._busy * (now - self._busy_since)
        self._busy_since = now
        self._busy += change
