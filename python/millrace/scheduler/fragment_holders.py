"""Nodes that hold each fragment of a database, as a replica or in memory after a search. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from math import ceil

#: The nodes that have a replica of one fragment; as a mapping, with the share of it that each has.
FragmentReplicas = Collection[int] | Mapping[int, float]


class FragmentHolders:
    """Fragments by the nodes that can read them from their own disks.

    A node holds the replicas in its storage, and fragments that it fetched for earlier searches. Where ``max_copies`` is
    set, a fragment is fetched by at most so many nodes, and a node fetches at most its share of them.

    >>> holders = FragmentHolders({1: [7, 8], 2: [8]}); holders.add_search(1); holders.add_search(2)
    >>> sorted(holders.of_node[8]), holders.list_holder_loads(1, but=8)
    ([1, 2], [1])
    >>> holders.remove_search(1); sorted(holders.of_node[8]), holders.has_fragment(7, 1)
    ([2], True)

    Args:
        replicas: Nodes that have a replica, by fragment; where they have parts of it, with the share of each.
    """

    def __init__(self, replicas: Mapping[int, FragmentReplicas] = {}) -> None:
        self._replicas: dict[int, Mapping[int, float]] = {}
        self._copies: dict[int, set[int]] = defaultdict(set)
        self._lost: set[int] = set()
        self._living: set[int] = set()
        #: Maximum number of nodes that hold a fragment before no other node may fetch it; 0: any number.
        self.max_copies = 0
        #: Live nodes that hold it, by fragment.
        self.nodes_of: dict[int, tuple[int, ...]] = {}
        #: Number of searches left by fragment, in order of arrival.
        self.left: dict[int, int] = {}
        #: Fragments left that each node holds.
        self.of_node: dict[int, dict[int, None]] = defaultdict(dict)
        self._n_held: Counter[int] = Counter()
        #: Number of readers that each node serves now, as far as is known.
        self.serves: dict[int, int] = defaultdict(int)
        self.set_replicas(replicas)

    # Holders of fragments

    def is_known(self, fragment: int) -> bool:
        """Tell whether the location of a fragment was ever reported."""
        return fragment in self._replicas

    def has_fragment(self, node: int, fragment: int) -> bool:
        """Tell whether a live node holds ``fragment``."""
        return node in self.nodes_of.get(fragment, ())

    def set_replicas(self, replicas: Mapping[int, FragmentReplicas]) -> None:
        """Set the nodes with a replica of these fragments; other fragments stay unchanged."""
        for fragment, nodes in replicas.items():
            self._replicas[fragment] = dict(nodes) if isinstance(nodes, Mapping) else dict.fromkeys(nodes, 1.0)
        self._update_holders(replicas)

    def add_copy(self, fragment: int, node: int) -> None:
        """Note that a node fetches ``fragment`` and keeps it."""
        if self.is_known(fragment) and not self.has_fragment(node, fragment):
            self._copies[fragment].add(node)
            self._update_holders([fragment])

    def add_node(self, node: int) -> None:
        """Add a node, perhaps again: its copies are gone, its replicas are not."""
        self._living.add(node)
        if node in self._lost:
            self._lost.remove(node)
            self._update_holders(self._replicas)

    def remove_node(self, node: int) -> None:
        """Remove a lost node and its copies."""
        self._lost.add(node)
        self._living.discard(node)
        for copies in self._copies.values():
            copies.discard(node)
        self._update_holders(self._replicas)
        self.of_node.pop(node, None)

    # Bounded copies

    def list_fetchable(self, node: int) -> Iterable[int]:
        """List the fragments left that a node without them may fetch, in order of arrival.

        >>> holders = FragmentHolders({1: [], 2: [8]}); holders.max_copies = 1
        >>> for node in (7, 8): holders.add_node(node)
        >>> for fragment in (1, 2): holders.add_search(fragment)
        >>> [*holders.list_fetchable(7)], [*holders.list_fetchable(8)]
        ([1], [])
        """
        if not self.max_copies:
            return self.left
        if self._has_room(node):
            return [each for each in self.left if len(self.nodes_of[each]) < self.max_copies]
        # A fragment that no node holds is for those with room, as long as there are any.
        if any(map(self._has_room, self._living)):
            return []
        return [each for each in self.left if not self.nodes_of[each]]

    def may_search(self, node: int, fragment: int) -> bool:
        """Tell whether a node holds ``fragment``, or may fetch it."""
        if not self.max_copies or not self.is_known(fragment) or self.has_fragment(node, fragment):
            return True
        n_holders = len(self.nodes_of[fragment])
        return n_holders < self.max_copies and (not n_holders or self._has_room(node))

    def _has_room(self, node: int) -> bool:
        """Tell whether a node holds less than its share of the copies of all fragments."""
        return self._n_held[node] * len(self._living) < len(self._replicas) * self.max_copies

    def _update_holders(self, fragments: Iterable[int]) -> None:
        for fragment in fragments:
            for node in self.nodes_of.get(fragment, ()):
                self.of_node[node].pop(fragment, None)
            self._n_held.subtract(self.nodes_of.get(fragment, ()))
            now = ({*self._replicas[fragment]} | self._copies[fragment]) - self._lost
            self.nodes_of[fragment] = tuple(sorted(now))
            self._n_held.update(now)
            if fragment in self.left:
                self._list_as_left(fragment)

    def _list_as_left(self, fragment: int) -> None:
        for node in self.nodes_of.get(fragment, ()):
            self.of_node[node][fragment] = None

    # Fragments left

    def add_search(self, fragment: int) -> None:
        """Add a waiting search of ``fragment``."""
        self.left[fragment] = self.left.get(fragment, 0) + 1
        if self.left[fragment] == 1:
            self._list_as_left(fragment)

    def remove_search(self, fragment: int) -> None:
        """Remove a waiting search of ``fragment``, which was sent."""
        self.left[fragment] -= 1
        if not self.left[fragment]:
            del self.left[fragment]
            for node in self.nodes_of.get(fragment, ()):
                self.of_node[node].pop(fragment, None)

    def clear(self) -> None:
        """Remove all waiting searches."""
        self.left.clear()
        self.of_node.clear()

    def list_holder_loads(self, fragment: int, but: int = -1) -> list[int]:
        """Return for each other holder of ``fragment`` the number of fragments it has left."""
        return [len(self.of_node[node]) for node in self.nodes_of.get(fragment, ()) if node != but]

    def list_nearest(self, node: int) -> list[int]:
        """Return the fragments left of which a node holds the largest share.

        >>> holders = FragmentHolders({1: {7: 0.8}, 2: {7: 1.0, 8: 0.8}}); holders.add_search(1); holders.add_search(2)
        >>> holders.list_nearest(7), holders.list_nearest(8), holders.list_nearest(9)
        ([2], [2], [])
        """
        shares = {fragment: self._get_share(fragment, node) for fragment in self.of_node[node]}
        most = max(shares.values(), default=0.0)
        return [fragment for fragment, share in shares.items() if share >= most]

    def _get_share(self, fragment: int, node: int) -> float:
        return 1.0 if node in self._copies[fragment] else self._replicas[fragment].get(node, 0.0)


class FragmentAffinity:
    """Fragments settle on the nodes that searched them first.

    A node is home to its share of the fragments, and a fragment has its share of the slots: with more fragments than
    nodes, the memory of all nodes together holds the database; with fewer, several nodes hold each. Further searches by
    an otherwise idle node change nothing: its memory is for the fragments that it will search again.

    >>> homes = FragmentAffinity(4)
    >>> for node in (1, 2): homes.add_node(node, slots=8)
    >>> for fragment, node in ((1, 1), (2, 2), (3, 1), (4, 1), (1, 2)): homes.record_search(fragment, node)
    >>> [homes.get_home_nodes(fragment) for fragment in (1, 2, 3, 4)]
    [(1,), (2,), (1,), ()]

    Args:
        fragments: Number of fragments, which are numbered from 1; 0: the database is whole, and nothing has a home.
    """

    def __init__(self, fragments: int) -> None:
        self._n = fragments
        self._slots: dict[int, int] = {}
        self._nodes: dict[int, set[int]] = {}  # the fragments of each node
        self._at: dict[int, list[int]] = defaultdict(list)
        self._all = 0

    def add_node(self, node: int, slots: int) -> None:
        """Add a node, or change its number of slots."""
        self._nodes.setdefault(node, set())
        self._slots[node] = slots
        self._all = sum(self._slots.values())

    def remove_node(self, node: int) -> None:
        """Remove a lost node; its fragments may settle elsewhere."""
        for fragment in self._nodes.pop(node, ()):
            self._at[fragment].remove(node)
        self._slots.pop(node, None)
        self._all = sum(self._slots.values())

    def get_home_nodes(self, fragment: int) -> tuple[int, ...]:
        """Return the home nodes of ``fragment``; none for a number that is no fragment."""
        return tuple(self._at[fragment]) if 0 < fragment <= self._n else ()

    def record_search(self, fragment: int, node: int) -> None:
        """Note that a node is about to search ``fragment``; it becomes a home if it has room for one more."""
        own = self._nodes.get(node)
        if not 0 < fragment <= self._n or own is None or fragment in own:
            return
        searched_by = sum(self._slots[home] for home in self._at[fragment])
        if len(own) < ceil(self._n * self._slots[node] / self._all) and searched_by * self._n < self._all:
            own.add(fragment)
            self._at[fragment].append(node)
