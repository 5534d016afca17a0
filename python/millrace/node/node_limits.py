"""Limits of a node during a run: fewer slots when memory runs out, and lost mounts.

Failures while a mounted filesystem is not served are delayed until it is mounted again. A delayed task still occupies
its slot, so no more tasks are assigned than slots and their queues hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from millrace.core.tasks import SlotEvent, SlotsChanged, TaskEnded, TaskEnding
from millrace.core.text_format import format_count, format_size
from millrace.host import memory_limits
from millrace.scheduler.limits import MemoryAllowance

#: Longest wait, from the first failure on, in seconds.
MAX_ABSENCE_SECONDS = 60.0

#: Interval between checks of the filesystems, in seconds.
POLL_INTERVAL_SECONDS = 1.0

#: Endings that do not depend on the files that tools read.
OTHERS = frozenset([TaskEnding.DONE, TaskEnding.KILLED, TaskEnding.MISPLACED, TaskEnding.IO, TaskEnding.UNEQUAL])


class FilesystemAbsence:
    """Filter that delays failures while a filesystem is not served. Pure except for its checks.

    Args:
        unserved: Returns the mount point of the first filesystem that no process serves; empty if there is none.
        say: Called with a sentence for the user.
    """

    def __init__(self, unserved: Callable[[], str], say: Callable[[str], None]) -> None:
        self._unserved, self._say = unserved, say
        self._held: list[TaskEnded] = []
        #: Mount point that is not served; end of the wait, and time of the next check, in seconds.
        self._point = ""
        self._until = self._next = 0.0
        self._is_over = False

    def stop_waiting(self) -> None:
        """Stop waiting."""
        self._is_over = True

    def filter_events(self, news: Sequence[SlotEvent], now: float) -> list[SlotEvent]:
        """Return the events to report at ``now``, in seconds.

        Delayed failures become ``TaskEnding.AWAY`` when the filesystem is served again, or after ``FilesystemAbsence.stop_waiting``; after
        the longest wait they stay failures.
        """
        failed = [each for each in news if isinstance(each, TaskEnded) and _may_be_away(each)]
        if failed or (self._held and now >= self._next):
            self._check_filesystems(now)
        if self._point and now < self._until and not self._is_over:
            self._held += failed
            return [each for each in news if each not in failed]
        held, self._held = self._held, []
        return [*news, *(held if self._point and not self._is_over else map(_mark_away, held))]

    def _check_filesystems(self, now: float) -> None:
        before, self._point, self._next = self._point, self._unserved(), now + POLL_INTERVAL_SECONDS
        if self._point and not before:
            self._until = now + MAX_ABSENCE_SECONDS
            self._say(
                f"{self._point}: nobody serves what was mounted there any more; waiting {MAX_ABSENCE_SECONDS:.0f} s at most for "
                "it to be mounted anew"
            )
        if before and not self._point:
            self._say(f"{before}: is served again; what failed meanwhile is run again")


def _may_be_away(ended: TaskEnded) -> bool:
    return ended.ending not in OTHERS and not ended.out_of_memory


def _mark_away(ended: TaskEnded) -> TaskEnded:
    return msgspec.structs.replace(ended, ending=TaskEnding.FILESYSTEM_GONE)


class MemoryLimiter:
    """Limiter that reduces the slots in use after tools were killed for lack of memory.

    Args:
        allow: Sets the number of slots in use.
        slots: Number of slots.
    """

    def __init__(self, allow: Callable[[int], None], slots: int) -> None:
        limit, self._source = memory_limits.read_usable_memory()
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
