"""Decision whether to compress a message: where that is likely to deliver it sooner. Pure."""

from __future__ import annotations

#: Shorter messages are sent uncompressed, in bytes.
MIN_MESSAGE_BYTES = 64 << 10

#: Minimum size of a message whose time measures the network; for shorter ones it measures the polling.
MIN_TIMED_BYTES = 1 << 20

#: Weight of older observations when a new one is measured.
SPEED_MEMORY = 0.8


class MessageCompression:
    """Measured bytes per second of network and compression; first guesses of the latter."""

    def __init__(self) -> None:
        self._network = 0.0
        self._speed = 400e6
        #: Size after compression over size before.
        self._ratio = 0.5

    def observe_send(self, size: int, seconds: float) -> None:
        """Learn from a message of ``size`` bytes that was in flight for ``seconds``, until it was polled."""
        if size >= MIN_TIMED_BYTES:
            # The fastest recent one counts: others waited behind more data, or were polled late.
            self._network = max(size / max(seconds, 1e-6), SPEED_MEMORY * self._network)

    def observe_compression(self, before: int, after: int, seconds: float) -> None:
        """Learn from a message that was compressed."""
        self._speed = SPEED_MEMORY * self._speed + (1 - SPEED_MEMORY) * before / max(seconds, 1e-6)
        self._ratio = SPEED_MEMORY * self._ratio + (1 - SPEED_MEMORY) * after / before

    def should_compress(self, size: int) -> bool:
        """Tell whether to compress a message of ``size`` bytes; never while the network is not measured."""
        if size < MIN_MESSAGE_BYTES or not self._network:
            return False
        return size / self._speed + size * self._ratio / self._network < size / self._network
