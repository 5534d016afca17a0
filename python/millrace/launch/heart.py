"""The coordinator's heartbeat, for the supervisor that started it; see ``millrace.launch.watch``.

It begins before the slow imports, so it imports little itself: only its beats tell a frozen coordinator from a slow one,
and before the first beat, the progress of other ranks.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

from millrace.launch import mpi_environment
from millrace.launch.watch import HEARTBEAT, OTHERS, STARTING

#: Seconds between heartbeats.
BEAT_INTERVAL_SECONDS = 1.0

#: Seconds without a tick of the run's loop after which heartbeats stop.
MAX_TICK_SECONDS = 10.0


class CoordinatorHeartbeat:
    """The heartbeat of a coordinator, written by a thread of its own.

    Args:
        path: The heartbeat file.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        #: Records that are done.
        self.records = 0
        #: Time of the last tick of the run's loop; None: no loop is running, so ticks are not expected.
        self.turned: float | None = None
        #: Whether MPI is starting, which blocks all threads of this process until the last rank has joined.
        self.starting = False
        self._beats = 0
        self._lock = threading.Lock()
        #: Called at each beat.
        self.also: Callable[[], None] | None = None
        threading.Thread(target=self._beat_until_exit, name="heartbeat", daemon=True).start()

    def write_beat(self) -> None:
        """Write one heartbeat: its number, the records done, and whether MPI is starting."""
        # A beat of the thread must not overwrite a newer one of a caller.
        with self._lock, suppress(OSError), open(self._path, "w") as file:
            self._beats += 1
            file.write(f"{self._beats} {self.records}{f' {STARTING}' if self.starting else ''}\n")

    def _beat_until_exit(self) -> None:
        while True:
            turned = self.turned
            if turned is None or time.monotonic() - turned < MAX_TICK_SECONDS:
                self.write_beat()
            if self.also:
                self.also()
            time.sleep(BEAT_INTERVAL_SECONDS)


#: Number of other ranks that report their start: enough if one is lost, and few enough for any shared disk.
MAX_REPORTING_RANKS = 2

_heartbeat: CoordinatorHeartbeat | None = None


def start_heartbeat(environ: Mapping[str, str]) -> CoordinatorHeartbeat | None:
    """Start the heartbeat of this process, once; return it; None: this is no coordinator with a supervisor."""
    global _heartbeat
    if _heartbeat is None and environ.get(HEARTBEAT):
        job = mpi_environment.find_launched_process(environ)
        if not job or not job.rank:
            _heartbeat = CoordinatorHeartbeat(environ[HEARTBEAT])
        elif job.rank <= MAX_REPORTING_RANKS:
            with suppress(OSError), open(environ[OTHERS], "w") as file:
                file.write(f"{job.rank}\n")
    return _heartbeat
