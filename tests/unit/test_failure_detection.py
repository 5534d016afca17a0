"""When processes that do not get ready are given up."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from millrace.cluster.failure_detection import (
    MAX_SILENCE_AT_START_SECONDS,
    MAX_STARTUP_TIME_RATIO,
    MIN_STARTUP_WAIT_SECONDS,
    StartupDeadline,
)


def test_last_missing_process_is_left_out_soon() -> None:
    muster = StartupDeadline(10.0, 4)
    assert not muster.is_late(13.0, 2)
    assert not muster.is_late(10.0 + MIN_STARTUP_WAIT_SECONDS, 3)
    assert muster.is_late(10.5 + MIN_STARTUP_WAIT_SECONDS, 3)


def test_wait_doubles_after_a_failed_start() -> None:
    for patience, limit in (
        (1.0, MIN_STARTUP_WAIT_SECONDS),
        (2.0, 2 * MIN_STARTUP_WAIT_SECONDS),
        (16.0, MAX_SILENCE_AT_START_SECONDS),
        (math.inf, MAX_SILENCE_AT_START_SECONDS),
    ):
        muster = StartupDeadline(0.0, 4, patience)
        assert not muster.is_late(0.5, 3)
        assert not muster.is_late(limit - 0.1, 3)
        assert muster.is_late(limit + 0.1, 3)


def test_all_processes_may_be_slow_before_half_are_ready() -> None:
    muster = StartupDeadline(0.0, 4)
    assert not muster.is_late(MAX_SILENCE_AT_START_SECONDS - 1, 1)
    assert muster.is_late(MAX_SILENCE_AT_START_SECONDS + 1, 1)


@given(st.integers(1, 2000), st.floats(0, 100), st.floats(0, 200))
def test_deadline_is_a_multiple_of_the_time_of_half(n: int, half: float, later: float) -> None:
    muster = StartupDeadline(0.0, n)
    muster.is_late(half, (n + 1) // 2)
    now = half + later
    if now <= min(MAX_SILENCE_AT_START_SECONDS, max(MIN_STARTUP_WAIT_SECONDS, MAX_STARTUP_TIME_RATIO * half)):
        assert not muster.is_late(now, n - 1)
    elif now > MAX_SILENCE_AT_START_SECONDS:
        assert muster.is_late(now, n - 1)
