"""The coordinator's heartbeat, for the supervisor that started it; see `millrace.launch.watch`.

It begins before what takes long on a slow disk is imported, and so imports next to nothing: a coordinator that froze
is told from one that is slow by its beats alone, and before the first of them by what other ranks have done.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

from millrace.launch import mpi_environment
from millrace.launch.watch import HEARTBEAT, OTHERS, STARTING

#: Seconds between heartbeats.
BEAT_SECONDS = 1.0

#: Seconds without a turn of the loop after which there are none.
LONGEST_TURN_SECONDS = 10.0


class Heart:
    """Beats in a thread of its own.

    Args:
        path: The file that shows it.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        #: Records that are done.
        self.records = 0
        #: When the run's loop turned last; None: no loop is running, what goes on may take any time.
        self.turned: float | None = None
        #: Whether MPI is starting, which keeps all of this process waiting until the last rank is there.
        self.starting = False
        self._beats = 0
        self._lock = threading.Lock()
        #: What else is to be done at each beat.
        self.also: Callable[[], None] | None = None
        threading.Thread(target=self._serve, name="heartbeat", daemon=True).start()

    def beat(self) -> None:
        """Show that this process lives."""
        # The thread's own beat must not write over one that says more.
        with self._lock, suppress(OSError), open(self._path, "w") as file:
            self._beats += 1
            file.write(f"{self._beats} {self.records}{f' {STARTING}' if self.starting else ''}\n")

    def _serve(self) -> None:
        while True:
            turned = self.turned
            if turned is None or time.monotonic() - turned < LONGEST_TURN_SECONDS:
                self.beat()
            if self.also:
                self.also()
            time.sleep(BEAT_SECONDS)


#: Ranks that say that they have begun: enough, should one be lost, and few enough for any shared disk.
WITNESSES = 2

_heart: Heart | None = None


def begin(environ: Mapping[str, str]) -> Heart | None:
    """The heart of this process, which beats from the first call on; None: it is no coordinator with a supervisor."""
    global _heart
    if _heart is None and environ.get(HEARTBEAT):
        job = mpi_environment.find(environ)
        if not job or not job.rank:
            _heart = Heart(environ[HEARTBEAT])
        elif job.rank <= WITNESSES:
            with suppress(OSError), open(environ[OTHERS], "w") as file:
                file.write(f"{job.rank}\n")
    return _heart
