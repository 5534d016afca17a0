"""A simulated cluster, and what comes out of a job on it: figures only."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Machine:
    """The simulated cluster.

    Args:
        nodes: Nodes, of one agent each.
        cores: Slots of a node.
        latency_seconds: From the decision to send a message until its receiver looks at it; mostly the pause of a
            receiver that has had nothing to do.
        service_seconds: What a coordinator or partition leader needs for each task message, in or out.
        partition_size: Nodes of a partition; None: as in a real run.
        speeds: Speed of each node; empty: 1 for all.
        prefetch: Whether nodes hold tasks beyond their slots.
        copies: Whether stragglers are run a second time on idle slots.
        batch: Records of each batch; 0: sized by measurement, as in a real run.
        fragments: Fragments of the database, each of which every batch is searched against; 0: it is whole.
        resident: Fragments that the memory of a node holds.
        load_seconds: What a task takes longer whose fragment is not in its node's memory.
        homes: Whether nodes are given again what they have in memory.
        deaths: (seconds, node) of nodes that die; not the first of all, nor the first of a partition, without which a real
            run starts again.
        silence_seconds: After which a node that died is missed.
        failing: Records, from 0, for which the tool always fails.
        finish: Time of the search of a record's candidates, as a share of that of its search in the whole database.
        passes: How often each candidate is searched where a record's rows are written in slices; 0: they never are.
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
class Outcome:
    """What came out; times in seconds."""

    cores: int
    partitions: int
    records: int
    tasks: int
    #: Tasks that were run a second time.
    copies: int
    #: From the first message to the end of the last task, as the coordinator knows it.
    seconds: float
    #: Time of the records alone on one core of speed 1, and of the longest one: no run is shorter than that.
    work_seconds: float
    longest_seconds: float
    #: Work over what all cores could have done in that time, from 0 to 1.
    efficiency: float
    #: Shares of the cores' time: start of tools, idle while there was input to cut, idle or copying after it.
    startup_share: float
    starved_share: float
    tail_share: float
    #: Share of the time that the coordinator, and the busiest partition leader, handled messages.
    coordinator_share: float
    leader_share: float
    #: Tasks that had to read their fragment.
    loads: int = 0
    #: Batches that were tried again, and records that were given up.
    retries: int = 0
    quarantined: int = 0
    #: Tasks that wrote a part of a record's rows, or found their ranks.
    slices: int = 0
