"""Random faults of a simulated job: nodes that die, and records that fail."""

from __future__ import annotations

import random
from dataclasses import replace

from millrace.errors import RefusedError
from millrace.schedule.partition import divide_into_partitions
from millrace.simulate.machine import SimulatedCluster
from millrace.simulate.trace import CostTrace


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
