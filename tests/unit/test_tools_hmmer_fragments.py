"""How HMMER's targets are shared out among fragments."""

from __future__ import annotations

from itertools import accumulate

from hypothesis import given
from hypothesis import strategies as st

from millrace.tools.hmmer.fragments import cut


@given(st.lists(st.integers(0, 1000), min_size=1), st.integers(1, 20))
def test_fragments_are_all_targets_in_order(sizes: list[int], n: int) -> None:
    fragments = cut(list(enumerate(accumulate(sizes), start=1)), [1] * n)
    assert 1 <= len(fragments) <= n
    assert [last for _, last, _ in fragments] == [first for first, _, _ in fragments[1:]] + [len(sizes)]
    assert fragments[0][0] == 0
    assert all(size == sum(sizes[first:last]) and first < last for first, last, size in fragments)
    # None is larger than a share and the target that fills it.
    assert all(size <= sum(sizes) / n + max(sizes) for _, _, size in fragments[: n - 1])


@given(st.integers(1, 50), st.integers(1, 50))
def test_equal_targets_make_equal_fragments(n: int, size: int) -> None:
    fragments = cut([(k, k * size) for k in range(1, 10 * n + 1)], [1] * n)
    assert [part for _, _, part in fragments] == [10 * size] * n


@given(st.lists(st.integers(1, 9), min_size=1, max_size=12), st.integers(1, 50))
def test_fragments_have_the_sizes_that_were_asked_for(shares: list[int], size: int) -> None:
    fragments = cut([(k, k * size) for k in range(1, sum(shares) + 1)], shares)
    assert [part for _, _, part in fragments] == [share * size for share in shares]
