"""Division of nodes into partitions. Pure."""

from __future__ import annotations

import math

#: Up to this many nodes communicate with the coordinator directly; more form partitions.
MAX_FLAT_NODES = 256

#: Nodes of a partition if the user sets no number.
MIN_PARTITION_NODES, MAX_PARTITION_NODES = 64, 128


def divide_into_partitions(nodes: int, size: int | None = None) -> list[range]:
    """Divide nodes into partitions of consecutive nodes, whose sizes differ by one at most.

    The first node of each leads it. With one partition there is no level between coordinator and nodes.

    Args:
        nodes: Number of nodes, which are numbered from 0.
        size: Maximum number of nodes of a partition, set by the user; None: no partitions up to ``MAX_FLAT_NODES`` nodes,
            then as many nodes in each as there are partitions, within ``MIN_PARTITION_NODES`` and ``MAX_PARTITION_NODES``, so that no
            process communicates with many others.

    Raises:
        ValueError: ``nodes`` or ``size`` is below 1.

    >>> divide_into_partitions(100)
    [range(0, 100)]
    >>> [len(part) for part in divide_into_partitions(1024)][:3]
    [64, 64, 64]
    >>> divide_into_partitions(5, 2)
    [range(0, 1), range(1, 3), range(3, 5)]
    """
    if nodes < 1 or (size is not None and size < 1):
        raise ValueError(f"{nodes} nodes, partitions of {size}")
    if size is None:
        size = (
            nodes
            if nodes <= MAX_FLAT_NODES
            else min(max(math.isqrt(nodes - 1) + 1, MIN_PARTITION_NODES), MAX_PARTITION_NODES)
        )
    parts = math.ceil(nodes / size)
    return [range(part * nodes // parts, (part + 1) * nodes // parts) for part in range(parts)]


def choose_routes(nodes: int, size: int | None = None) -> dict[int, int]:
    """Return the node by which the coordinator, node 0, reaches each other node: itself or its partition's leader.

    The coordinator leads the first partition, so it reaches these nodes directly.

    >>> choose_routes(7, 3)
    {1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4}
    """
    found = {}
    for part in divide_into_partitions(nodes, size):
        for node in part:
            if node:
                found[node] = part.start or node
    return found
