"""What a list leaves of a database: ranges of entries, and where they are cut."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from millrace.adapters.blast.entry_lists import ListedEntries, group_ranges, invert_ranges
from millrace.core.entry_ranges import pack_ranges, unpack_ranges

ORDINALS = st.sets(st.integers(0, 60), min_size=1).map(sorted)


def entries(runs: list[tuple[int, int]]) -> list[int]:
    return [entry for first, last in runs for entry in range(first, last)]


@given(named=ORDINALS)
def test_ranges_are_the_entries_or_all_others(named: list[int]) -> None:
    assert entries(list(group_ranges(named))) == named
    assert sorted([*entries(list(invert_ranges(named, 61))), *named]) == list(range(61))


@given(named=ORDINALS)
def test_ranges_round_trip_as_text(named: list[int]) -> None:
    runs = list(group_ranges(named))
    assert unpack_ranges(pack_ranges(runs)) == runs


@given(named=ORDINALS, n=st.integers(1, 80))
def test_fragments_have_equal_numbers_of_listed_entries(named: list[int], n: int) -> None:
    runs = ListedEntries(tuple(group_ranges(named)), len(named), 10 * len(named), 3).cut_runs([1] * n)
    parts = [sum(first <= entry < last for entry in named) for first, last, _ in runs]
    assert sum(parts) == len(named) and len(runs) <= n
    assert min(parts) >= 1 and max(parts) - min(parts) <= 1
    assert all(before[1] == after[0] for before, after in pairwise(runs))
