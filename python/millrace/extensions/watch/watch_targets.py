"""Runs and jobs in phases to watch, each read repeatedly from its folder while it grows."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

import msgspec

from millrace.core.errors import RefusedError
from millrace.extensions.watch.watch_view import State, WatchView
from millrace.extensions.workflow import workflow_folder as places
from millrace.extensions.workflow.workflow_folder import PhaseLogLine, WorkStretch, is_workflow_folder
from millrace.host import file_lock
from millrace.report.event_log import LoggedRun, add_event
from millrace.report.events import decode_events
from millrace.rundir import run_history
from millrace.rundir.paths import RunDir

#: Bytes read at once.
BLOCK_BYTES = 1 << 20


class FileTail:
    """A reader of lines appended to a file; it keeps the file open, so it can read the rest after the file is removed.

    Args:
        path: The file may not exist yet. If it is replaced, the new file is read from its beginning.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None
        self._rest = b""
        #: Number of files read so far; when it increases, earlier lines are out of date.
        self.n_files = 0

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def read_lines(self) -> list[bytes]:
        """Return the new complete lines, without their ends."""
        found = self._read_more_lines()
        if self._is_replaced():
            self.close()
            with suppress(OSError):
                self._file = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
                self._rest, found = b"", []
                self.n_files += 1
            found += self._read_more_lines()
        return found

    def _is_replaced(self) -> bool:
        """Tell whether the path now names another file than the open one."""
        try:
            there = self._path.stat()
        except OSError:
            return False
        return self._file is None or not os.path.samestat(there, os.fstat(self._file))

    def _read_more_lines(self) -> list[bytes]:
        """Read to the end of the open file and return the complete lines."""
        blocks = [self._rest]
        with suppress(OSError):  # removed on a network filesystem: its content was read before
            while self._file is not None and (block := os.read(self._file, BLOCK_BYTES)):
                blocks.append(block)
        *whole, self._rest = b"".join(blocks).split(b"\n")
        return whole


class WatchedRun:
    """A run directory, with the events read so far from its log.

    Args:
        name: Name of the run in views.
    """

    def __init__(self, run_dir: Path, name: str, environ: Mapping[str, str]) -> None:
        self._rundir, self._name, self._environ = RunDir(run_dir), name, environ
        self._tail = FileTail(self._rundir.events)
        self._n_files = 0
        self._runs: list[LoggedRun] = []

    def close(self) -> None:
        """Close the files."""
        self._tail.close()

    def read_view(self) -> WatchView:
        """Read the new events and return the present state; do not block."""
        # In this order: a run that ends writes so to the log before it releases the lock.
        runs = file_lock.has_live_owner(self._rundir.path / "lock")
        self._read_events()
        return WatchView(self._name, "running" if runs else self._find_end_state(), self._runs)

    def _read_events(self) -> None:
        """Add the new events; begin again if the log was replaced."""
        lines = self._tail.read_lines()
        if self._tail.n_files != self._n_files:
            self._n_files = self._tail.n_files
            self._runs = []
        for event in decode_events(lines):
            add_event(self._runs, event)

    def _find_end_state(self) -> State:
        """Return the state of a run that is not running, from its log, its run directory or the history."""
        if self._runs and (end := self._runs[-1].end):
            return _parse_status(end.status)
        if self._rundir.completion.exists():
            return "done"
        if self._rundir.path.exists():
            return "killed"
        try:
            return _parse_status(run_history.find_archived_run(str(self._rundir.path), self._environ).past.status)
        except RefusedError:
            return "killed"


def _parse_status(status: str) -> State:
    """Return the final state for a status from the log of any version."""
    match status:
        case "done" | "quarantined" | "interrupted":
            return status
        case _:
            return "stopped"


class WatchedJob:
    """The folder of a job in phases, with the lines read so far from its log and those of its phases.

    Args:
        name: Name of the job in views.

    Raises:
        CorruptError: The manifest is damaged.
        FileNotFoundError: The manifest is gone.
    """

    def __init__(self, folder: Path, name: str, environ: Mapping[str, str]) -> None:
        self._folder, self._name = folder, name
        self._phases = {each: WatchedRun(folder / each, each, environ) for each in places.list_phase_names(folder)}
        self._tail = FileTail(folder / places.LOG)
        self._lines: list[PhaseLogLine] = []

    def close(self) -> None:
        """Close the files."""
        self._tail.close()
        for phase in self._phases.values():
            phase.close()

    def read_view(self) -> WatchView:
        """Read the new lines of the logs and return the present state; do not block."""
        runs = file_lock.has_live_owner(self._folder / "lock")
        for line in self._tail.read_lines():
            with suppress(msgspec.DecodeError):  # cut off by a kill
                self._lines.append(msgspec.json.decode(line, type=PhaseLogLine))
        now = time.time() if runs else places.read_last_sign_of_life(self._folder)
        found = places.list_work_stretches(self._lines, now)
        phases = [
            self._read_phase_view(name, [each for each in found if each.phase == name], runs) for name in self._phases
        ]
        return WatchView(self._name, "running" if runs else _combine_states(phases), phases=phases)

    def _read_phase_view(self, name: str, found: list[WorkStretch], alive: bool) -> WatchView:
        """Read the state of one phase."""
        if not found:
            return WatchView(name, "waiting")
        view = self._phases[name].read_view()
        view.state, view.stretches = _find_phase_state(found[-1], alive), found
        return view


def _find_phase_state(stretch: WorkStretch, alive: bool) -> State:
    """Return the state of a phase from its latest stretch of work, and whether the job is alive."""
    if stretch.killed:
        return "waiting" if alive else "killed"  # not yet begun in the present start of the job
    if stretch.ended is None:
        return "running" if alive else "killed"
    return places.classify_exit_code(stretch.code)


def _combine_states(phases: list[WatchView]) -> State:
    """Return the final state of a job from those of its phases."""
    states = {phase.state for phase in phases}
    for state in ("killed", "stopped", "interrupted"):
        if state in states:
            return state
    if "waiting" in states:
        return "killed"
    return "quarantined" if "quarantined" in states else "done"


class WatchTarget(Protocol):
    """A run or a job in phases whose state can be read repeatedly."""

    def read_view(self) -> WatchView:
        """Return the present state; do not block."""

    def close(self) -> None:
        """Close the files."""


def list_active_runs(cwd: Path) -> list[str]:
    """Return the names of the run directories in a folder whose runs are running."""
    return [path.name for path in run_history.list_run_dirs(cwd) if file_lock.has_live_owner(path / "lock")]


@contextmanager
def open_watch_targets(names: Sequence[str], environ: Mapping[str, str]) -> Iterator[list[WatchTarget]]:
    """Open these run directories, and close them when the context is left.

    Raises:
        RefusedError: One holds no run, or cannot be read.
        CorruptError: The manifest of one is damaged.
    """
    found: list[WatchTarget] = []
    try:
        for name in names:
            found.append(_open_target(name, environ))
        yield found
    finally:
        for each in found:
            each.close()


def _open_target(name: str, environ: Mapping[str, str]) -> WatchTarget:
    folder, ended = run_history.find_run_logs(name, environ)
    if is_workflow_folder(folder):
        return WatchedJob(folder, name, environ)
    if ended:
        return WatchedRun(folder, name, environ)
    if not file_lock.has_live_owner(folder / "lock"):
        RunDir(folder).read_manifest()  # a starting run may not have written its manifest
    elif not os.access(folder, os.R_OK | os.X_OK):
        raise RefusedError(f"{name}: cannot be read", "only who started a run may watch it")
    return WatchedRun(folder, name, environ)
