"""Choice of the fragment that a node searches next: rules by the holders of fragments, and a queue that uses one. Pure.

A node searches first the fragments of which it holds the largest share: parts of a volume may be in different places.
Rules know the holders and the fragments left, not the time of a search. ``bench.locality`` compares them.

Sources: the schedulers of SDAFT (scalable data access for parallel BLAST on HDFS) and PIO, as published, for ``sdaft``
and ``pio``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping

from millrace.schedule.holders import Holders, Replicas
from millrace.schedule.waiting import PlacedTask

#: Chooses the next fragment for a node from those that are left; at least one is.
Rule = Callable[[int, Holders], int]

#: Bytes per second that ``cost`` assumes of a disk and of a link (1 Gbit/s).
DISK, LINK = 100e6, 125e6


def sdaft(node: int, holders: Holders) -> int:
    """Choose, of the node's own fragments or else of all, the one whose least loaded other holder has most left.

    >>> holders = Holders({1: [7, 8], 2: [7, 9], 3: [9]})
    >>> for fragment in (1, 2, 3): holders.add(fragment)
    >>> sdaft(7, holders), sdaft(6, holders)
    (2, 3)
    """
    if own := holders.nearest(node):
        return max(own, key=lambda fragment: (min(holders.load(fragment, node), default=0), fragment))
    return max(holders.left, key=lambda fragment: (min(holders.load(fragment), default=0), fragment))


def pio(node: int, holders: Holders) -> int:
    """Choose the node's own fragment that the fewest others could search; without own ones, the one that most could.

    >>> holders = Holders({1: [7, 8], 2: [7]}); holders.add(1); holders.add(2)
    >>> pio(7, holders), pio(8, holders), pio(9, holders)
    (2, 1, 1)
    """

    def spread(fragment: int) -> int:
        return sum(1 for other in holders.nodes_of.get(fragment, ()) if holders.of_node[other])

    if own := holders.nearest(node):
        return min(own, key=lambda fragment: (spread(fragment), fragment))
    return max(holders.left, key=lambda fragment: (spread(fragment), fragment))


def cost(node: int, holders: Holders) -> int:
    """Choose the fragment with the least read time now; of equals, the one whose holders have most else to do.

    >>> holders = Holders({1: [7], 2: [8]}); holders.add(1); holders.add(2); holders.serves[7] = 3
    >>> cost(7, holders), cost(9, holders)
    (1, 2)
    """

    def key(fragment: int) -> tuple[float, float, int]:
        if fragment in holders.of_node[node]:
            # Fragments that others hold as well, and have little else to do, are left to them.
            return 1 / DISK, -sum(holders.load(fragment, node)), fragment
        serving = min((holders.serves[other] for other in holders.nodes_of.get(fragment, ())), default=0)
        return 1 / min(DISK, LINK / (serving + 1)), -sum(holders.load(fragment)), fragment

    return min(holders.nearest(node) or holders.left, key=key)


#: All rules by name.
RULES: dict[str, Rule] = {"sdaft": sdaft, "pio": pio, "cost": cost}


class LocalFirst:
    """Queue of searches in fragments whose holders are known.

    Args:
        rule: The default is as local as the others in the simulator, and ends first.
    """

    def __init__(self, rule: Rule = sdaft) -> None:
        self._rule = rule
        self.holders = Holders()
        self._waiting: dict[int, deque[PlacedTask]] = {}
        #: Number of searches that were sent, and of those sent to a node that held the fragment.
        self.n_sent = self.n_local = 0

    def __len__(self) -> int:
        """Return the number of waiting searches."""
        return sum(self.holders.left.values())

    def hold(self, replicas: Mapping[int, Replicas]) -> None:
        """Set the nodes with a replica; see ``Holders.hold``."""
        self.holders.hold(replicas)

    def add(self, task: PlacedTask) -> None:
        """Queue a search."""
        self._waiting.setdefault(task.fragment, deque()).append(task)
        self.holders.add(task.fragment)

    def take(self, node: int, *, idle: bool) -> PlacedTask | None:
        """Remove and return the next search for a node, or None.

        Args:
            idle: A slot is idle there, so any search will do; else only fragments that it holds: others may hold the
                rest.
        """
        holders = self.holders
        if not (holders.left if idle else holders.of_node[node]):
            return None
        # A fragment without holders must be fetched in any case.
        orphan = (
            None if holders.of_node[node] else next((each for each in holders.left if not holders.nodes_of[each]), None)
        )
        fragment = orphan or self._rule(node, holders)
        holders.take(fragment)
        return self._waiting[fragment].popleft()

    def sent(self, fragment: int, node: int) -> None:
        """Note that a search goes to a node, which holds the fragment from then on."""
        self.n_sent += 1
        self.n_local += self.holders.holds(node, fragment)
        self.holders.fetched(fragment, node)

    def clear(self) -> None:
        """Remove all waiting searches."""
        self._waiting.clear()
        self.holders.clear()
