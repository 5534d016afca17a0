"""Waiting: the one loop in which a process looks for something, and the one idea of when it ends.

Whoever waits looks, and looks again after a nap, until there is something, until the time is over, or until nobody wants it
any more, as after a second Ctrl-C. What makes waiting useless, such as a node that is lost, is an error: the look raises it.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

Found = TypeVar("Found")


class Deadline:
    """So many seconds from now; `math.inf`: never."""

    def __init__(self, seconds: float = math.inf) -> None:
        self._seconds = seconds
        self.restart()

    def restart(self) -> None:
        """Begin anew: something has moved."""
        self._at = time.monotonic() + self._seconds

    @property
    def is_over(self) -> bool:
        return time.monotonic() >= self._at


class Naps:
    """Pauses between looks, which grow while nothing comes.

    Args:
        shortest: The first one, in seconds.
        longest: They do not grow beyond, in seconds; None: they do not grow.
        growth: How many times longer each is than the one before.

    >>> naps = Naps(0.001, 0.003)
    >>> for _ in range(2):
    ...     naps.nothing_came()
    >>> naps.seconds
    0.003
    >>> naps.something_came()
    >>> naps.seconds
    0.001
    """

    def __init__(self, shortest: float, longest: float | None = None, growth: float = 2.0) -> None:
        self._shortest, self._longest, self._growth = shortest, longest or shortest, growth
        #: The next one.
        self.seconds = shortest

    def something_came(self, shortest: float | None = None) -> None:
        """Look soon again: after ``shortest`` seconds, where it is not the usual time."""
        self.seconds = self._shortest if shortest is None else shortest

    def nothing_came(self) -> None:
        """The next nap is longer."""
        self.seconds = min(self.seconds * self._growth, self._longest)


def until(
    look: Callable[[], Found], seconds: float = math.inf, *, nap: float | Naps = 0.0,
    enough: Callable[[], object] = bool,
) -> Found:  # fmt: skip
    """Look until there is something; return what there is, which is nothing (false) if waiting ended before.

    Args:
        look: Looks once. It raises what makes waiting useless.
        seconds: After which nobody waits any more; at least one look is taken.
        nap: Seconds between looks; 0: the look itself takes its time.
        enough: Whether nobody wants it any more.

    >>> ticks = iter([0, 0, 3])
    >>> until(lambda: next(ticks), nap=0.0001)
    3
    >>> until(lambda: [], seconds=0.0)
    []
    """
    naps = nap if isinstance(nap, Naps) else Naps(nap)
    deadline = Deadline(seconds)
    while not (found := look()) and not deadline.is_over and not enough():
        if naps.seconds:
            time.sleep(naps.seconds)
            naps.nothing_came()
    return found


def open_process_end(pid: int) -> int:
    """Open a descriptor that becomes readable once a child of ours has ended; it does not reap the child.

    Kernels before 5.3, and containers whose profile does not know ``pidfd_open``, leave that to a thread.
    """
    with suppress(OSError):
        return os.pidfd_open(pid)
    reading, writing = os.pipe()

    def wait() -> None:
        with suppress(ChildProcessError):  # somebody has reaped it, so it has ended
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        os.close(writing)

    threading.Thread(target=wait, daemon=True).start()
    return reading
