"""Group commit: a thread syncs the journal at intervals, so that no slot waits for a disk.

Synced results are final. So before each sync, the thread checks that inputs, databases and program have not changed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from millrace import _core
from millrace.errors import CorruptError, UnservedError
from millrace.output.guard import ChangeGuard

#: Unsynced bytes above which the journal is synced before the interval ends.
MAX_UNSYNCED_BYTES = 64 << 20

#: Shortest and longest pause between checks of the journal, in seconds.
PAUSE_RANGE_SECONDS = (0.01, 0.25)

#: Longest time between two checks of the planned files, in seconds, with nothing to commit; and the shortest pause
#: between two checks, as a multiple of the duration of one.
MAX_CHECK_INTERVAL_SECONDS, MIN_REST_FACTOR = 4.0, 100.0


class GroupCommit:
    """A thread that syncs ``journal`` within ``seconds`` of an append.

    ``error`` is set if that fails, or if ``guard`` finds a change.
    """

    def __init__(self, journal: _core.Journal, seconds: float, wake: Callable[[], None], guard: ChangeGuard) -> None:
        self.error: BaseException | None = None
        self._journal, self._seconds, self._wake, self._guard = journal, seconds, wake, guard
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run_commits, name="group commit", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread; the caller syncs the rest."""
        self._stop.set()
        self._thread.join()

    def _run_commits(self) -> None:
        synced, took = time.monotonic(), 0.0
        while not self._stop.wait(min(max(self._seconds / 4, PAUSE_RANGE_SECONDS[0]), PAUSE_RANGE_SECONDS[1])):
            now = time.monotonic()
            waiting, idle = self._journal.unsynced, now - synced
            due = (waiting or self._guard.has_unchecked_results) and idle >= max(self._seconds, MIN_REST_FACTOR * took)
            if (
                due
                or waiting > MAX_UNSYNCED_BYTES
                or idle >= max(MAX_CHECK_INTERVAL_SECONDS, self._seconds, MIN_REST_FACTOR * took)
            ):
                try:
                    took = commit_journal(self._journal, self._guard)
                except UnservedError:
                    pass  # nothing is final until it is mounted again; else failing tools end the run
                except (OSError, _core.CorruptJournal, CorruptError) as error:
                    self.error = error
                    self._wake()
                    return
                synced = now


def commit_journal(journal: _core.Journal, guard: ChangeGuard) -> float:
    """Check that nothing has changed, and sync the journal; return the seconds that the check took.

    Raises:
        CorruptError: A planned file has changed.
    """
    sure = journal.end  # blocks up to here were computed before the check
    took = guard.check_unchanged()
    if journal.unsynced:
        journal.sync(sure)
    return took
