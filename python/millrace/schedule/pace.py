"""How soon a node agent has to look up: at once where a slot may be idle, later while work waits for its slots. Pure.

Slots take the next task by themselves. While tasks wait here, nobody waits for the agent, and what has happened can
be handled and told together: one wake-up, one message. Many processes that wake up for each task would take the time
that the tools need.
"""

from __future__ import annotations

#: Seconds of work that wait for a slot, for each second that the agent may wait.
SAFETY = 4.0

#: Longest wait, in seconds.
LONGEST = 0.05

#: Shorter waits save nothing.
SHORTEST = 0.002

#: Weight that an older task time keeps when a new one comes.
MEMORY = 0.9


class Pace:
    """What is known of the slots of one node.

    Args:
        slots: How many there are.
    """

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._here = 0
        self._seconds = 0.0

    def submitted(self, tasks: int = 1) -> None:
        """So many tasks more are here."""
        self._here += tasks

    def ended(self, seconds: float) -> None:
        """A task is no longer here; it ran for so long, or 0: it did not run."""
        self._here -= 1
        if seconds > 0:
            self._seconds = MEMORY * self._seconds + (1 - MEMORY) * seconds if self._seconds else seconds

    def rest(self) -> float:
        """Seconds for which nothing that happens here, or is said, needs an answer; 0: it may need one at once.

        As long as enough tasks wait for the slots: the time in which these come to an end, divided by `SAFETY`.
        """
        waiting = self._here - self._slots
        if waiting <= 0:
            return 0.0
        rest = min(waiting * self._seconds / self._slots / SAFETY, LONGEST)
        return rest if rest >= SHORTEST else 0.0
