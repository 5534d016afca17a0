"""Nodes into partitions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.schedule.partition import LARGEST, MOST_FLAT, SMALLEST, partitions


@given(st.integers(1, 20_000), st.one_of(st.none(), st.integers(1, 3000)))
def test_every_node_is_in_one_partition_and_all_are_alike(nodes: int, size: int | None) -> None:
    parts = partitions(nodes, size)
    assert [node for part in parts for node in part] == list(range(nodes))
    sizes = [len(part) for part in parts]
    assert max(sizes) - min(sizes) <= 1
    if size is not None:
        assert max(sizes) <= size
    elif nodes <= MOST_FLAT:
        assert len(parts) == 1
    else:
        assert max(sizes) <= LARGEST and min(sizes) >= SMALLEST - SMALLEST // 4


@pytest.mark.parametrize(("nodes", "size"), [(0, None), (3, 0), (3, -1)])
def test_no_nodes_and_empty_partitions_are_refused(nodes: int, size: int | None) -> None:
    with pytest.raises(ValueError, match="partitions"):
        partitions(nodes, size)
