"""How long a node agent may look away."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from millrace.scheduler.message_timing import MAX_INTERVAL_SECONDS, MIN_INTERVAL_SECONDS, SAFETY, PollInterval


@given(st.integers(1, 64), st.integers(0, 300), st.lists(st.floats(1e-4, 100), min_size=1, max_size=20))
def test_poll_interval_is_below_the_time_to_an_idle_slot(slots: int, here: int, times: list[float]) -> None:
    pace = PollInterval(slots)
    pace.add_tasks(here + len(times))
    for seconds in times:
        pace.remove_task(seconds)
    rest = pace.compute_interval()
    assert rest == 0 or MIN_INTERVAL_SECONDS <= rest <= MAX_INTERVAL_SECONDS
    if here <= slots:
        assert rest == 0, "a slot may be idle, or about to be"
    # Even if all tasks take as long as the shortest so far and a slot has just taken one.
    assert rest * slots * SAFETY <= max(here - slots, 0) * max(times) * 1.001


def test_poll_interval_without_a_measure_is_zero() -> None:
    pace = PollInterval(2)
    pace.add_tasks(10)
    assert pace.compute_interval() == 0
    pace.remove_task(0.0)  # withdrawn
    assert pace.compute_interval() == 0
    pace.remove_task(0.1)
    assert pace.compute_interval() == MAX_INTERVAL_SECONDS
