"""What one start of the ranks shows: heartbeats and the marker of the end. No process is touched here."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

#: Environment variables that name the files; see `Signs`.
HEARTBEAT, OTHERS, DONE, STOP, STDOUT = NAMES = (
    "MILLRACE_HEARTBEAT", "MILLRACE_OTHERS", "MILLRACE_DONE", "MILLRACE_STOP", "MILLRACE_STDOUT",
)  # fmt: skip

#: Environment variable that names the file on standard input, if there is one: launchers do not pass it on as it is.
STDIN = "MILLRACE_STDIN"

#: What the coordinator writes in place of an exit code, if a part of the job is lost.
AGAIN = "again"

#: What a heartbeat says while MPI starts.
STARTING = "starting"

#: Seconds without a heartbeat after which the coordinator is taken for frozen.
SILENCE_SECONDS = 10.0

#: The same until its first heartbeat: the launcher reaches the nodes, Python starts.
START_SECONDS = 20.0

#: What each node adds until MPI has started on all.
START_SECONDS_PER_NODE = 0.1

#: Seconds from the first word that MPI starts until it must have started on all nodes, and what each adds. The coordinator
#: beats while it waits for a rank that froze between MPI_Init and the first call of all together, so silence tells nothing.
MPI_SECONDS = 30.0

#: The same once another rank has begun, in the times that this one took: the coordinator is not slow then. At least
#: `SILENCE_SECONDS`, at most what it would be otherwise.
TIMES = 3.0


class Signs:
    """Files through which the coordinator speaks, in a folder that both can see.

    ``heartbeat`` holds beats, committed records and perhaps `STARTING` as text, ``done`` the exit code once the run is at its end, or `AGAIN`,
    ``others`` something once another rank has begun, ``stop`` the signals that we pass on, one a line; empty, they say nothing. ``stdout`` is standard output. Times are this process's alone: clocks
    of nodes differ.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        #: Whether the coordinator has been heard since `begin`.
        self.alive = False
        #: Most committed records that were heard of, in any start.
        self.records = 0
        self._seen = (b"", 0)
        self._changed = time.monotonic()
        #: Since when it has been starting MPI, as far as was heard; None: it is not.
        self._starting: float | None = None
        self._signals = 0
        #: When the start began, and how many seconds later another rank was seen; None: not yet.
        self._begun = time.monotonic()
        self._others: float | None = None

    @property
    def environ(self) -> dict[str, str]:
        """What tells the coordinator of the files."""
        return {name: str(self.folder / name.partition("_")[2].lower()) for name in NAMES}

    def begin(self) -> None:
        """Forget the signs of an earlier start."""
        for path in self.environ.values():
            # Empty, not absent: that a file is not there is what network disks remember longest.
            Path(path).write_bytes(b"")
        self._seen, self._changed, self.alive, self._signals = (b"", 0), time.monotonic(), False, 0
        self._starting = None
        self._begun, self._others = self._changed, None

    def listen(self) -> None:
        """Read the heartbeat."""
        with suppress(OSError), open(self.folder / "heartbeat", "rb") as file:
            # Opening asks the server of a network disk, which looking at the name does not.
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

    def discount(self, seconds: float) -> None:
        """Leave out time in which this process did not run: the coordinator was stopped as well, or could not be heard."""
        self._changed += seconds
        self._begun += seconds
        if self._starting is not None:
            self._starting += seconds

    def silent_for(self, n_nodes: int, patience: float) -> float:
        """Seconds of silence, if they are too many; else 0. ``patience`` stretches the limits."""
        limit = SILENCE_SECONDS if self.alive else START_SECONDS
        if self._starting is not None or not self.alive:
            limit += START_SECONDS_PER_NODE * n_nodes
        if not self.alive and self._others is not None:
            limit = min(limit, max(SILENCE_SECONDS, TIMES * self._others))
        silence = time.monotonic() - self._changed
        return silence if silence > limit * patience else 0.0

    def waits_for_mpi(self, n_nodes: int, patience: float) -> float:
        """Seconds that MPI has been starting, if they are too many; else 0. See `silent_for`."""
        if self._starting is None:
            return 0.0
        took = time.monotonic() - self._starting
        return took if took > (MPI_SECONDS + START_SECONDS_PER_NODE * n_nodes) * patience else 0.0

    def code(self) -> int | None:
        """The run's exit code, if it is at its end."""
        text = self._done()
        return int(text) if text.isdigit() else None

    def again(self) -> bool:
        """Whether the coordinator has asked for a new start."""
        return self._done() == AGAIN

    def _done(self) -> str:
        try:
            return (self.folder / "done").read_text().strip()
        except OSError:
            return ""

    def stop(self, signals: list[int]) -> None:
        """Pass on the signals that have come so far."""
        if len(signals) > self._signals:
            self._signals = len(signals)
            (self.folder / "stop").write_text("".join(f"{number}\n" for number in signals))
