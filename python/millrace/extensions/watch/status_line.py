"""The state of a run in one line, for logs and pipes; the progress of a job in phases.

It is on standard error: a job in phases gets a line when a phase begins or ends, and from time to time.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

from millrace.core import number_format
from millrace.core.job import ProgressMode
from millrace.extensions.watch.watch_targets import WatchedJob
from millrace.extensions.watch.watch_view import WatchView
from millrace.report.progress import JSON_SECONDS, QUIET_SECONDS, format_eta


def format_status_line(view: WatchView) -> str:
    """Format the state of a run, with its name, as one line."""
    if view.phases:
        return f"{view.name}: {view.state}; {'; '.join(_format_phase(phase) for phase in view.phases)}"
    return f"{view.name}: {', '.join([view.state, *_list_amounts(view)])}"


def _format_phase(view: WatchView) -> str:
    return f"{view.name} {format_amounts(view)}"


def format_amounts(view: WatchView) -> str:
    """Format the state and progress of a phase, without its name."""
    return ", ".join([view.state, *(_list_amounts(view) if view.runs else [])])


def build_figures(view: WatchView) -> dict[str, Any]:
    """Return the state of a job in phases as values for JSON."""
    return {"state": view.state, "phases": [_build_phase_figures(phase) for phase in view.phases]}


def _build_phase_figures(view: WatchView) -> dict[str, Any]:
    return {
        "name": view.name, "state": view.state, "records_done": view.records_done, "quarantined": view.n_quarantined,
        "retries": view.n_retries, "seconds": view.seconds,
    }  # fmt: skip


def _list_amounts(view: WatchView) -> list[str]:
    """Return the parts of a line: share, records, retries, quarantined records, time and time left."""
    share, estimate = view.share, view.left
    return [
        *([number_format.format_percent(share)] if share is not None and not view.is_over else []),
        number_format.format_count(view.records_done, "record"),
        *([number_format.format_count(view.n_retries, "retry")] if view.n_retries else []),
        *([f"{view.n_quarantined:,} quarantined"] if view.n_quarantined else []),
        number_format.format_duration(view.elapsed),
        *([format_eta(estimate)] if estimate else []),
    ]


def build_change_key(view: WatchView) -> Hashable:
    """Return a key that changes when a new line should be printed."""
    own = (view.state, view.records_done, view.n_retries, view.n_quarantined)
    return (own, tuple(build_change_key(phase) for phase in view.phases))


class WorkflowProgress:
    """A printer of the changes in the folder of a job.

    Args:
        mode: ``json``: an object a second, if anything has changed; ``none``: nothing; all others: lines.
        clock: A monotonic clock, in seconds.
    """

    def __init__(
        self, folder: Path, mode: ProgressMode, stream: TextIO, environ: Mapping[str, str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._folder, self._mode, self._stream, self._environ, self._clock = folder, mode, stream, environ, clock
        self._job: WatchedJob | None = None
        self._states: dict[str, str] = {}
        self._key: object = None
        self._looked = self._spoke = -QUIET_SECONDS

    def print_changes(self, at_once: bool = False) -> None:
        """Print the changes if the interval is over or ``at_once``. To be called often."""
        now = self._clock()
        if self._mode == "none" or (now - self._looked < JSON_SECONDS and not at_once):
            return
        self._looked = now
        with suppress(OSError):  # a stream that cannot be written to must not end the job
            self._job = self._job or WatchedJob(self._folder, self._folder.name, self._environ)
            self._print_view(self._job.read_view(), now)

    def _print_view(self, view: WatchView, now: float) -> None:
        """Print the phases whose state has changed, and now and then those that run."""
        if self._mode == "json":
            if (key := build_change_key(view)) != self._key:
                self._key = key
                print(json.dumps({"event": "phases", **build_figures(view)}), file=self._stream, flush=True)
            return
        is_time = now - self._spoke >= QUIET_SECONDS and bool(self._states)
        for phase in view.phases:
            is_new = self._states.get(phase.name, "waiting") != phase.state
            self._states[phase.name] = phase.state
            if is_new or (is_time and phase.state == "running"):
                print(f"millrace: {phase.name}: {format_amounts(phase)}", file=self._stream, flush=True)
                self._spoke = now
