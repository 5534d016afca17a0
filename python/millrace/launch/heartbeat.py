"""Signs of life between supervisor and coordinator in one start of the ranks.

They are heartbeats and the marker of the end. The coordinator's heartbeat begins before the slow imports, so it
imports little itself: only its beats tell a frozen coordinator from a slow one, and before the first beat, the
progress of other ranks. No process is touched here.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from millrace.host import core_allocation

#: Environment variables that name the files; see ``CoordinatorSigns``.
HEARTBEAT, OTHERS, DONE, STOP, STDOUT = NAMES = (
    "MILLRACE_HEARTBEAT", "MILLRACE_OTHERS", "MILLRACE_DONE", "MILLRACE_STOP", "MILLRACE_STDOUT",
)  # fmt: skip

#: Environment variable with the path of the file on standard input, if it is one: launchers do not forward it reliably.
STDIN = "MILLRACE_STDIN"

#: Text that the coordinator writes in place of an exit code if a part of the job is lost.
AGAIN = "again"

#: Word in a heartbeat while MPI starts.
STARTING = "starting"

#: Seconds without a heartbeat after which the coordinator counts as frozen.
MAX_SILENCE_SECONDS = 10.0

#: The same until its first heartbeat, while the launcher reaches the nodes and Python starts.
MAX_START_SECONDS = 20.0

#: Seconds that each node adds to both limits until MPI has started on all.
MAX_START_SECONDS_PER_NODE = 0.1

#: Seconds from the first heartbeat with ``STARTING`` until MPI must have started on all nodes (each adds
#: ``MAX_START_SECONDS_PER_NODE``). The coordinator beats while it waits for a rank that froze between MPI_Init and the first
#: collective call, so that silence does not show it.
MAX_MPI_START_SECONDS = 30.0

#: Limit until the first heartbeat once another rank has begun, as a multiple of the time that this rank took: the
#: coordinator is not slow then. At least ``MAX_SILENCE_SECONDS``, at most the usual limit.
MAX_START_TIME_RATIO = 3.0


class CoordinatorSigns:
    """The files between supervisor and coordinator, in a folder that both can see; the supervisor's side.

    ``heartbeat`` holds the number of beats, the committed records and perhaps ``STARTING``, as text; ``done`` the exit code
    at the end of the run, or ``AGAIN``; ``others`` a rank once another one has begun; ``stop`` the forwarded signals, one a
    line. An empty file holds no information. ``stdout`` is standard output. Times are measured by this process only, as
    clocks of nodes differ.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        #: Whether the coordinator has sent a heartbeat since ``reset_for_start``.
        self.alive = False
        #: Largest number of committed records in any heartbeat of any start.
        self.records = 0
        self._seen = (b"", 0)
        self._changed = time.monotonic()
        #: Time of the first heartbeat that said that MPI starts; None: it does not.
        self._starting: float | None = None
        self._signals = 0
        #: Time of the start, and the seconds until another rank was seen; None: not yet.
        self._begun = time.monotonic()
        self._others: float | None = None

    @property
    def environ(self) -> dict[str, str]:
        """The environment variables that name the files for the coordinator."""
        return {name: str(self.folder / name.partition("_")[2].lower()) for name in NAMES}

    def reset_for_start(self) -> None:
        """Forget the signs of an earlier start."""
        for path in self.environ.values():
            # Empty, not absent: network filesystems cache the absence of a file longest.
            Path(path).write_bytes(b"")
        self._seen, self._changed, self.alive, self._signals = (b"", 0), time.monotonic(), False, 0
        self._starting = None
        self._begun, self._others = self._changed, None

    def read_heartbeat(self) -> None:
        """Read the heartbeat; before the first one, also the sign of another rank."""
        with suppress(OSError), open(self.folder / "heartbeat", "rb") as file:
            # Opening a file asks the server of a network filesystem, which ``stat`` may not.
            seen = (file.read(64), os.fstat(file.fileno()).st_mtime_ns)
            if seen[0] and seen != self._seen:
                self._seen, self._changed, self.alive = seen, time.monotonic(), True
                starts = seen[0].split()[-1:] == [STARTING.encode()]
                self._starting = (self._starting or self._changed) if starts else None
                with suppress(ValueError, IndexError):
                    self.records = max(self.records, int(seen[0].split()[1]))
        if not self.alive and self._others is None:
            with suppress(OSError), open(self.folder / "others", "rb") as file:
                if file.read(1):
                    self._others = time.monotonic() - self._begun

    def discount_standstill(self, seconds: float) -> None:
        """Subtract time in which this process was stopped: the coordinator was stopped, too, or its beats not read."""
        self._changed += seconds
        self._begun += seconds
        if self._starting is not None:
            self._starting += seconds

    def get_excessive_silence(self, n_nodes: int, patience: float) -> float:
        """Return the seconds since the last heartbeat if they exceed the limit, else 0.

        Args:
            patience: Factor by which the limits are stretched.
        """
        limit = MAX_SILENCE_SECONDS if self.alive else MAX_START_SECONDS
        if self._starting is not None or not self.alive:
            limit += MAX_START_SECONDS_PER_NODE * n_nodes
        if not self.alive and self._others is not None:
            limit = min(limit, max(MAX_SILENCE_SECONDS, MAX_START_TIME_RATIO * self._others))
        silence = time.monotonic() - self._changed
        return silence if silence > limit * patience else 0.0

    def get_excessive_mpi_wait(self, n_nodes: int, patience: float) -> float:
        """Return the seconds that MPI has been starting if they exceed the limit, else 0. See ``get_excessive_silence``."""
        if self._starting is None:
            return 0.0
        took = time.monotonic() - self._starting
        return took if took > (MAX_MPI_START_SECONDS + MAX_START_SECONDS_PER_NODE * n_nodes) * patience else 0.0

    def read_exit_code(self) -> int | None:
        """Read the run's exit code; None: it is not at its end."""
        text = self._read_done_file()
        return int(text) if text.isdigit() else None

    def is_restart_requested(self) -> bool:
        """Tell whether the coordinator has requested a restart."""
        return self._read_done_file() == AGAIN

    def _read_done_file(self) -> str:
        try:
            return (self.folder / "done").read_text().strip()
        except OSError:
            return ""

    def pass_on_signals(self, signals: list[int]) -> None:
        """Forward the signals received so far to the coordinator."""
        if len(signals) > self._signals:
            self._signals = len(signals)
            (self.folder / "stop").write_text("".join(f"{number}\n" for number in signals))


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
        job = core_allocation.find_launched_process(environ)
        if not job or not job.rank:
            _heartbeat = CoordinatorHeartbeat(environ[HEARTBEAT])
        elif job.rank <= MAX_REPORTING_RANKS:
            with suppress(OSError), open(environ[OTHERS], "w") as file:
                file.write(f"{job.rank}\n")
    return _heartbeat
