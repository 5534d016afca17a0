"""Nodes into partitions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.scheduler.placement import (
    MAX_FLAT_NODES,
    MAX_PARTITION_NODES,
    MIN_PARTITION_NODES,
    choose_routes,
    divide_into_partitions,
)


@given(st.integers(1, 20_000), st.one_of(st.none(), st.integers(1, 3000)))
def test_every_node_is_in_one_partition_and_all_are_alike(nodes: int, size: int | None) -> None:
    parts = divide_into_partitions(nodes, size)
    assert [node for part in parts for node in part] == list(range(nodes))
    sizes = [len(part) for part in parts]
    assert max(sizes) - min(sizes) <= 1
    if size is not None:
        assert max(sizes) <= size
    elif nodes <= MAX_FLAT_NODES:
        assert len(parts) == 1
    else:
        assert max(sizes) <= MAX_PARTITION_NODES and min(sizes) >= MIN_PARTITION_NODES - MIN_PARTITION_NODES // 4


@pytest.mark.parametrize(("nodes", "size"), [(0, None), (3, 0), (3, -1)])
def test_no_nodes_and_empty_partitions_are_refused(nodes: int, size: int | None) -> None:
    with pytest.raises(ValueError, match="partitions"):
        divide_into_partitions(nodes, size)


@given(st.integers(1, 2000), st.one_of(st.none(), st.integers(1, 300)))
def test_every_other_node_is_reached_by_itself_or_its_leader(nodes: int, size: int | None) -> None:
    by = choose_routes(nodes, size)
    assert sorted(by) == list(range(1, nodes))
    parts = divide_into_partitions(nodes, size)
    for node, through in by.items():
        part = next(part for part in parts if node in part)
        assert through == (node if 0 in part else part.start)
    # The coordinator speaks with one of each other partition, and with those of its own.
    assert len(set(by.values())) == len(parts) - 1 + len(parts[0]) - 1
