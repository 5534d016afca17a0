"""Batch sizes, by playing whole runs against a clock that is only a number."""

from __future__ import annotations

import heapq
import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lifecycle_builders import ended, lives_of, part

from millrace.core.tool_use import CostHint, CostSums
from millrace.execution.engine_loop import InputMeter
from millrace.node.batch_files import SpooledBatch
from millrace.scheduler.batch_lifecycle import BatchStep, RunBatch
from millrace.scheduler.batch_sizing import (
    HANDLING_SECONDS,
    MAX_ALL_BATCHES_BYTES,
    MAX_BATCH_BYTES,
    MAX_GROWTH,
    SPREAD,
    CostModel,
    compute_batch_units,
    fit_to_record_end,
)
from millrace.scheduler.protocol import AttemptResult, SplitBatch


@dataclass
class Played:
    """How a run went: seconds it took, seconds that tools ran, units of each batch in order."""

    wall: float
    busy: float
    batches: list[int]


def play(
    sizes: Sequence[int], seconds: Sequence[float], start: float, slots: int, hint: CostHint, *, is_file: bool = False
) -> Played:
    """Run records of ``sizes`` bytes that take ``seconds`` each, plus ``start`` a batch."""
    lives = lives_of(slots, hint)
    waiting: list[int] = []
    extents: list[tuple[int, int]] = []
    running: list[tuple[float, int, float]] = []
    costs: list[float] = []
    played = Played(0.0, 0.0, [])
    at, left = 0, sum(sizes)

    def feed() -> None:
        nonlocal at, left
        while limits := lives.request_batches(float(left), several=is_file):
            if at == len(sizes):
                lives.end_input()
                continue
            begin, units = at, 0
            while at < len(sizes):
                units += sizes[at]
                at += 1
                if any(
                    limit and n >= limit
                    for limit, n in zip(
                        (limits.records, limits.units, limits.bytes), (at - begin, units, units), strict=True
                    )
                ):
                    break
            left -= units
            do(lives.add_cut_batch(part(*batch(begin, at))))
        do(lives.end_tick())

    def batch(first: int, last: int) -> tuple[int, int, int]:
        extents.append((first, last))
        costs.append(start + sum(seconds[first:last]))
        return len(costs) - 1, last - first, sum(sizes[first:last])

    def do(actions: list[BatchStep]) -> None:
        for action in actions:
            match action:
                case RunBatch(number, _, urgent):
                    waiting.insert(0 if urgent else len(waiting), number)
                    played.batches.append(sum(sizes[slice(*extents[number])]))
                case SplitBatch(number, records):
                    first, last = extents[number]
                    parts = [batch(first, first + records), batch(first + records, last)]
                    do(lives.replace_split_batch(number, [part(*each) for each in parts]))

    feed()
    while not lives.is_done:
        while waiting and len(running) < slots:
            number = waiting.pop(0)
            heapq.heappush(running, (played.wall + costs[number], number, costs[number]))
        played.wall, number, cost = heapq.heappop(running)
        played.busy += cost
        do(ended(lives, number, AttemptResult.DONE, seconds=cost))
        feed()
    return played


@pytest.mark.parametrize(("slots", "n_records", "per_byte", "start", "most"), [
    (2, 3000, 1e-4, 0.06, 1.04),
    (16, 3000, 1e-4, 0.06, 1.12),
    (2, 300, 3e-3, 0.01, 1.02),
    (16, 2000, 3e-3, 0.01, 1.06),
    (2, 20_000, 2e-6, 0.002, 1.02),
])  # fmt: skip
def test_slots_end_together(slots: int, n_records: int, per_byte: float, start: float, most: float) -> None:
    rng = random.Random(1)
    sizes = [int(rng.lognormvariate(5.8, 0.6)) + 30 for _ in range(n_records)]
    seconds = [size * per_byte * rng.lognormvariate(0, 0.5) for size in sizes]
    played = play(sizes, seconds, start, slots, CostHint(startup_seconds=0.03))
    serial = start + sum(seconds)
    assert played.wall * slots < serial * most
    assert played.busy < serial * most


@pytest.mark.parametrize(("slots", "n_records"), [(2, 300), (16, 3000)])
@pytest.mark.parametrize("place", [0.6, 0.9, 0.99, 1.0])
def test_very_long_late_record_does_not_end_last(slots: int, n_records: int, place: float) -> None:
    rng = random.Random(2)
    sizes = [int(rng.lognormvariate(5.8, 0.7)) + 30 for _ in range(n_records)]
    sizes.insert(int(place * n_records), 20_000)
    seconds = [size * 4e-4 * rng.lognormvariate(0, 0.25) for size in sizes]
    played = play(sizes, seconds, 0.06, slots, CostHint(startup_seconds=0.06, longest=20_000))
    least = max(sum(seconds) / slots, max(seconds))
    assert played.wall < 1.06 * least


