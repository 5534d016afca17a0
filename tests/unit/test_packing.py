"""When messages are compressed."""

from __future__ import annotations

import pytest

from millrace import _core
from millrace.scheduler.message_timing import MIN_MESSAGE_BYTES, MIN_TIMED_BYTES, MessageCompression


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
