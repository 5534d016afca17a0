"""Nodes of a simulated cluster: slots, queues, fragments in memory, random loss; failing records."""

from __future__ import annotations

import random
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from dataclasses import replace

from millrace.core.errors import RefusedError
from millrace.extensions.simulate.cost_trace import CostTrace, SimulatedCluster
from millrace.scheduler.placement import divide_into_partitions


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