def test_instant_tool_still_gets_batches() -> None:
    # The fit from the first batches is all start and no slope, which once sent all that was left in one batch.
    n_records = 200_000
    played = play([1000] * n_records, [1e-7] * n_records, 0.002, 2, CostHint())
    assert max(played.batches) < MAX_BATCH_BYTES + 1000  # the record that reaches the limit belongs to the batch
    assert len(played.batches) >= 12


def test_batch_growth_is_limited_by_the_measurements() -> None:
    model = CostModel(CostHint())
    model.observe_task(1000, 0.01)
    assert compute_batch_units(model, 2, 1e9) == int(1000 * MAX_GROWTH)


def test_first_batches_are_small_until_measured() -> None:
    """One for each slot."""
    lives = lives_of(4, CostHint())
    asked = []
    while limits := lives.request_batches(1e6):
        asked.append(limits)
        lives.add_cut_batch(part(len(asked), 3, limits.units))
    assert len(asked) == 4
    assert all(0 < limits.units <= 1000 for limits in asked)


def test_batches_of_a_tool_with_passes_are_whole_passes() -> None:
    model = CostModel(CostHint(unit="residues", pass_units=10_000))
    model.observe_task(10_000, 1.0)
    assert compute_batch_units(model, 2, 100_000) == 40_000


@pytest.mark.parametrize(("longest", "units"), [(0, 40_000), (1000, 40_000), (20_000, 20_000)])
def test_tail_batch_is_half_of_the_share_of_a_slot(longest: int, units: int) -> None:
    """If the records are small enough for it."""
    model = CostModel(CostHint(unit="residues", pass_units=10_000, startup_seconds=0.06, longest=longest))
    model.observe_task(10_000, 1.06)
    assert compute_batch_units(model, 2, 100_000) == units


def test_only_short_batches_are_queued_in_numbers() -> None:
    """A long or large one waits alone."""

    def ready(units: int, seconds: float, unit: str = "bytes") -> int:
        model = CostModel(CostHint(unit=unit))
        assert model.n_ready == 1
        for _ in range(20):
            model.observe_task(units, seconds)
        return model.n_ready

    assert ready(1000, 0.02) == 10
    assert ready(1000, 0.0001) == 32
    assert ready(1000, 1.0) == 1
    assert ready(16 << 20, 0.02) == 1  # what waits lies in memory
    assert ready(1, 0.02, "records") == 1  # of unknown size


def test_batches_of_many_slots_suit_the_coordinator() -> None:
    model = CostModel(CostHint(unit="records", startup_seconds=0.0))
    for _ in range(20):
        model.observe_task(10, 1.0, records=10)
    few, many = compute_batch_units(model, 64, 1000.0), compute_batch_units(model, 100_000, 1000.0)
    share = 1000 / 64
    assert few == int(share / (1 + SPREAD / share**0.5))
    assert many * 0.1 == pytest.approx(100_000 * HANDLING_SECONDS)


def starts_long(seconds: float, start_units: int = 0) -> CostHint:
    return CostHint(unit="residues", startup_seconds=seconds, start_units=start_units)


@pytest.mark.parametrize("slots", [1, 2, 8])
def test_small_input_is_one_task_per_slot(slots: int) -> None:
    """300 queries of DIAMOND, each task of which cost a whole start."""
    # 300 queries of DIAMOND were six tasks, each of which took as long as the whole search.
    for start, seconds in ((0.5, 0.1), (30.0, 10.0), (0.5, 2.0 * slots)):
        per_unit = seconds / (300 * 350)
        played = play([350] * 300, [seconds / 300] * 300, start, slots, starts_long(start, int(start / per_unit)))
        assert len(played.batches) <= slots
        assert sum(played.batches) == 300 * 350


@pytest.mark.parametrize("slots", [1, 2, 8])
@pytest.mark.parametrize("start", [0.5, 10.0, 600.0])
@pytest.mark.parametrize("guess", [0.1, 1.0, 10.0])
def test_starts_are_a_small_part_of_a_long_run(slots: int, start: float, guess: float) -> None:
    n_records = 12_000 * slots  # six hundred times what takes as long as the start, for each slot
    played = play([500] * n_records, [start / 20] * n_records, start, slots, starts_long(guess * start, 10_000))
    assert start * len(played.batches) <= 0.05 * played.busy


def test_guessed_start_limits_batches_of_several_slots() -> None:
    """To the work of some starts, as the guess may be wrong."""
    model = CostModel(CostHint(unit="residues", startup_seconds=0.1, start_units=100))
    assert compute_batch_units(model, 2, 3_000_000) == 4000
    assert compute_batch_units(model, 1, 30_000) == 30_000  # nobody waits for it
    model = CostModel(CostHint(unit="residues", startup_seconds=0.1, start_units=100, longest=400))
    assert compute_batch_units(model, 2, 6000) < 0.85 * 3000  # a record may be a large part of a share


