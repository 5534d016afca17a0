"""Waiting: what ends it, and how long naps are. No clock decides here but the one that is made up."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from millrace.core import wait_loop
from millrace.core.wait_loop import PollBackoff, WaitDeadline, wait_until


class Clock:
    """Time that passes only while somebody sleeps."""

    def __init__(self) -> None:
        self.now, self.slept = 100.0, list[float]()

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    found = Clock()
    monkeypatch.setattr(wait_loop, "time", found)
    yield found


def test_ready_value_is_returned_without_a_pause(clock: Clock) -> None:
    assert wait_until(lambda: "here", 0.0, nap=1.0) == "here"
    assert clock.slept == []


def test_timeout_ends_the_wait_after_a_last_check(clock: Clock) -> None:
    assert wait_until(lambda: None, 3.0, nap=1.0) is None
    assert clock.slept == [1.0, 1.0, 1.0]


def test_pauses_grow_up_to_the_maximum(clock: Clock) -> None:
    wait_until(lambda: clock.now >= 120.0, nap=PollBackoff(1.0, 4.0))
    assert clock.slept[:4] == [1.0, 2.0, 4.0, 4.0]


def test_wait_ends_without_a_pause_once_enough(clock: Clock) -> None:
    asked = iter([False, True])
    assert not wait_until(lambda: 0, nap=1.0, enough=lambda: next(asked))
    assert clock.slept == [1.0]


def test_error_of_the_condition_is_raised(clock: Clock) -> None:
    def look() -> bool:
        raise RuntimeError("node lost")

    with pytest.raises(RuntimeError, match="node lost"):
        wait_until(look, nap=1.0)


def test_deadline_restarts_on_progress(clock: Clock) -> None:
    deadline = WaitDeadline(2.0)
    clock.now += 1.5
    deadline.restart()
    clock.now += 1.5
    assert not deadline.is_over
    clock.now += 0.5
    assert deadline.is_over


def test_pauses_are_short_again_after_an_event() -> None:
    naps = PollBackoff(1.0, 8.0)
    naps.lengthen_pause()
    naps.lengthen_pause()
    assert naps.seconds == 4.0
    naps.reset_pause(0.5)
    assert naps.seconds == 0.5
    naps.reset_pause()
    assert naps.seconds == 1.0
