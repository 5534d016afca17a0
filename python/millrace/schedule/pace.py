"""The poll interval of a node agent: none where a slot may be idle, longer while work waits for its slots. Pure.

Slots start the next task by themselves. While tasks wait at the node, nothing waits for the agent, and events can be
handled and reported together: one wake-up, one message. Many processes that wake up for each task would take the time
that the tools need.
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
