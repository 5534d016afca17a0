"""Slots that others use too, and that are lent to who has something to do."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Protocol


class Lender(Protocol):
    """Who has the slots."""

    def lend(self, allow: Callable[[int], None]) -> None:
        """Have ``allow`` called, from any thread, with the number of slots that may be used, whenever it changes; none before."""

    def work(self, wanted: int, running: int) -> None:
        """Hear how many tasks wait or run, and how many of them run."""


class Share:
    """The slots of a pool that may be used now: as many as are lent, and as memory is there for.

    Args:
        allow: Lets the pool use so many; `ValueError` if it is closed.
        slots: Slots of the pool.
    """

    def __init__(self, lender: Lender, allow: Callable[[int], None], slots: int) -> None:
        self._lender, self._allow = lender, allow
        self._by_memory, self._lent = slots, 0
        self._open: set[int] = set()
        self._running: set[int] = set()
        allow(0)
        lender.lend(self._by_lender)

    def _by_lender(self, slots: int) -> None:
        self._lent = slots
        with suppress(ValueError):  # the pool is closed: nothing runs there any more
            self._allow(min(self._lent, self._by_memory))

    def by_memory(self, slots: int) -> None:
        """There is memory for so many."""
        self._by_memory = slots
        self._allow(min(self._lent, self._by_memory))
        self._tell()

    def submitted(self, task: int) -> None:
        """A task waits."""
        self._open.add(task)
        self._tell()

    def started(self, task: int) -> None:
        """A task runs."""
        self._running.add(task)
        self._tell()

    def over(self, tasks: list[int]) -> None:
        """Tasks have ended, or are not to run."""
        self._open.difference_update(tasks)
        self._running.difference_update(tasks)
        self._tell()

    def _tell(self) -> None:
        self._lender.work(min(len(self._open), self._by_memory), len(self._running))
