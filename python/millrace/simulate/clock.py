"""The simulated clock: a queue of events in the order of time."""

from __future__ import annotations

import heapq
from enum import IntEnum
from itertools import count


class ClockEvent(IntEnum):
    """The kinds of events, named from the side of their receiver; the number orders events of equal time."""

    TASK_ENDED = 0
    ROOT_TOLD = 1
    LEADER_TOLD = 2
    LEADER_GETS = 3
    NODE_GETS = 4
    LOOK = 5
    NODE_DIES = 6
    NODE_MISSED = 7


class EventClock:
    """The pending events."""

    def __init__(self) -> None:
        self._events: list[tuple[float, int, int, int, int]] = []
        self._serial = count()

    def schedule_event(self, seconds: float, what: ClockEvent, member: int, task: int) -> None:
        """Schedule an event at the time ``seconds``, in seconds since the start."""
        heapq.heappush(self._events, (seconds, what, next(self._serial), member, task))

    def pop_event(self) -> tuple[float, int, int, int]:
        """Remove and return the next event, as (time, what, member, task)."""
        seconds, what, _, member, task = heapq.heappop(self._events)
        return seconds, what, member, task
