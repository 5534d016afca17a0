"""Affinity of nodes and fragments: a node searches again the fragments that it keeps in memory. Pure."""

from __future__ import annotations

from collections import defaultdict
from math import ceil


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
