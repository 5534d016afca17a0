"""Poll interval of a node agent, and the decision whether to compress a message. Pure.

Slots start the next task by themselves. While tasks wait at the node, nothing waits for the agent, and events can be
handled and reported together: one wake-up, one message. Many processes that wake up for each task would take the time
that the tools need. So an agent polls without a pause where a slot may be idle, and less often while work waits for
its slots. A message is compressed where that is likely to deliver it sooner.
"""

from __future__ import annotations

#: Seconds of work that must wait for a slot for each second that the agent sleeps.
SAFETY = 4.0

#: Maximum interval, in seconds.
MAX_INTERVAL_SECONDS = 0.05

#: Shorter intervals save nothing.
MIN_INTERVAL_SECONDS = 0.002

#: Weight of older task times when a new one is measured.
POLL_MEMORY = 0.9


class PollInterval:
    """Poll interval of one node, computed from the tasks that wait at it.

    Args:
        slots: Number of slots of the node.
    """

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._here = 0
        self._seconds = 0.0

    def add_tasks(self, tasks: int = 1) -> None:
        """Count tasks that arrived."""
        self._here += tasks

    def remove_task(self, seconds: float) -> None:
        """Count a task as gone; ``seconds`` is its run time, or 0 if it did not run."""
        self._here -= 1
        if seconds > 0:
            self._seconds = POLL_MEMORY * self._seconds + (1 - POLL_MEMORY) * seconds if self._seconds else seconds

    def compute_interval(self) -> float:
        """Return the seconds for which no event or message needs a reply; 0: one may need a reply at once.

        While enough tasks wait for the slots: the time in which these end, divided by ``SAFETY``.
        """
        waiting = self._here - self._slots
        if waiting <= 0:
            return 0.0
        rest = min(waiting * self._seconds / self._slots / SAFETY, MAX_INTERVAL_SECONDS)
        return rest if rest >= MIN_INTERVAL_SECONDS else 0.0


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
