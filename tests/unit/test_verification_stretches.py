"""What is run again, and in which pieces."""

from __future__ import annotations

import random
from itertools import accumulate, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.scheduler.verification_stretches import (
    FREE_SECONDS,
    MAX_ALONE_RECORDS,
    MAX_COST_SHARE,
    MAX_START_RECORDS,
    MIN_SLOW_SECONDS,
    SHARE,
    START_PATIENCE_SECONDS,
    RecordExtent,
    StretchChoice,
    VerificationStretches,
    list_variants,
)

sizes = st.lists(st.integers(1, 20), min_size=1, max_size=40)
shares = st.sampled_from([None, 0.0, 0.05, 0.5, 1.0])


def extents_of(sizes: list[int]) -> list[RecordExtent]:
    return list(pairwise([0, *accumulate(sizes)]))


def run(
    stretches: VerificationStretches, sizes: list[int], shuffle: random.Random, seconds: float = 0.01
) -> list[tuple[RecordExtent, ...]]:
    """Cut in order, commit in some other; all stretches that were looked at."""
    waiting, found = list[RecordExtent](), list[tuple[RecordExtent, ...]]()
    extents = extents_of(sizes)
    left = list(extents)
    while left or waiting:
        if left and (not waiting or shuffle.random() < 0.5):
            stretches.add_batch(*left[0])
            waiting.append(left.pop(0))
        else:
            first, last = waiting.pop(shuffle.randrange(len(waiting)))
            stretches.record_commit(first, last, seconds, 0, seconds)
        total = None if left else extents[-1][1]
        for batches in stretches.pop_ready_stretches(total, 0.0, done=not left and not waiting):
            assert all(each in stretches.kept for each in batches), "their bytes are there"
            found.append(batches)
            assert stretches.is_start_open or batches[0][0] != 0
            stretches.mark_equal(batches)
            stretches.release_stretch(batches)
        assert len(stretches.kept) <= len(extents)
    return found


@given(sizes, shares, st.randoms(use_true_random=False))
def test_both_ends_are_always_verified(sizes: list[int], share: float | None, shuffle: random.Random) -> None:
    stretches = VerificationStretches(share, b"run")
    assert stretches.is_start_open == (share != 0.0)
    found = run(stretches, sizes, shuffle)
    assert not stretches.is_start_open
    extents = extents_of(sizes)
    if share == 0.0 or len(extents) == 1:
        assert not found
        return
    looked = {extent for batches in found for extent in batches}
    assert {*extents[:2], *extents[-2:]} <= looked
    for batches in found:
        assert all(before[1] == after[0] for before, after in pairwise(batches)), "neighbours"
    assert looked == stretches.checked
    if share == 1.0:
        assert looked == set(extents)
    assert set(stretches.kept) <= set(extents[-2:])


@given(sizes)
def test_shortened_batches_are_the_verified_ones(sizes: list[int]) -> None:
    stretches, short = VerificationStretches(None, b"run"), StretchChoice(SHARE, b"run")
    assert [short.add_batch(first) for first, _ in extents_of(sizes)] == [
        stretches.add_batch(*each) for each in extents_of(sizes)
    ]


@given(sizes.filter(lambda sizes: len(sizes) > 3), st.randoms(use_true_random=False), st.randoms(use_true_random=False))
def test_the_choice_does_not_depend_on_the_order_of_commits(
    sizes: list[int], one: random.Random, other: random.Random
) -> None:
    assert {*run(VerificationStretches(0.3, b"k"), sizes, one)} == {
        *run(VerificationStretches(0.3, b"k"), sizes, other)
    }


def test_share_of_verified_batches_is_as_asked() -> None:
    for share in (0.1, 0.5):
        stretches = VerificationStretches(share, b"key")
        run(stretches, [1] * 2000, random.Random(1))
        assert 0.8 * share < len(stretches.checked) / 2000 < 1.2 * share


def test_default_verification_costs_little() -> None:
    stretches = VerificationStretches(None, b"key")
    found = run(stretches, [1] * 4000, random.Random(1), seconds=5.0)
    spent = sum(5.0 * len(batches) for batches in found[1:-1])
    assert 0 < spent <= MAX_COST_SHARE * 4000 * 5.0 + FREE_SECONDS


def test_quarantined_records_are_not_awaited() -> None:
    stretches = VerificationStretches(1.0, b"key")
    for first in (0, 2, 4, 6):
        stretches.add_batch(first, first + 2)
    for extent in ((0, 1), (4, 6), (6, 8), (2, 4)):  # the first batch was split
        stretches.record_commit(*extent, 0.1)
    stretches.drop_records(1, 2)
    assert stretches.pop_ready_stretches(8, 0.0, done=True) == [((2, 4), (4, 6)), ((4, 6), (6, 8))]


