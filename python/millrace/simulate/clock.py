"""The simulated clock: what happens next, in the order of time."""

from __future__ import annotations

import heapq
from enum import IntEnum
from itertools import count


class What(IntEnum):
    """What happens, in the words of the one to whom it happens. The number decides between events of one time."""

    TASK_ENDED = 0
    ROOT_TOLD = 1
    LEADER_TOLD = 2
    LEADER_GETS = 3
    NODE_GETS = 4
    LOOK = 5
    NODE_DIES = 6
    NODE_MISSED = 7


class Clock:
    """Events that are still to come."""

    def __init__(self) -> None:
        self._events: list[tuple[float, int, int, int, int]] = []
        self._serial = count()

    def later(self, seconds: float, what: What, member: int, task: int) -> None:
        """Let ``what`` happen to ``member`` at a time."""
        heapq.heappush(self._events, (seconds, what, next(self._serial), member, task))

    def next(self) -> tuple[float, int, int, int]:
        """The next event, as (time, what, member, task)."""
        seconds, what, _, member, task = heapq.heappop(self._events)
        return seconds, what, member, task
