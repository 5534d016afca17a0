"""Reduction of the slots in use when the memory of a node runs out."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from millrace.plan import memory
from millrace.schedule.memory import MemoryAllowance
from millrace.tasks import SlotsChanged, TaskEnded
from millrace.words import format_count, format_size


class MemoryLimiter:
    """Limiter that reduces the slots in use after tools were killed for lack of memory.

    Args:
        allow: Sets the number of slots in use.
        slots: Number of slots.
    """

    def __init__(self, allow: Callable[[int], None], slots: int) -> None:
        limit, self._source = memory.read_usable_memory()
        self._allow, self._allowance = allow, MemoryAllowance(slots, limit)

    def adapt_slots(self, ended: Iterable[TaskEnded]) -> list[SlotsChanged]:
        """Adapt the slots in use to tasks that have ended; return the changes."""
        allowance, found = self._allowance, list[SlotsChanged]()
        for event in ended:
            if allowance.record_task(
                out_of_memory=event.out_of_memory, side_by_side=event.side_by_side, peak_bytes=event.peak_rss_bytes
            ):
                self._allow(allowance.allowed)
                found.append(SlotsChanged(allowance.allowed, self._explain_change(event)))
        return found

    def _explain_change(self, event: TaskEnded) -> str:
        now = format_count(self._allowance.allowed, "slot")
        if not event.out_of_memory:
            return f"tools take little memory: going on with {now}"
        return (
            f"memory ran out with {event.side_by_side} tools side by side, one of them with {format_size(event.peak_rss_bytes)} "
            f"({self._source}: {format_size(self._allowance.limit_bytes)}): going on with {now}"
        )
