"""The shared scan: every batch sees every fragment once, soon, and a fragment is used by all before the next."""

from __future__ import annotations

from hypothesis import assume, given
from hypothesis import strategies as st

from millrace.scheduler.finish_strategies import MIN_SEARCH_BYTES, count_finish_parts
from millrace.scheduler.fragment_search import (
    MIN_LEFT_IF_ALIKE,
    MIN_LEFT_IF_SKEWED,
    SKEWED_TIMES_MEAN,
    LongestFirst,
    SharedScan,
)


def test_batch_joins_at_the_current_fragment() -> None:
    scan = SharedScan(3)
    scan.add_batch(1, [1, 2, 3])
    assert [scan.pop_next_search(), scan.pop_next_search()] == [(1, 1), (1, 2)]
    scan.add_batch(2, [1, 2, 3])
    assert [scan.pop_next_search() for _ in range(4)] == [(2, 2), (1, 3), (2, 3), (2, 1)]
    assert scan.pop_next_search() is None and len(scan) == 0


def test_dropped_batch_is_not_searched() -> None:
    scan = SharedScan(2)
    scan.add_batch(1, [1, 2])
    scan.add_batch(2, [2])
    scan.drop_batch(1)
    assert (scan.pop_next_search(), scan.pop_next_search()) == ((2, 2), None)


@given(n=st.integers(1, 9), most=st.integers(1, 5), script=st.lists(st.integers(0, 2), max_size=120))
def test_each_search_is_issued_once_within_one_round(n: int, most: int, script: list[int]) -> None:
    scan = SharedScan(n)
    left: dict[int, set[int]] = {}
    steps: dict[int, list[int]] = {}
    moves, last, number = 0, 0, 0
    arrived: dict[int, int] = {}
    for word in [*script, *[1] * (n * most)]:
        if word == 0 and len(left) < most:
            number += 1
            left[number], steps[number], arrived[number] = set(range(1, n + 1)), [], moves
            scan.add_batch(number, sorted(left[number]))
        elif (search := scan.pop_next_search()) is not None:
            batch, fragment = search
            left[batch].remove(fragment)
            moves += last not in (0, fragment)
            last = fragment
            # In one round: the scan has moved on to another fragment less than n times since it came.
            assert moves - arrived[batch] <= n
            if not left[batch]:
                del left[batch]
        assert len(scan) == sum(map(len, left.values()))
    assert not left and scan.pop_next_search() is None


@given(n=st.integers(1, 9), places=st.integers(1, 12), batches=st.integers(1, 6), drop=st.none() | st.integers(0, 5))
def test_parallel_scan_issues_each_search_once(n: int, places: int, batches: int, drop: int | None) -> None:
    """Each place of the scan has a fragment of its own."""
    scan = SharedScan(n, places)
    for batch in range(batches):
        scan.add_batch(batch, range(1, n + 1))
    found = [scan.pop_next_search() for _ in range(min(places, n))]
    assert len({search[1] for search in found if search}) == min(places, n), "each place has a fragment of its own"
    if drop is not None:
        scan.drop_batch(drop)
    found += iter(scan.pop_next_search, None)
    searches = [search for search in found if search]
    assert len(set(searches)) == len(searches)
    assert {(b, f) for b in range(batches) for f in range(1, n + 1) if b != drop} <= set(searches)


@given(n=st.integers(2, 8), batches=st.integers(1, 8))
def test_all_ready_batches_use_a_fragment_before_the_next(n: int, batches: int) -> None:
    scan = SharedScan(n)
    for batch in range(batches):
        scan.add_batch(batch, range(1, n + 1))
    order = [fragment for _, fragment in iter(scan.pop_next_search, None)]
    assert order == [fragment for fragment in range(1, n + 1) for _ in range(batches)]


@given(
    seconds=st.lists(st.integers(1, 9), min_size=1, max_size=8), n=st.integers(2, 5), drop=st.none() | st.integers(0, 7)
)
def test_longest_batch_is_searched_first_once_measured(seconds: list[int], n: int, drop: int | None) -> None:
    searches = LongestFirst([1] * n)
    for batch in range(len(seconds)):
        searches.add_batch(batch, range(1, n + 1))
    first = [searches.pop_next_search() for _ in seconds]
    assert first == [(batch, n) for batch in range(len(seconds))], "one of each, in the smallest fragment"
    for batch, cost in enumerate(seconds):
        searches.observe_search(batch, n, cost)
    if drop is not None:
        searches.drop_batch(drop)
    left = [batch for batch in range(len(seconds)) if batch != drop]
    assert len(searches) == len(left) * (n - 1)
    rest = [search for search in iter(searches.pop_next_search, None) if search]
    assert [seconds[batch] for batch, _ in rest] == sorted((seconds[batch] for batch, _ in rest), reverse=True)
    assert sorted(rest) == [(batch, fragment) for batch in left for fragment in range(1, n)]


def test_unmeasured_batch_is_searched_on_rather_than_idle() -> None:
    searches = LongestFirst([1] * 3)
    searches.add_batch(1, [1, 2, 3])
    assert searches.pop_next_search() == (1, 3) and searches.pop_next_search(is_idle=False) is None
    assert [*iter(searches.pop_next_search, None)] == [(1, 1), (1, 2)]


@given(
    seconds=st.lists(st.integers(1, 50), min_size=1, max_size=40), slots=st.integers(1, 8), later=st.integers(0, 100),
    sizes=st.lists(st.integers(1, 9), min_size=2, max_size=6),
)  # fmt: skip
def test_batch_that_cannot_end_last_is_searched_whole(
    seconds: list[int], slots: int, later: int, sizes: list[int]
) -> None:
    searches = LongestFirst(sizes)
    for batch in range(len(seconds)):
        searches.add_batch(batch, range(1, len(sizes) + 1))
    for batch in range(len(seconds)):
        assert searches.pop_short_batch(slots, later) is None, "not all are measured"
        assert searches.pop_next_search() == (batch, len(sizes))
    for batch, cost in enumerate(seconds):
        searches.observe_search(batch, len(sizes), cost * sizes[-1])
    left = sum(seconds)
    is_skewed = max(seconds) * len(seconds) > SKEWED_TIMES_MEAN * left
    assume(abs(max(seconds) * len(seconds) - SKEWED_TIMES_MEAN * left) > 1e-6)
    least = MIN_LEFT_IF_SKEWED if is_skewed else MIN_LEFT_IF_ALIKE
    for cost in sorted(seconds, reverse=True):
        short = searches.pop_short_batch(slots, later * sum(sizes[:-1]))
        if abs(cost * slots - (left + later) / least) > 1e-6:
            assert (short is not None) == (cost * slots < (left + later) / least)
        if short is None:
            assert all(searches.pop_next_search() for _ in sizes[1:])
        left -= cost
    assert len(searches) == 0 and searches.pop_next_search() is None


@given(queries=st.integers(1, 1000), size=st.integers(0, 1 << 40), idle=st.integers(-500, 500))
def test_candidates_are_searched_in_parts_by_idle_slots(queries: int, size: int, idle: int) -> None:
    n = count_finish_parts(queries, size, idle)
    assert 1 <= n <= queries
    assert n == 1 or (n <= idle and n * MIN_SEARCH_BYTES <= size)
