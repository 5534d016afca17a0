"""Group commit: a thread that brings the journal to the disk now and then, so that no slot waits for a disk."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from millrace import _core

#: So many bytes are brought to the disk even before the time is over.
SYNC_BYTES = 64 << 20

#: Shortest and longest pause between looks at the journal, in seconds.
PAUSES = (0.01, 0.25)


class GroupCommit:
    """Syncs ``journal`` at the latest ``seconds`` after something was appended; ``error`` is set if that fails."""

    def __init__(self, journal: _core.Journal, seconds: float, wake: Callable[[], None]) -> None:
        self.error: BaseException | None = None
        self._journal, self._seconds, self._wake = journal, seconds, wake
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="group commit", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread; what is not yet on disk then is the caller's to sync."""
        self._stop.set()
        self._thread.join()

    def _serve(self) -> None:
        synced = time.monotonic()
        while not self._stop.wait(min(max(self._seconds / 4, PAUSES[0]), PAUSES[1])):
            now = time.monotonic()
            waiting = self._journal.unsynced
            if waiting > SYNC_BYTES or (waiting and now - synced >= self._seconds):
                try:
                    self._journal.sync()
                except (OSError, _core.CorruptJournal) as error:
                    self.error = error
                    self._wake()
                    return
                synced = now
