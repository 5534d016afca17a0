"""How long a node agent may look away."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from millrace.schedule.pace import LONGEST, SAFETY, SHORTEST, Pace


@given(st.integers(1, 64), st.integers(0, 300), st.lists(st.floats(1e-4, 100), min_size=1, max_size=20))
def test_what_waits_lasts_longer_than_the_rest(slots: int, here: int, times: list[float]) -> None:
    pace = Pace(slots)
    pace.submitted(here + len(times))
    for seconds in times:
        pace.ended(seconds)
    rest = pace.rest()
    assert rest == 0 or SHORTEST <= rest <= LONGEST
    if here <= slots:
        assert rest == 0, "a slot may be idle, or about to be"
    # Even if all tasks take as long as the shortest so far and a slot has just taken one.
    assert rest * slots * SAFETY <= max(here - slots, 0) * max(times) * 1.001


def test_without_a_measure_nobody_rests() -> None:
    pace = Pace(2)
    pace.submitted(10)
    assert pace.rest() == 0
    pace.ended(0.0)  # withdrawn
    assert pace.rest() == 0
    pace.ended(0.1)
    assert pace.rest() == LONGEST