def test_unknown_start_cost_is_learnt_from_the_first_tasks() -> None:
    n_records = 40_000
    sizes = [500] * n_records
    played = play(sizes, [0.5] * n_records, 60.0, 2, CostHint(unit="residues"))
    # Four small tasks are needed to see it; the rest costs little.
    assert 60.0 * len(played.batches) < 0.1 * played.busy
    model = CostModel(CostHint())
    for units in (1000, 1000, 4000, 4000, 30_000):
        model.observe_task(units, 60.0 + 1e-3 * units)
    assert (model.startup, model.longest_startup) == pytest.approx((60.0, 60.0), abs=0.1)
    assert model.max_batch_seconds == pytest.approx(40 * 60.0, rel=0.01)


def test_records_of_uneven_cost_are_no_start_cost() -> None:
    rng = random.Random(3)
    model = CostModel(CostHint(startup_seconds=0.0))
    for units in (1600, 1600, 7000, 7000):
        model.observe_task(units, units * 3e-3 * rng.lognormvariate(0, 0.25))
    assert model.max_batch_seconds == 30.0


def test_batch_bytes_are_bounded_at_any_start_cost() -> None:
    for slots in (1, 2, 7, 100):
        short, long = (CostModel(starts_long(start, 1 << 40)) for start in (0.01, 600.0))
        assert short.compute_max_bytes(slots) == MAX_BATCH_BYTES
        assert long.compute_max_bytes(slots) == max(MAX_BATCH_BYTES, MAX_ALL_BATCHES_BYTES // (2 * slots))
        lives = lives_of(slots, starts_long(600.0, 1 << 40))
        limits = lives.request_batches(1e12)
        assert limits and limits.bytes == long.compute_max_bytes(slots)


def test_learnt_costs_spare_the_next_run_its_probes() -> None:
    sizes, seconds = [350] * 3000, [0.01] * 3000
    first = lives_of(2, CostHint(unit="residues"))
    for units in (1000, 1000, 4000, 4000, 160_000):
        first.cutting.cost.observe_task(units, 5.0 + units * 1e-5, units // 350)
    learnt = first.cutting.cost.cost_sums
    assert learnt
    hint = CostHint(unit="residues", learnt=learnt)
    assert CostModel(hint).startup == pytest.approx(5.0, rel=0.01)
    assert CostModel(hint).cost_sums is None  # nothing new
    again = play(sizes, seconds, 5.0, 2, hint)
    assert len(again.batches) == 2 < len(play(sizes, seconds, 5.0, 2, CostHint(unit="residues")).batches)
    # It counts for few tasks: another input, of which a residue takes a hundred times as long, is soon known.
    model = CostModel(hint)
    for _ in range(20):
        model.observe_task(10_000, 15.0)
    assert model.per_unit == pytest.approx(1e-3, rel=0.4)


def test_one_slot_gets_the_fewest_batches() -> None:
    model = CostModel(CostHint(startup_seconds=0.01))
    for units in (1000, 100_000):
        model.observe_task(units, 0.01 + units * 1e-4)
    assert compute_batch_units(model, 1, 250_000) == 250_000
    assert compute_batch_units(model, 1, 360_000) == 360_000  # 36 s
    assert compute_batch_units(model, 1, 400_000) == 200_000


@pytest.mark.parametrize(("learnt", "slots", "remaining"), [(True, 2, 400.0), (True, 1, 1000.0), (False, 2, 1000.0)])
def test_first_slot_gets_its_share_if_the_cost_is_known(learnt: bool, slots: int, remaining: float) -> None:
    """A file has more bytes than units, which only reading it tells."""
    known = CostSums(sums=(4.0, 4e3, 4.0, 4e6, 4e3), plain=(4.0, 4e3, 4.0, 40.0), shortest=1.0, largest=1000)
    assert InputMeter(CostHint(learnt=known if learnt else None), 1000, slots).remaining_units == remaining


def known_to_take(seconds_per_unit: float, start: float, largest: int) -> CostSums:
    """What earlier runs, with batches of very different sizes, told."""
    model = CostModel(CostHint(unit="residues"))
    for units in (largest // 100, largest) * 4:
        model.observe_task(units, start + units * seconds_per_unit)
    assert model.cost_sums
    return model.cost_sums


def test_counted_units_decrease_as_the_input_is_read() -> None:
    intake = InputMeter(CostHint(unit="residues", units=700, counted=True), 1000, 2)
    assert intake.remaining_units == 700.0
    intake.count_part(SpooledBatch(0, 2, 300, 340, (), (), (), 340), 300)
    assert intake.remaining_units == 400.0
    intake.count_part(SpooledBatch(2, 4, 400, 660, (), (), (), 1000), 400)
    assert intake.remaining_units == 0.0


def test_estimated_size_is_used_until_records_are_read() -> None:
    intake = InputMeter(CostHint(unit="records", units=12), 1000, 2)
    assert intake.remaining_units == 12.0
    intake.count_part(SpooledBatch(0, 2, 2, 250, (), (), (), 250), 2)
    assert intake.remaining_units == 6.0


def test_small_input_of_known_size_is_a_task_per_slot() -> None:
    """Bytes are no measure of residues: the first batch was much too small, and others had to make up for it."""
    sizes = [1000] * 40
    hint = CostHint(
        unit="residues",
        units=40_000,
        ends=(*accumulate(sizes),),
        longest=1000,
        learnt=known_to_take(1e-5, 0.06, 40_000),
    )
    assert play(sizes, [0.01] * 40, 0.06, 2, hint, is_file=True).batches == [20_000, 20_000]


@pytest.mark.parametrize("seconds", [29.0, 31.0, 39.0, 50.0, 65.0])
@pytest.mark.parametrize("slots", [2, 3, 16])
def test_slots_with_few_batches_end_together(seconds: float, slots: int) -> None:
    """4,000 queries of MMseqs2 were three batches for two slots."""
    sizes = [500] * (2000 * slots)
    per_unit = seconds / (500 * 2000)
    learnt = CostModel(CostHint(unit="residues"))
    for records in (40, 1600) * 4:
        learnt.observe_task(500 * records, 0.35 + 500 * records * per_unit, records)
    hint = CostHint(unit="residues", units=sum(sizes), startup_seconds=0.5, longest=500, learnt=learnt.cost_sums)
    played = play(sizes, [500 * per_unit] * len(sizes), 0.35, slots, hint, is_file=True)
    assert played.wall < 1.05 * seconds


@pytest.mark.parametrize("slots", [2, 8])
@pytest.mark.parametrize("left", [40, 100])
def test_batches_of_a_resumed_run_suit_what_is_left(slots: int, left: int) -> None:
    """The records that an earlier run has committed do not count."""
    sizes = [500] * (left * slots)
    learnt = CostModel(CostHint(unit="residues"))
    for records in (2, 200) * 4:
        learnt.observe_task(500 * records, 0.5 + 0.1 * records, records)
    hint = CostHint(unit="residues", longest=500, learnt=learnt.cost_sums)
    alone, resumed = (
        play(sizes, [0.1] * len(sizes), 0.5, slots, msgspec.structs.replace(hint, units=units), is_file=True)
        for units in (sum(sizes), 100 * sum(sizes))
    )
    assert resumed.batches == alone.batches == [500 * left] * slots


def test_long_last_record_of_a_small_input_starts_first() -> None:
    sizes, hint = (
        [200, 800, 400, 1400, 1900],
        CostHint(unit="residues", longest=1900, learnt=known_to_take(1e-3, 0.0, 2000)),
    )
    hint = msgspec.structs.replace(hint, units=sum(sizes), ends=(*accumulate(sizes),))
    played = play(sizes, [size * 1e-3 for size in sizes], 0.0, 2, hint, is_file=True)
    assert played.batches[0] == 1900 and played.batches == sorted(played.batches, reverse=True)
    assert played.wall == pytest.approx(2.4)
    # Of a pipe, who knows when the next batch is there.
    assert play(sizes, [size * 1e-3 for size in sizes], 0.0, 2, hint).batches[-1] == 1900


@given(st.lists(st.integers(0, 50), min_size=1, max_size=40), st.integers(1, 400), st.data())
def test_batch_ends_nearest_to_its_target_size(sizes: list[int], units: int, data: st.DataObject) -> None:
    ends = [*accumulate(sizes)]
    begun = data.draw(st.sampled_from([0, *ends]), "units cut before")
    remaining = ends[-1] - begun
    got = fit_to_record_end(ends, float(remaining), units)
    assert got >= 1
    if remaining < 1.5 * units:
        assert got == max(1, remaining)
    else:
        lengths = [end - begun for end in ends if end > begun]
        assert got in lengths and abs(got - units) == min(abs(length - units) for length in lengths)


def test_start_cost_in_units_follows_the_options() -> None:
    model = CostModel(CostHint(unit="residues", startup_seconds=1.0, start_units=2_000_000))
    assert model.startup == 1.0
    model.observe_task(48_000_000, 100.0)  # --sensitive: four times as long as the hint says
    assert model.startup == pytest.approx(4.0) and model.per_unit == pytest.approx(2e-6)
