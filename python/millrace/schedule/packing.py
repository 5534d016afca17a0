"""Whether a message is compressed before it is sent: where that is likely to bring it there sooner. Pure."""

from __future__ import annotations

#: Shorter messages are sent as they are, in bytes.
SMALLEST = 64 << 10

#: Pieces from so many bytes on tell how fast the network is; the time of shorter ones is that of looking for their end.
TELLING = 1 << 20

#: Weight that an older observation keeps when a new one comes.
MEMORY = 0.8


class Packing:
    """What was measured of network and compression, in bytes a second; first guesses of the latter."""

    def __init__(self) -> None:
        self._network = 0.0
        self._speed = 400e6
        #: Size after over size before.
        self._ratio = 0.5

    def sent(self, size: int, seconds: float) -> None:
        """A piece of ``size`` bytes was under way so long, until somebody looked."""
        if size >= TELLING:
            # As fast as the fastest of late: others waited behind more, or were not looked at for a while.
            self._network = max(size / max(seconds, 1e-6), MEMORY * self._network)

    def packed(self, before: int, after: int, seconds: float) -> None:
        """A message was compressed."""
        self._speed = MEMORY * self._speed + (1 - MEMORY) * before / max(seconds, 1e-6)
        self._ratio = MEMORY * self._ratio + (1 - MEMORY) * after / before

    def pays(self, size: int) -> bool:
        """Whether to compress a message of ``size`` bytes; never while nothing is known of the network."""
        if size < SMALLEST or not self._network:
            return False
        return size / self._speed + size * self._ratio / self._network < size / self._network
