"""One command measured: wall time, CPU of everything it started, peak memory of the command itself."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

#: Seconds between two looks at a process's memory. The kernel keeps the peak: only the end is missed.
LOOK_SECONDS = 0.05


@dataclass(frozen=True)
class Run:
    """What one run took. ``cpu``: user and system seconds of the command and all it waited for."""

    wall: float
    cpu: float
    #: Peak resident bytes of the command's own process, without its children; 0 if it was not watched.
    peak_bytes: int
    status: int


@dataclass
class Series:
    """Runs of one contender."""

    runs: list[Run] = field(default_factory=list)

    @property
    def median(self) -> float:
        return median(run.wall for run in self.runs)

    @property
    def best(self) -> float:
        return min(run.wall for run in self.runs)

    @property
    def cpu(self) -> float:
        """Least CPU: whatever else the machine does can only add to it."""
        return min(run.cpu for run in self.runs)

    @property
    def spread(self) -> float:
        """Half the range of the wall times as a share of the median: the noise of this series."""
        return (max(run.wall for run in self.runs) - self.best) / 2 / self.median


class CommandFailed(Exception):
    """A contender ended badly: there is nothing to compare."""


def run(command: str, cwd: Path, environ: dict[str, str] | None = None, *, watch: bool = False) -> Run:
    """Run a shell command to its end.

    The shell replaces itself where the command is a single one, so ``exec`` in front makes the measured
    process the program itself.

    Raises:
        CommandFailed: It did not end with status 0.
    """
    with (cwd / "said").open("w+b") as said:
        begun = time.perf_counter()
        child = subprocess.Popen(
            ["/bin/sh", "-c", command],
            cwd=cwd,
            env={**os.environ, **(environ or {})},
            stdin=subprocess.DEVNULL,
            stderr=said,
        )
        peak = _Peak(child.pid) if watch else None
        _, status, usage = os.wait4(child.pid, 0)
        wall = time.perf_counter() - begun
        child.returncode = os.waitstatus_to_exitcode(status)  # reaped here, so that subprocess does not look again
        if child.returncode:
            said.seek(0)
            tail = said.read()[-800:].decode(errors="replace")
            raise CommandFailed(f"{command}\n  ended with {child.returncode}: {tail}")
    return Run(wall, usage.ru_utime + usage.ru_stime, peak.stop() if peak else 0, child.returncode)


class _Peak:
    """Polls the peak resident memory of a process while it lives."""

    def __init__(self, pid: int) -> None:
        self._path = Path(f"/proc/{pid}/status")
        self._bytes = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def stop(self) -> int:
        self._over.set()
        self._thread.join()
        return self._bytes

    def _watch(self) -> None:
        while not self._over.is_set():
            try:
                lines = self._path.read_text().splitlines()
            except OSError:
                return
            found = [line.split()[1] for line in lines if line.startswith("VmHWM:")]
            self._bytes = max([self._bytes, *(int(kilobytes) << 10 for kilobytes in found)])
            self._over.wait(LOOK_SECONDS)
