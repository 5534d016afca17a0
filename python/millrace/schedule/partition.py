"""When nodes form partitions, and which. Pure."""

from __future__ import annotations

import math

#: So many nodes speak with the coordinator themselves; more form partitions.
MOST_FLAT = 256

#: Nodes of a partition, when the user says nothing.
SMALLEST, LARGEST = 64, 128


def partitions(nodes: int, size: int | None = None) -> list[range]:
    """Divide nodes into partitions of consecutive nodes, whose sizes differ by one at most.

    The first node of each leads it. With one partition there is no level between coordinator and nodes.

    Args:
        nodes: How many nodes there are, numbered from 0.
        size: Nodes of a partition at most, as the user wants it; None: no partitions up to `MOST_FLAT` nodes,
            then as many nodes in each as there are partitions, within `SMALLEST` and `LARGEST`, so that no
            process speaks with many others.

    Raises:
        ValueError: ``nodes`` or ``size`` is below 1.

    >>> partitions(100)
    [range(0, 100)]
    >>> [len(part) for part in partitions(1024)][:3]
    [64, 64, 64]
    >>> partitions(5, 2)
    [range(0, 1), range(1, 3), range(3, 5)]
    """
    if nodes < 1 or (size is not None and size < 1):
        raise ValueError(f"{nodes} nodes, partitions of {size}")
    if size is None:
        size = nodes if nodes <= MOST_FLAT else min(max(math.isqrt(nodes - 1) + 1, SMALLEST), LARGEST)
    parts = math.ceil(nodes / size)
    return [range(part * nodes // parts, (part + 1) * nodes // parts) for part in range(parts)]


def routes(nodes: int, size: int | None = None) -> dict[int, int]:
    """With whom the coordinator, node 0, speaks to reach each other node: with itself, or the leader of its partition.

    The coordinator leads the first partition, so its nodes need nobody between.

    >>> routes(7, 3)
    {1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4}
    """
    found = {}
    for part in partitions(nodes, size):
        for node in part:
            if node:
                found[node] = part.start or node
    return found
