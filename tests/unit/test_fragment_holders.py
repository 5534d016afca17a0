"""Fragments of a database and the nodes that keep them in memory."""

from __future__ import annotations

from math import ceil

from hypothesis import given
from hypothesis import strategies as st

from millrace.scheduler.fragment_holders import FragmentAffinity


@given(
    st.integers(1, 12), st.lists(st.integers(1, 8), min_size=1, max_size=6),
    st.lists(st.tuples(st.integers(1, 12), st.integers(0, 5)), max_size=200),
)  # fmt: skip
def test_node_is_home_to_its_share_of_fragments(n: int, slots: list[int], sends: list[tuple[int, int]]) -> None:
    homes = FragmentAffinity(n)
    for node, own in enumerate(slots):
        homes.add_node(node, own)
    searched = {(1 + fragment % n, node) for fragment, node in sends}
    for fragment, node in sends:
        homes.record_search(1 + fragment % n, node)
    for node, own in enumerate(slots):
        kept = [fragment for fragment in range(1, n + 1) if node in homes.get_home_nodes(fragment)]
        assert {(fragment, node) for fragment in kept} <= searched
        assert len(kept) <= ceil(n * own / sum(slots))
    for fragment in range(1, n + 1):
        *enough, _ = (slots[node] for node in homes.get_home_nodes(fragment) or (0,))
        assert sum(enough) * n < sum(slots), "none is kept by more nodes than it needs"


def test_fragments_are_shared_evenly_after_a_lost_node() -> None:
    homes = FragmentAffinity(4)
    for node in (1, 2):
        homes.add_node(node, 8)
    for _ in range(2):
        for node in (1, 2):
            for fragment in range(1, 5):
                homes.record_search(fragment, node)
    assert [homes.get_home_nodes(fragment) for fragment in range(1, 5)] == [(1,), (1,), (2,), (2,)]
    homes.remove_node(1)
    homes.record_search(1, 2)
    assert [homes.get_home_nodes(fragment) for fragment in range(1, 5)] == [(2,), (), (2,), (2,)]


def test_fewer_fragments_than_nodes_are_kept_by_several() -> None:
    homes = FragmentAffinity(2)
    for node in range(4):
        homes.add_node(node, 4)
    for node in range(4):
        homes.record_search(1, node)
        homes.record_search(2, node)
    assert [homes.get_home_nodes(1), homes.get_home_nodes(2)] == [(0, 1), (2, 3)]


def test_a_whole_database_has_no_home() -> None:
    homes = FragmentAffinity(0)
    homes.add_node(0, 4)
    homes.record_search(0, 0)
    assert homes.get_home_nodes(0) == ()
