"""A job in phases, read repeatedly from its folder."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from millrace import lock
from millrace.watch.run import WatchedRun
from millrace.watch.tail import FileTail
from millrace.watch.view import State, WatchView
from millrace.workflow import folder as places
from millrace.workflow.folder import WorkStretch
from millrace.workflow.log import PhaseLogLine


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
        runs = lock.has_live_owner(self._folder / "lock")
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
