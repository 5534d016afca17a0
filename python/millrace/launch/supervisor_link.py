"""The coordinator's link to its supervisor: a folder of files that both can see.

See ``millrace.launch.heartbeat`` for the files. The lock of the folder admits one supervisor.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager, suppress
from pathlib import Path

from millrace.core.errors import LostError, MillraceError, RefusedError
from millrace.core.wait_loop import wait_until
from millrace.host import file_lock
from millrace.host.file_lock import FileLock
from millrace.host.permissions import find_ownership_problem
from millrace.host.signals import StopSignals
from millrace.launch import heartbeat
from millrace.launch.heartbeat import AGAIN, DONE, STDIN, STDOUT, STOP
from millrace.launch.node_allocation import KEY, SUPERVISED

#: Name of the lock file, which exists from the beginning.
LOCK = "lock"

#: Seconds that another supervisor's guard gets to clean up, and seconds between attempts to lock.
MAX_TAKEOVER_SECONDS, POLL_INTERVAL_SECONDS = 10.0, 0.2


def locate_launch_folder(run_dir: Path) -> Path:
    """Return the path of the folder: beside the run directory, which may be removed before the run is at its end."""
    return run_dir.with_name(run_dir.name + ".launch")


def lock_launch_folder(folder: Path) -> FileLock:
    """Make and lock the folder, or take over that of a dead supervisor; wait up to ``MAX_TAKEOVER_SECONDS``.

    Raises:
        RefusedError: Another supervisor holds it, or it cannot be made.
    """
    # The guard of a supervisor that was just killed holds the lock until everything is cleaned up.
    held = file_lock.LockHeldError(None)

    def try_lock() -> FileLock | None:
        nonlocal held
        try:
            return _make_and_lock_folder(folder)
        except file_lock.LockHeldError as error:
            held = error
            return None

    if found := wait_until(try_lock, MAX_TAKEOVER_SECONDS, nap=POLL_INTERVAL_SECONDS):
        return found
    raise RefusedError(
        f"{folder}: another millrace ({held.words}) is running this now",
        "wait for it; millrace status tells how far it is",
    ) from held


def _make_and_lock_folder(folder: Path) -> FileLock:
    """Make the folder, and lock it.

    Raises:
        LockHeldError: Another process holds the lock.
        RefusedError: The folder cannot be made, or is another user's.
    """
    try:
        folder.mkdir(0o700, parents=True, exist_ok=True)
        # Another user's folder could forge the exit code of the run, and expose its output.
        if why := find_ownership_problem(folder):
            raise RefusedError(f"{folder}: {why}", "name another place with --run-dir")
        return file_lock.acquire_lock(folder / LOCK)
    except FileNotFoundError:
        return _make_and_lock_folder(folder)  # removed just now
    except OSError as error:
        raise RefusedError(f"{folder}: {error.strerror}", "name a place that can be written with --run-dir") from error


class SupervisorLink:
    """The coordinator's link to its supervisor; without a supervisor it does nothing.

    Args:
        environ: Names the files; the key is removed from it.
        coordinator: Whether this process is the coordinator, which alone uses the files.
    """

    def __init__(self, environ: MutableMapping[str, str], *, coordinator: bool = True) -> None:
        #: Whether there is a supervisor.
        self.active = bool(environ.get(SUPERVISED))
        #: Factor of the usual startup limit: larger after each start without progress; infinite without a supervisor, as
        #: there is no restart.
        self.patience = float(environ.get(SUPERVISED) or "inf")
        #: The key that the supervisor handed to all ranks of this start; empty: none. Tools must not see it.
        self.key = environ.pop(KEY, "").encode()
        speaks = self.active and coordinator
        self._done, self._stop, self._stdin, self._stdout = (
            Path(environ[name]) if speaks and name in environ else None for name in (DONE, STOP, STDIN, STDOUT)
        )
        self._heart = heartbeat.start_heartbeat(environ) if speaks else None
        self._interrupt: StopSignals | None = None
        self._signals = 0

    def redirect_standard_streams(self) -> None:
        """Redirect standard input and output to their files."""
        for path, how, number in ((self._stdin, os.O_RDONLY, 0), (self._stdout, os.O_WRONLY, 1)):
            if path:
                file = os.open(path, how | os.O_CLOEXEC)
                os.dup2(file, number)
                os.close(file)

    def pass_signals_to(self, interrupt: StopSignals) -> None:
        """Note the signals that the supervisor forwards in ``interrupt``.

        The supervisor never sends SIGTERM itself. A launcher does when it has lost a part of the job and abandons the rest;
        it may exit much later.
        """
        self._interrupt = interrupt
        if self._heart:
            self._heart.also = self._read_signals
        if self._done:
            signal.signal(signal.SIGTERM, self._handle_launcher_sigterm)

    @contextmanager
    def announce_mpi_start(self) -> Iterator[None]:
        """Announce that MPI starts within the context: no other thread may run then, so heartbeats may be missing."""
        if not self._heart:
            yield
            return
        self._heart.starting = True
        self._heart.write_beat()
        try:
            yield
        finally:
            self._heart.starting = False

    def _handle_launcher_sigterm(self, *_: object) -> None:
        self.request_restart()
        os._exit(1)

    def report_progress(self, records: int) -> None:
        """Record a tick of the loop; ``records`` are done."""
        if self._heart:
            self._heart.turned, self._heart.records = time.monotonic(), records

    def record_loop_end(self) -> None:
        """Record the end of the loop: ticks are not expected any more."""
        if self._heart:
            self._heart.turned = None

    def report_exit_code(self, code: int) -> None:
        """Report the exit code: the run is at its end, and a restart would change nothing."""
        self._write_done_file(str(code))

    def report_error(self, error: MillraceError) -> None:
        """Report the end by an error: a restart helps where a part of the job is lost."""
        if isinstance(error, LostError):
            self.request_restart()
        else:
            self.report_exit_code(error.status)

    def request_restart(self) -> None:
        """Request a restart: a part of the job is lost."""
        self._write_done_file(AGAIN)

    def _write_done_file(self, text: str) -> None:
        if self._done:
            with suppress(OSError):  # the supervisor may have ended
                self._done.write_text(f"{text}\n")

    def _read_signals(self) -> None:
        if not self._stop or not self._interrupt:
            return
        with suppress(OSError, ValueError):
            signals = [int(line) for line in self._stop.read_text().split()]
            for number in signals[self._signals :]:
                self._interrupt.count_signal(number)
            self._signals = max(self._signals, len(signals))
