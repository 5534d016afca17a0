"""Which nodes hold which fragments of a database, and which fragments are left to be searched. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping

#: The nodes that have a replica of one fragment; as a mapping with the share of it that each has.
Replicas = Collection[int] | Mapping[int, float]


class Holders:
    """Fragments by the nodes that can read them from their own disks.

    A node holds what its storage has a replica of, and what it has fetched for an earlier search.

    >>> holders = Holders({1: [7, 8], 2: [8]}); holders.add(1); holders.add(2)
    >>> sorted(holders.of_node[8]), holders.load(1, but=8)
    ([1, 2], [1])
    >>> holders.take(1); sorted(holders.of_node[8]), holders.holds(7, 1)
    ([2], True)

    Args:
        replicas: Nodes that have a replica, by fragment; where they have parts of it, with the share of each.
    """

    def __init__(self, replicas: Mapping[int, Replicas] = {}) -> None:
        self._replicas: dict[int, Mapping[int, float]] = {}
        self._copies: dict[int, set[int]] = defaultdict(set)
        self._lost: set[int] = set()
        #: Nodes that are there and hold it, by fragment.
        self.nodes_of: dict[int, tuple[int, ...]] = {}
        #: What is left, in the order in which it came; a fragment is left as long as any of its searches is.
        self.left: dict[int, int] = {}
        #: What is left of each node's own.
        self.of_node: dict[int, dict[int, None]] = defaultdict(dict)
        #: Readers that each node serves now, as far as is known.
        self.serves: dict[int, int] = defaultdict(int)
        self.hold(replicas)

    # Who holds what

    def is_known(self, fragment: int) -> bool:
        """Whether anything was ever told of where it is."""
        return fragment in self._replicas

    def holds(self, node: int, fragment: int) -> bool:
        """Whether a node that is there holds ``fragment``."""
        return node in self.nodes_of.get(fragment, ())

    def hold(self, replicas: Mapping[int, Replicas]) -> None:
        """Nodes with a replica are these now; of fragments that are not among them nothing changes."""
        for fragment, nodes in replicas.items():
            self._replicas[fragment] = dict(nodes) if isinstance(nodes, Mapping) else dict.fromkeys(nodes, 1.0)
        self._settle(replicas)

    def fetched(self, fragment: int, node: int) -> None:
        """A node fetches ``fragment``, and keeps it."""
        if self.is_known(fragment) and not self.holds(node, fragment):
            self._copies[fragment].add(node)
            self._settle([fragment])

    def joined(self, node: int) -> None:
        """A node is there (again): its copies are gone, its replicas are not."""
        if node in self._lost:
            self._lost.remove(node)
            self._settle(self._replicas)

    def lost(self, node: int) -> None:
        """A node is gone, and what it holds with it."""
        self._lost.add(node)
        for copies in self._copies.values():
            copies.discard(node)
        self._settle(self._replicas)
        self.of_node.pop(node, None)

    def _settle(self, fragments: Iterable[int]) -> None:
        for fragment in fragments:
            for node in self.nodes_of.get(fragment, ()):
                self.of_node[node].pop(fragment, None)
            now = ({*self._replicas[fragment]} | self._copies[fragment]) - self._lost
            self.nodes_of[fragment] = tuple(sorted(now))
            if fragment in self.left:
                self._list(fragment)

    def _list(self, fragment: int) -> None:
        for node in self.nodes_of.get(fragment, ()):
            self.of_node[node][fragment] = None

    # What is left

    def add(self, fragment: int) -> None:
        """One more search of ``fragment`` is to be handed out."""
        self.left[fragment] = self.left.get(fragment, 0) + 1
        if self.left[fragment] == 1:
            self._list(fragment)

    def take(self, fragment: int) -> None:
        """A search of ``fragment`` is handed out."""
        self.left[fragment] -= 1
        if not self.left[fragment]:
            del self.left[fragment]
            for node in self.nodes_of.get(fragment, ()):
                self.of_node[node].pop(fragment, None)

    def clear(self) -> None:
        """Nothing is left."""
        self.left.clear()
        self.of_node.clear()

    def load(self, fragment: int, but: int = -1) -> list[int]:
        """How many fragments each of its other holders has left."""
        return [len(self.of_node[node]) for node in self.nodes_of.get(fragment, ()) if node != but]

    def nearest(self, node: int) -> list[int]:
        """What is left of a node's own, as far as it holds as much of it as of any other.

        >>> holders = Holders({1: {7: 0.8}, 2: {7: 1.0, 8: 0.8}}); holders.add(1); holders.add(2)
        >>> holders.nearest(7), holders.nearest(8), holders.nearest(9)
        ([2], [2], [])
        """
        shares = {fragment: self._share(fragment, node) for fragment in self.of_node[node]}
        most = max(shares.values(), default=0.0)
        return [fragment for fragment, share in shares.items() if share >= most]

    def _share(self, fragment: int, node: int) -> float:
        return 1.0 if node in self._copies[fragment] else self._replicas[fragment].get(node, 0.0)
