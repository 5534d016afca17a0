"""The state of a run at one moment, and values computed from it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Literal

import msgspec

from millrace.core.errors import ExitCode
from millrace.extensions.workflow.workflow_folder import WorkStretch
from millrace.report import eta
from millrace.report.events import QuarantineEvent, RetryEvent
from millrace.report.logged_runs import LoggedRun, list_still_quarantined

#: ``waiting``: not begun; ``killed``: no process runs it, and no end was written.
State = Literal["waiting", "running", "done", "quarantined", "interrupted", "stopped", "killed"]

#: Most points used to estimate the time left.
MAX_POINTS = 256


class WatchView(msgspec.Struct):
    """The state of one run, of one phase, or of a job in phases."""

    #: Its run directory as typed, or the name of the phase.
    name: str
    state: State
    #: Its starts, the latest at the end; empty: nothing is known yet.
    runs: Sequence[LoggedRun] = ()
    phases: Sequence[WatchView] = ()
    #: For a phase: its stretches of work.
    stretches: Sequence[WorkStretch] = ()

    @property
    def is_over(self) -> bool:
        """Whether the run has ended, in whatever state."""
        return self.state not in ("waiting", "running")

    @property
    def code(self) -> int:
        """The exit code of ``millrace watch`` for this final state."""
        if self.state == "done":
            return ExitCode.DONE
        return ExitCode.QUARANTINED if self.state == "quarantined" else ExitCode.STOPPED

    @property
    def seconds(self) -> float | None:
        """Working time of a phase in seconds, all starts together; None: it has not begun."""
        return sum(each.last - each.begun for each in self.stretches) if self.stretches else None

    @property
    def records_done(self) -> int:
        return self.runs[-1].records_done if self.runs else 0

    @property
    def n_quarantined(self) -> int:
        return len(list_still_quarantined(self.runs))

    @property
    def n_retries(self) -> int:
        return sum(len(run.retries) for run in self.runs)

    @property
    def elapsed(self) -> float:
        """Seconds from the latest start to its latest event."""
        return self.runs[-1].wall if self.runs else self.seconds or 0.0

    @property
    def share(self) -> float | None:
        """Fraction of the input that is done; None: its size is not known."""
        if self.state == "done":
            return 1.0
        total = self.runs[-1].head.bytes_total if self.runs else None
        return min(_count_bytes_done(self.runs) / total, 1.0) if total else None

    @property
    def left(self) -> tuple[float, float, float] | None:
        """Estimated seconds from the latest event to the end, as (low, likely, high); None: not known."""
        total = self.runs[-1].head.bytes_total if self.runs else None
        if not total or self.state != "running":
            return None
        tasks = sorted(self.runs[-1].done_tasks, key=lambda task: task.t)
        done = accumulate((task.bytes for task in tasks), initial=_count_bytes_done(self.runs[:-1]))
        points = list(zip([0.0, *(task.t for task in tasks)], map(float, done), strict=True))
        step = len(points) // MAX_POINTS + 1
        return eta.estimate_remaining([*points[:-1:step], points[-1]], total)

    @property
    def failures(self) -> list[RetryEvent | QuarantineEvent]:
        """Retries and quarantined records of the latest start, in the order of time."""
        events: list[RetryEvent | QuarantineEvent] = []
        if self.runs:
            events = [*self.runs[-1].retries, *self.runs[-1].quarantined]
        return sorted(events, key=lambda event: event.t)


def _count_bytes_done(runs: Sequence[LoggedRun]) -> int:
    return sum(task.bytes for run in runs for task in run.done_tasks)
