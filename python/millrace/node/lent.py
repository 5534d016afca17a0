"""Slots that several phases share, leased to those that have tasks."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Protocol


class Lender(Protocol):
    """The owner of shared slots."""

    def lend(self, allow: Callable[[int], None]) -> None:
        """Have ``allow`` called, from any thread, with the number of slots to use when it changes; 0 before."""

    def work(self, wanted: int, running: int) -> None:
        """Report the number of tasks that wait or run, and the number that run."""


class Share:
    """The lease on the slots of a pool: as many as the lender and the memory allow.

    Args:
        allow: Sets the number of slots that the pool uses; ``ValueError`` if it is closed.
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
        with suppress(ValueError):  # the pool is closed, and no task runs
            self._allow(min(self._lent, self._by_memory))

    def by_memory(self, slots: int) -> None:
        """Set the number of slots that the memory allows."""
        self._by_memory = slots
        self._allow(min(self._lent, self._by_memory))
        self._tell()

    def submitted(self, task: int) -> None:
        """Add a waiting task."""
        self._open.add(task)
        self._tell()

    def started(self, task: int) -> None:
        """Mark a task as running."""
        self._running.add(task)
        self._tell()

    def over(self, tasks: list[int]) -> None:
        """Remove tasks that have ended or were withdrawn."""
        self._open.difference_update(tasks)
        self._running.difference_update(tasks)
        self._tell()

    def _tell(self) -> None:
        self._lender.work(min(len(self._open), self._by_memory), len(self._running))
