"""Progress of a job in phases on standard error: a line when a phase begins or ends, and from time to time."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TextIO

from millrace.job import ProgressMode
from millrace.report.progress import JSON_SECONDS, QUIET_SECONDS
from millrace.watch import plain
from millrace.watch.job import WatchedJob
from millrace.watch.view import WatchView


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
            if (key := plain.build_change_key(view)) != self._key:
                self._key = key
                print(json.dumps({"event": "phases", **plain.build_figures(view)}), file=self._stream, flush=True)
            return
        is_time = now - self._spoke >= QUIET_SECONDS and bool(self._states)
        for phase in view.phases:
            is_new = self._states.get(phase.name, "waiting") != phase.state
            self._states[phase.name] = phase.state
            if is_new or (is_time and phase.state == "running"):
                print(f"millrace: {phase.name}: {plain.format_amounts(phase)}", file=self._stream, flush=True)
                self._spoke = now
