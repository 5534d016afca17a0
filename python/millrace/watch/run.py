"""A run, read repeatedly from its run directory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from millrace import lock
from millrace.errors import RefusedError
from millrace.report.events import AnyLogEvent
from millrace.report.runs import LoggedRun, add_event
from millrace.rundir import RunDir
from millrace.storage import past
from millrace.watch.tail import FileTail
from millrace.watch.view import State, WatchView


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
        self._decoder = msgspec.json.Decoder(AnyLogEvent)

    def close(self) -> None:
        """Close the files."""
        self._tail.close()

    def read_view(self) -> WatchView:
        """Read the new events and return the present state; do not block."""
        # In this order: a run that ends writes so to the log before it releases the lock.
        runs = lock.has_live_owner(self._rundir.path / "lock")
        self._read_events()
        return WatchView(self._name, "running" if runs else self._find_end_state(), self._runs)

    def _read_events(self) -> None:
        """Add the new events; begin again if the log was replaced."""
        lines = self._tail.read_lines()
        if self._tail.n_files != self._n_files:
            self._n_files = self._tail.n_files
            self._runs = []
        for line in lines:
            try:
                add_event(self._runs, self._decoder.decode(line))
            except (msgspec.DecodeError, UnicodeDecodeError):
                continue  # cut off by a kill, or written by a later version

    def _find_end_state(self) -> State:
        """Return the state of a run that is not running, from its log, its run directory or the history."""
        if self._runs and (end := self._runs[-1].end):
            return _parse_status(end.status)
        if self._rundir.completion.exists():
            return "done"
        if self._rundir.path.exists():
            return "killed"
        try:
            return _parse_status(past.find_archived_run(str(self._rundir.path), self._environ).past.status)
        except RefusedError:
            return "killed"


def _parse_status(status: str) -> State:
    """Return the final state for a status from the log of any version."""
    match status:
        case "done" | "quarantined" | "interrupted":
            return status
        case _:
            return "stopped"
