"""Whatever the order in which batches arrive, they leave in the input's."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from millrace.output.order import Ordered


@given(st.lists(st.integers(1, 9), min_size=1, max_size=30), st.randoms(use_true_random=False))
def test_batches_leave_in_input_order_as_soon_as_they_can(sizes: list[int], random: object) -> None:
    extents, first = [], 0
    for size in sizes:
        extents.append((first, first + size))
        first += size
    arrived = list(extents)
    random.shuffle(arrived)  # type: ignore[attr-defined]
    ordered: Ordered[int] = Ordered()
    left: list[tuple[int, int, int]] = []
    for n, (begin, end) in enumerate(arrived, 1):
        left.extend(ordered.push(begin, end, begin))
        here = set(arrived[:n])
        whole = next((k for k, extent in enumerate(extents) if extent not in here), len(extents))
        assert len(left) == whole, "held back without need, or let go too early"
        assert ordered.waiting == n - whole
    assert left == [(begin, end, begin) for begin, end in extents]
    assert ordered.next == first


def test_the_one_batch_of_an_empty_input_leaves_once() -> None:
    ordered: Ordered[str] = Ordered()
    assert list(ordered.push(0, 0, "header")) == [(0, 0, "header")]
    assert ordered.waiting == 0
