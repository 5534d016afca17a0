"""A job in phases, read repeatedly from its folder."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from millrace import lock
from millrace.watch.run import WatchedRun
from millrace.watch.tail import Tail
from millrace.watch.view import State, View
from millrace.workflow import folder as places
from millrace.workflow.folder import Stretch
from millrace.workflow.log import Line


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
        self._phases = {each: WatchedRun(folder / each, each, environ) for each in places.names(folder)}
        self._tail = Tail(folder / places.LOG)
        self._lines: list[Line] = []

    def close(self) -> None:
        """Close the files."""
        self._tail.close()
        for phase in self._phases.values():
            phase.close()

    def look(self) -> View:
        """Read the new lines of the logs and return the present state; do not block."""
        runs = lock.shows_life(self._folder / "lock")
        for line in self._tail.lines():
            with suppress(msgspec.DecodeError):  # cut off by a kill
                self._lines.append(msgspec.json.decode(line, type=Line))
        now = time.time() if runs else places.last_sign(self._folder)
        found = places.stretches(self._lines, now)
        phases = [self._phase(name, [each for each in found if each.phase == name], runs) for name in self._phases]
        return View(self._name, "running" if runs else _together(phases), phases=phases)

    def _phase(self, name: str, found: list[Stretch], alive: bool) -> View:
        """Read the state of one phase."""
        if not found:
            return View(name, "waiting")
        view = self._phases[name].look()
        view.state, view.stretches = _state(found[-1], alive), found
        return view


def _state(stretch: Stretch, alive: bool) -> State:
    """Return the state of a phase from its latest stretch of work, and whether the job is alive."""
    if stretch.killed:
        return "waiting" if alive else "killed"  # not yet begun in the present start of the job
    if stretch.ended is None:
        return "running" if alive else "killed"
    return places.ended_so(stretch.code)


def _together(phases: list[View]) -> State:
    """Return the final state of a job from those of its phases."""
    states = {phase.state for phase in phases}
    for state in ("killed", "stopped", "interrupted"):
        if state in states:
            return state
    if "waiting" in states:
        return "killed"
    return "quarantined" if "quarantined" in states else "done"
