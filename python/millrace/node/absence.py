"""Handling of failures while a mounted filesystem is not served: they are delayed until it is mounted again.

A delayed task still occupies its slot, so no more tasks are assigned than slots and their queues hold.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from millrace.tasks import SlotEvent, TaskEnded, TaskEnding

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

        Delayed failures become ``Ending.AWAY`` when the filesystem is served again, or after ``FilesystemAbsence.stop_waiting``; after
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
