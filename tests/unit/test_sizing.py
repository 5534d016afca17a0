"""Batch sizes: at least one, never a slot without work while there is enough, small at the end."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from millrace.model import CostHint
from millrace.schedule.sizing import LONGEST_SECONDS, LONGEST_UNKNOWN_SECONDS, CostModel, next_units

hints = st.builds(
    CostHint,
    unit=st.sampled_from(["residues", "bytes", "records"]),
    startup_seconds=st.floats(0.0, 5.0),
    pass_units=st.sampled_from([0, 0, 10_000]),
)
tasks = st.lists(st.tuples(st.integers(1, 10**7), st.floats(1e-4, 100.0)), max_size=20)


def a_model(hint: CostHint, done: list[tuple[int, float]]) -> CostModel:
    model = CostModel(hint)
    for units, seconds in done:
        model.observe(units, seconds)
    return model


@given(hints, tasks, st.integers(1, 512), st.none() | st.floats(0.0, 1e12))
def test_a_batch_has_at_least_one_unit(
    hint: CostHint, done: list[tuple[int, float]], slots: int, remaining: float | None
) -> None:
    assert next_units(a_model(hint, done), slots, remaining) >= 1


@given(hints, tasks, st.integers(1, 512), st.floats(1.0, 1e12))
def test_no_slot_is_idle_while_enough_is_left(
    hint: CostHint, done: list[tuple[int, float]], slots: int, remaining: float
) -> None:
    model = a_model(hint, done)
    units = next_units(model, slots, remaining)
    start = model.startup / model.per_unit if model.per_unit else 0.0
    # One batch a slot still fits into what is left, unless what is left is not worth as many starts of the tool.
    assert units <= max(remaining / slots, start, 1.0)


@given(hints, tasks, st.integers(1, 64), st.none() | st.floats(1.0, 1e12))
def test_a_batch_does_not_last_too_long(
    hint: CostHint, done: list[tuple[int, float]], slots: int, remaining: float | None
) -> None:
    model = a_model(hint, done)
    if not model.per_unit:
        return
    most = LONGEST_UNKNOWN_SECONDS if remaining is None else LONGEST_SECONDS
    assert next_units(model, slots, remaining) <= max(most / model.per_unit, 1.0)


@given(st.integers(1, 32), st.integers(100, 10**6))
def test_batches_taper_to_the_end(slots: int, total: int) -> None:
    model = a_model(CostHint(unit="residues", startup_seconds=0.0), [(1000, 1.0), (2000, 2.0)])
    left, sizes = float(total), []
    while left > 0 and len(sizes) < 20_000:
        sizes.append(next_units(model, slots, left))
        left -= sizes[-1]
    assert left <= 0, "the input never ends"
    assert all(later <= earlier for earlier, later in zip(sizes, sizes[1:], strict=False))
    assert sizes[-1] == 1


def test_a_pipe_gets_batches_of_some_seconds() -> None:
    model = a_model(CostHint(unit="bytes", startup_seconds=0.0), [(1000, 1.0)] * 3)
    assert next_units(model, 4, None) == LONGEST_UNKNOWN_SECONDS * 1000
