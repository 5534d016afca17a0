"""Figures of a simulated cluster, and of the outcome of a job on it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class SimulatedCluster:
    """The simulated cluster.

    Args:
        nodes: Nodes, of one agent each.
        cores: Slots of a node.
        latency_seconds: Time from the decision to send a message until its receiver handles it; mostly the poll
            interval of an idle receiver.
        service_seconds: Time that a coordinator or partition leader needs for each task message, in or out.
        partition_size: Nodes of a partition; None: as in a real run.
        speeds: Speed of each node; empty: 1 for all.
        prefetch: Whether nodes hold tasks beyond their slots.
        copies: Whether stragglers are run a second time on idle slots.
        batch: Records of each batch; 0: sized by measurement, as in a real run.
        fragments: Fragments of the database; every batch is searched in each. 0: the database is whole.
        resident: Fragments that the memory of a node holds.
        load_seconds: Extra time of a task whose fragment is not in the memory of its node.
        homes: Whether tasks are dispatched by affinity to the fragments in a node's memory.
        deaths: (seconds, node) of nodes that die; not the first of all, nor the first of a partition, whose loss
            restarts a real run.
        silence_seconds: Time after which a dead node is noticed.
        failing: Records, 0-based, for which the tool always fails.
        finish: Time of the search of a record's candidates, as a share of that of its search in the whole database.
        passes: Number of searches of each candidate where a record's rows are written in slices; 0: they never are.
    """

    nodes: int
    cores: int
    latency_seconds: float = 0.005
    service_seconds: float = 50e-6
    partition_size: int | None = None
    speeds: Sequence[float] = ()
    prefetch: bool = True
    copies: bool = True
    batch: int = 0
    fragments: int = 0
    resident: int = 1
    load_seconds: float = 0.0
    homes: bool = True
    deaths: Sequence[tuple[float, int]] = ()
    silence_seconds: float = 10.0
    failing: Collection[int] = frozenset()
    finish: float = 0.0
    passes: int = 0


@dataclass(frozen=True)
class SimulationOutcome:
    """The outcome of a simulated job; times in seconds."""

    cores: int
    partitions: int
    records: int
    tasks: int
    #: Tasks that were run a second time.
    copies: int
    #: Time from the first message until the coordinator has handled the end of the last task.
    seconds: float
    #: Time of all records on one core of speed 1, and of the longest record, which no run can undercut.
    work_seconds: float
    longest_seconds: float
    #: Work over what all cores could have done in that time, from 0 to 1.
    efficiency: float
    #: Shares of the cores' time: start of tools, idle while there was input to cut, idle or running copies after that.
    startup_share: float
    starved_share: float
    tail_share: float
    #: Share of the time that the coordinator, and the busiest partition leader, handled messages.
    coordinator_share: float
    leader_share: float
    #: Tasks that had to read their fragment.
    loads: int = 0
    #: Retried batches, and quarantined records.
    retries: int = 0
    quarantined: int = 0
    #: Number of rank and slice tasks.
    slices: int = 0
