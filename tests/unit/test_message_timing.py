"""How long a node agent may look away, and when messages are compressed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace import _core
from millrace.scheduler.message_timing import (
    MAX_INTERVAL_SECONDS,
    MIN_INTERVAL_SECONDS,
    MIN_MESSAGE_BYTES,
    MIN_TIMED_BYTES,
    SAFETY,
    MessageCompression,
    PollInterval,
)


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


def test_packed_message_round_trips() -> None:
    text = b">seq\nMKVLAAGIVGLLLAQ\n" * 5000
    packed = _core.pack(text)
    assert len(packed) < len(text) // 10
    assert _core.unpack(packed) == text
    assert _core.unpack(_core.pack(b"")) == b""
    with pytest.raises(OSError):
        _core.unpack(b"no frame")


def test_packing_pays_on_a_slow_network_only() -> None:
    packing = MessageCompression()
    assert not packing.should_compress(1 << 30), "nothing is known"
    packing.observe_send(4 << 20, (4 << 20) / 1e9)
    assert not packing.should_compress(4 << 20)
    slow = MessageCompression()
    slow.observe_send(4 << 20, (4 << 20) / 50e6)
    assert slow.should_compress(4 << 20)
    assert not slow.should_compress(MIN_MESSAGE_BYTES - 1)
    slow.observe_send(MIN_TIMED_BYTES - 1, 1e-6)
    assert slow.should_compress(4 << 20), "a short piece says nothing"
    slow.observe_send(4 << 20, 0.001)
    assert not slow.should_compress(4 << 20), "it only had to wait"


def test_incompressible_bytes_are_soon_sent_unpacked() -> None:
    packing = MessageCompression()
    packing.observe_send(4 << 20, 0.05)
    tries = 0
    while packing.should_compress(4 << 20):
        packing.observe_compression(4 << 20, 4 << 20, 0.01)
        tries += 1
        assert tries < 30
