"""Choice of the fragment that a node searches next: rules by the holders of fragments, and a queue that uses one. Pure.

A node searches first the fragments of which it holds the largest share: parts of a volume may be in different places.
Rules know the holders and the fragments left, not the time of a search. ``bench.locality`` compares them.

Sources: the schedulers of SDAFT (scalable data access for parallel BLAST on HDFS) and PIO, as published, for ``choose_by_sdaft``
and ``choose_by_pio``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping

from millrace.schedule.holders import FragmentHolders, FragmentReplicas
from millrace.schedule.waiting import PlacedTask

#: Chooses the next fragment for a node from those that are left; at least one is.
LocalityRule = Callable[[int, FragmentHolders], int]

#: Bytes per second that ``choose_by_cost`` assumes of a disk and of a link (1 Gbit/s).
DISK_BYTES_PER_SECOND, LINK_BYTES_PER_SECOND = 100e6, 125e6


def choose_by_sdaft(node: int, holders: FragmentHolders) -> int:
    """Choose, of the node's own fragments or else of all, the one whose least loaded other holder has most left.

    >>> holders = FragmentHolders({1: [7, 8], 2: [7, 9], 3: [9]})
    >>> for fragment in (1, 2, 3): holders.add_search(fragment)
    >>> choose_by_sdaft(7, holders), choose_by_sdaft(6, holders)
    (2, 3)
    """
    if own := holders.list_nearest(node):
        return max(own, key=lambda fragment: (min(holders.list_holder_loads(fragment, node), default=0), fragment))
    return max(holders.left, key=lambda fragment: (min(holders.list_holder_loads(fragment), default=0), fragment))


def choose_by_pio(node: int, holders: FragmentHolders) -> int:
    """Choose the node's own fragment that the fewest others could search; without own ones, the one that most could.

    >>> holders = FragmentHolders({1: [7, 8], 2: [7]}); holders.add_search(1); holders.add_search(2)
    >>> choose_by_pio(7, holders), choose_by_pio(8, holders), choose_by_pio(9, holders)
    (2, 1, 1)
    """

    def spread(fragment: int) -> int:
        return sum(1 for other in holders.nodes_of.get(fragment, ()) if holders.of_node[other])

    if own := holders.list_nearest(node):
        return min(own, key=lambda fragment: (spread(fragment), fragment))
    return max(holders.left, key=lambda fragment: (spread(fragment), fragment))


def choose_by_cost(node: int, holders: FragmentHolders) -> int:
    """Choose the fragment with the least read time now; of equals, the one whose holders have most else to do.

    >>> holders = FragmentHolders({1: [7], 2: [8]}); holders.add_search(1); holders.add_search(2); holders.serves[7] = 3
    >>> choose_by_cost(7, holders), choose_by_cost(9, holders)
    (1, 2)
    """

    def key(fragment: int) -> tuple[float, float, int]:
        if fragment in holders.of_node[node]:
            # Fragments that others hold as well, and have little else to do, are left to them.
            return 1 / DISK_BYTES_PER_SECOND, -sum(holders.list_holder_loads(fragment, node)), fragment
        serving = min((holders.serves[other] for other in holders.nodes_of.get(fragment, ())), default=0)
        return (
            1 / min(DISK_BYTES_PER_SECOND, LINK_BYTES_PER_SECOND / (serving + 1)),
            -sum(holders.list_holder_loads(fragment)),
            fragment,
        )

    return min(holders.list_nearest(node) or holders.left, key=key)


#: All rules by name.
RULES: dict[str, LocalityRule] = {"sdaft": choose_by_sdaft, "pio": choose_by_pio, "cost": choose_by_cost}


class LocalSearchQueue:
    """Queue of searches in fragments whose holders are known.

    Args:
        rule: The default is as local as the others in the simulator, and ends first.
    """

    def __init__(self, rule: LocalityRule = choose_by_sdaft) -> None:
        self._rule = rule
        self.holders = FragmentHolders()
        self._waiting: dict[int, deque[PlacedTask]] = {}
        #: Number of searches that were sent, and of those sent to a node that held the fragment.
        self.n_sent = self.n_local = 0

    def __len__(self) -> int:
        """Return the number of waiting searches."""
        return sum(self.holders.left.values())

    def set_replicas(self, replicas: Mapping[int, FragmentReplicas]) -> None:
        """Set the nodes with a replica; see ``FragmentHolders.set_replicas``."""
        self.holders.set_replicas(replicas)

    def add_search(self, task: PlacedTask) -> None:
        """Queue a search."""
        self._waiting.setdefault(task.fragment, deque()).append(task)
        self.holders.add_search(task.fragment)

    def pop_search(self, node: int, *, idle: bool) -> PlacedTask | None:
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
        holders.remove_search(fragment)
        return self._waiting[fragment].popleft()

    def record_send(self, fragment: int, node: int) -> None:
        """Note that a search goes to a node, which holds the fragment from then on."""
        self.n_sent += 1
        self.n_local += self.holders.has_fragment(node, fragment)
        self.holders.add_copy(fragment, node)

    def clear(self) -> None:
        """Remove all waiting searches."""
        self._waiting.clear()
        self.holders.clear()
