"""Which fragment a node searches next, by who holds what: rules, and the searches that wait for nodes by one of them. Pure.

Of a node's own those come first of which it holds most: parts of a volume may be in different places. Rules know who holds what, and what is left; not how long a search takes. `bench.locality` compares them.

Sources: the schedulers of SDAFT (scalable data access for parallel BLAST on HDFS) and PIO, as published, for `sdaft` and `pio`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping

from millrace.schedule.holders import Holders, Replicas
from millrace.schedule.waiting import PlacedTask

#: The next fragment for a node, of those that are left, of which there are some.
Rule = Callable[[int, Holders], int]

#: Bytes a second of a disk and of a link (1 Gbit/s): what `cost` takes them for, in the same time for all.
DISK, LINK = 100e6, 125e6


def sdaft(node: int, holders: Holders) -> int:
    """Of the node's own that whose least loaded other holder has most left; if none is its own, the most redundant of all.

    >>> holders = Holders({1: [7, 8], 2: [7, 9], 3: [9]})
    >>> for fragment in (1, 2, 3): holders.add(fragment)
    >>> sdaft(7, holders), sdaft(6, holders)
    (2, 3)
    """
    if own := holders.nearest(node):
        return max(own, key=lambda fragment: (min(holders.load(fragment, node), default=0), fragment))
    return max(holders.left, key=lambda fragment: (min(holders.load(fragment), default=0), fragment))


def pio(node: int, holders: Holders) -> int:
    """Of the node's own that which the fewest others could take; else that which most hold.

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
    """The least time to read as things are now; of equals that which the fewest nodes could take that have little else.

    >>> holders = Holders({1: [7], 2: [8]}); holders.add(1); holders.add(2); holders.serves[7] = 3
    >>> cost(7, holders), cost(9, holders)
    (1, 2)
    """

    def key(fragment: int) -> tuple[float, float, int]:
        if fragment in holders.of_node[node]:
            # Left to others is what they could take as well, and have little else to do.
            return 1 / DISK, -sum(holders.load(fragment, node)), fragment
        serving = min((holders.serves[other] for other in holders.nodes_of.get(fragment, ())), default=0)
        return 1 / min(DISK, LINK / (serving + 1)), -sum(holders.load(fragment)), fragment

    return min(holders.nearest(node) or holders.left, key=key)


#: All of them, by name.
RULES: dict[str, Rule] = {"sdaft": sdaft, "pio": pio, "cost": cost}


class LocalFirst:
    """Searches that wait for nodes, in fragments of which it is known where they are.

    Args:
        rule: As local as the others in the simulator, and ends first.
    """

    def __init__(self, rule: Rule = sdaft) -> None:
        self._rule = rule
        self.holders = Holders()
        self._waiting: dict[int, deque[PlacedTask]] = {}
        #: Searches that were handed out, and those of them that their nodes held.
        self.n_sent = self.n_local = 0

    def __len__(self) -> int:
        """Searches that wait."""
        return sum(self.holders.left.values())

    def hold(self, replicas: Mapping[int, Replicas]) -> None:
        """See `Holders.hold`."""
        self.holders.hold(replicas)

    def add(self, task: PlacedTask) -> None:
        """A search waits."""
        self._waiting.setdefault(task.fragment, deque()).append(task)
        self.holders.add(task.fragment)

    def take(self, node: int, *, idle: bool) -> PlacedTask | None:
        """The search that a node gets.

        Args:
            idle: A slot is idle there, for which any will do; else only what it holds, as others may hold the rest.
        """
        holders = self.holders
        if not (holders.left if idle else holders.of_node[node]):
            return None
        # What nobody holds has to be fetched in any case.
        orphan = (
            None if holders.of_node[node] else next((each for each in holders.left if not holders.nodes_of[each]), None)
        )
        fragment = orphan or self._rule(node, holders)
        holders.take(fragment)
        return self._waiting[fragment].popleft()

    def sent(self, fragment: int, node: int) -> None:
        """A search goes to a node, which has the fragment from then on."""
        self.n_sent += 1
        self.n_local += self.holders.holds(node, fragment)
        self.holders.fetched(fragment, node)

    def clear(self) -> None:
        """Forget what waits."""
        self._waiting.clear()
        self.holders.clear()
