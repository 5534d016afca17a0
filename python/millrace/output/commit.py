"""Group commit: a thread that brings the journal to the disk now and then, so that no slot waits for a disk.

What it has brought there counts, whatever comes: before, it has looked whether all that it depends on was as planned.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from millrace import _core
from millrace.errors import CorruptError, UnservedError
from millrace.output.guard import Guard

#: So many bytes are brought to the disk even before the time is over.
SYNC_BYTES = 64 << 20

#: Shortest and longest pause between looks at the journal, in seconds.
PAUSES = (0.01, 0.25)

#: Longest time between two looks at the world, in seconds, however little there is to commit; and how many times the
#: time that a look takes must pass between two.
LOOK_SECONDS, REST = 4.0, 100.0


class GroupCommit:
    """Syncs ``journal`` at the latest ``seconds`` after something was appended; ``error`` is set if that fails, or if
    ``guard`` says that something has changed."""

    def __init__(self, journal: _core.Journal, seconds: float, wake: Callable[[], None], guard: Guard) -> None:
        self.error: BaseException | None = None
        self._journal, self._seconds, self._wake, self._guard = journal, seconds, wake, guard
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="group commit", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread; what is not yet on disk then is the caller's to sync."""
        self._stop.set()
        self._thread.join()

    def _serve(self) -> None:
        synced, took = time.monotonic(), 0.0
        while not self._stop.wait(min(max(self._seconds / 4, PAUSES[0]), PAUSES[1])):
            now = time.monotonic()
            waiting, idle = self._journal.unsynced, now - synced
            due = (waiting or self._guard.waits) and idle >= max(self._seconds, REST * took)
            if due or waiting > SYNC_BYTES or idle >= max(LOOK_SECONDS, self._seconds, REST * took):
                try:
                    took = commit(self._journal, self._guard)
                except UnservedError:
                    pass  # nothing is sure until it is mounted anew; who needs it fails, and ends the run if it stays away
                except (OSError, _core.CorruptJournal, CorruptError) as error:
                    self.error = error
                    self._wake()
                    return
                synced = now


def commit(journal: _core.Journal, guard: Guard) -> float:
    """Bring to the disk what there is, and count on it if the world is as planned; returns the seconds of the look.

    Raises:
        CorruptError: Something is not what it was.
    """
    sure = journal.end  # what is in the journal by now was done before the look
    took = guard.look()
    if journal.unsynced:
        journal.sync(sure)
    return took