@pytest.mark.parametrize("cut", [[(0, 9)], [(0, 6), (6, 9)]])
@pytest.mark.parametrize("seconds", [0.1, 3.0])
def test_batches_that_are_split_are_verified_whole(cut: list[RecordExtent], seconds: float) -> None:
    """Each border between their parts is within a stretch."""
    stretches = VerificationStretches(1.0, b"key")
    for extent in cut:
        stretches.add_batch(*extent)
    assert not stretches.pop_ready_stretches(9, 0.0, done=False)
    parts = [(0, 2), (2, 4), (4, 6), (6, 9)]
    for extent in parts:
        stretches.record_commit(*extent, seconds, 0, seconds)
    assert stretches.pop_ready_stretches(9, 0.0, done=True) == [tuple(parts)]


@given(sizes, st.sampled_from([0.01, 3.0]), st.randoms(use_true_random=False))
def test_start_covers_more_records_unless_they_are_slow(
    sizes: list[int], seconds: float, shuffle: random.Random
) -> None:
    """More than a few records."""
    stretches = VerificationStretches(None, b"run")
    extents = extents_of(sizes)
    found = run(stretches, sizes, shuffle, seconds)
    if len(extents) == 1:
        return
    start = next(batches for batches in found if batches[0][0] == 0)
    if len(extents) * seconds > MIN_SLOW_SECONDS and 2 * seconds >= MIN_SLOW_SECONDS:
        assert len(start) == 2
    else:
        assert start[-1][1] >= min(MAX_START_RECORDS, extents[-1][1])
    assert len(start) == 2 or start[-2][1] < MAX_START_RECORDS or start[-1][1] == extents[-1][1]


def test_start_extends_to_the_quarantined_record() -> None:
    for first in (1, 4):
        stretches = VerificationStretches(None, b"run")
        for at in range(6):
            stretches.add_batch(at, at + 1)
        stretches.drop_records(first, first + 1)
        for at in range(6, 40):
            stretches.add_batch(at, at + 1)
        for at in range(40):
            if at != first:
                stretches.record_commit(at, at + 1, 0.1)
        found = stretches.pop_ready_stretches(None, 0.0, done=False)
        assert [batches[-1][1] for batches in found if batches[0][0] == 0] == [first][first == 1 :]
        assert stretches.is_start_open == (first != 1)


def test_start_waits_for_missing_batches_only_for_a_while() -> None:
    stretches = VerificationStretches(None, b"run")
    for at in range(3):
        stretches.add_batch(at, at + 1)
        stretches.record_commit(at, at + 1, 0.3, cpu_seconds=0.3)
    assert not stretches.pop_ready_stretches(None, 5.0, done=False)
    assert not stretches.pop_ready_stretches(None, 5.0 + START_PATIENCE_SECONDS / 2, done=False)
    assert stretches.pop_ready_stretches(None, 5.0 + START_PATIENCE_SECONDS, done=False) == [((0, 1), (1, 2), (2, 3))]


@given(sizes, st.floats(0, 1000), st.booleans(), st.booleans(), st.booleans())
def test_pieces_cover_the_stretch_at_other_boundaries(
    sizes: list[int], seconds: float, at_start: bool, at_end: bool, whole: bool
) -> None:
    batches = extents_of(sizes)
    ways = list_variants(batches, seconds, at_start=at_start, at_end=at_end, whole=whole)
    assert 1 <= len(ways) <= 2
    for way in ways:
        assert sum(way) == sum(sizes) and min(way) >= 1
        assert len(way) <= MAX_ALONE_RECORDS + 1 or way == sizes
    if not whole or sum(sizes) == 1:
        assert ways == [sizes]
    else:
        assert all(way != sizes for way in ways)
        assert not at_end or len(sizes) == 1 or any(way[-1] != sizes[-1] for way in ways)


@given(sizes.filter(lambda sizes: len(sizes) > 1), st.data(), st.randoms(use_true_random=False))
def test_full_check_covers_each_batch_border(sizes: list[int], data: st.DataObject, shuffle: random.Random) -> None:
    extents = extents_of(sizes)
    found = run(VerificationStretches(1.0, b"run"), sizes, shuffle)
    border = extents[data.draw(st.integers(1, len(extents) - 1))][0]
    assert any(batches[0][0] < border < batches[-1][1] for batches in found)
