"""Waiting: the one polling loop, with one rule for its end.

The loop calls a function, pauses, and calls it again until it returns something, the time is over, or the result is not
wanted any more, as after a second Ctrl-C. If waiting has become useless, as after the loss of a node, the function
raises.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")


class WaitDeadline:
    """A point in time, a number of seconds from now; ``math.inf``: never."""

    def __init__(self, seconds: float = math.inf) -> None:
        self._seconds = seconds
        self.restart()

    def restart(self) -> None:
        """Restart the time: there was progress."""
        self._at = time.monotonic() + self._seconds

    @property
    def is_over(self) -> bool:
        return time.monotonic() >= self._at


class PollBackoff:
    """Pauses between polls, which grow while nothing comes.

    Args:
        shortest: The first one, in seconds.
        longest: Upper limit in seconds; None: pauses do not grow.
        growth: Factor from one pause to the next.

    >>> naps = PollBackoff(0.001, 0.003)
    >>> for _ in range(2):
    ...     naps.lengthen_pause()
    >>> naps.seconds
    0.003
    >>> naps.reset_pause()
    >>> naps.seconds
    0.001
    """

    def __init__(self, shortest: float, longest: float | None = None, growth: float = 2.0) -> None:
        self._shortest, self._longest, self._growth = shortest, longest or shortest, growth
        #: Length of the next pause.
        self.seconds = shortest

    def reset_pause(self, shortest: float | None = None) -> None:
        """Reset the next pause to ``shortest`` seconds, by default the usual shortest one."""
        self.seconds = self._shortest if shortest is None else shortest

    def lengthen_pause(self) -> None:
        """Lengthen the next pause."""
        self.seconds = min(self.seconds * self._growth, self._longest)


def wait_until(
    look: Callable[[], Found], seconds: float = math.inf, *, nap: float | PollBackoff = 0.0,
    enough: Callable[[], object] = bool,
) -> Found:  # fmt: skip
    """Poll until there is a result; return it, or the last false result if waiting ended before.

    Args:
        look: Called at each poll. Raises if waiting has become useless.
        seconds: Timeout; ``look`` is called at least once.
        nap: Seconds between polls; 0: ``look`` blocks by itself.
        enough: Tells whether the result is not wanted any more.

    >>> ticks = iter([0, 0, 3])
    >>> wait_until(lambda: next(ticks), nap=0.0001)
    3
    >>> wait_until(lambda: [], seconds=0.0)
    []
    """
    naps = nap if isinstance(nap, PollBackoff) else PollBackoff(nap)
    deadline = WaitDeadline(seconds)
    while not (found := look()) and not deadline.is_over and not enough():
        if naps.seconds:
            time.sleep(naps.seconds)
            naps.lengthen_pause()
    return found
