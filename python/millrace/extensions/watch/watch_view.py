"""The state of a run at one moment, values computed from it, and the report page of a job in phases. Pure.

The page has the working times and busy slots of each phase.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal

import msgspec

from millrace.core import text_format
from millrace.core.errors import ExitCode, MillraceError
from millrace.extensions.workflow.workflow_folder import WorkStretch
from millrace.report import html_report, progress
from millrace.report.charts import N_BINS, TimeAxis, choose_unit, list_bin_edges, make_stair, spread_amounts
from millrace.report.event_log import LoggedRun, list_still_quarantined
from millrace.report.events import QuarantineEvent, RetryEvent
from millrace.report.html_report import LivePageMode
from millrace.report.openmetrics import RunMetrics

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
        return progress.estimate_remaining([*points[:-1:step], points[-1]], total)

    @property
    def failures(self) -> list[RetryEvent | QuarantineEvent]:
        """Retries and quarantined records of the latest start, in the order of time."""
        events: list[RetryEvent | QuarantineEvent] = []
        if self.runs:
            events = [*self.runs[-1].retries, *self.runs[-1].quarantined]
        return sorted(events, key=lambda event: event.t)


def _count_bytes_done(runs: Sequence[LoggedRun]) -> int:
    return sum(task.bytes for run in runs for task in run.done_tasks)


def make_metrics(view: WatchView) -> RunMetrics:
    """Return the figures of a run or phase; tasks that go on are not in its log, so that busy slots are not known."""
    last = view.runs[-1] if view.runs else None
    left = view.left
    figures: dict[str, float | None] = {"update_time_seconds": time.time(), "elapsed_seconds": view.elapsed}
    if last:
        figures |= {
            "slots": last.present_slots,
            "records_done": view.records_done,
            "records_resumed": last.head.records_resumed,
            "records_quarantined": view.n_quarantined,
            "retries": view.n_retries,
            "input_bytes_done": _count_bytes_done(view.runs),
            "input_bytes": last.head.bytes_total,
            "tool_cpu_seconds": sum(task.cpu for task in last.tasks),
            "remaining_seconds": left[1] if left else None,
        }
    tool = {"tool": last.head.tool} if last else {}
    return RunMetrics({"run": Path(view.name).name.removesuffix(".millrace"), **tool}, view.state, figures)


def write_phases_page(view: WatchView, folder: Path, out: Path) -> None:
    """Write the report of a job to ``out``, replacing it atomically.

    Raises:
        MillraceError: No phase has begun, or ``out`` cannot be written.
    """
    if not any(phase.stretches for phase in view.phases):
        raise MillraceError(f"{folder}: no phase has begun yet", "wait until one has")
    html_report.write_page(out, render_phases_page(view, folder))


def render_phases_page(view: WatchView, folder: Path, live: LivePageMode | None = None) -> str:
    """Return the report page as HTML."""
    return html_report.render_template(
        "phases.html.j2",
        build_phase_charts(view.phases),
        live,
        folders=(Path(__file__).parent,),
        title=folder.resolve().name.removesuffix(".millrace"),
        status=view.state,
        about="",
        run_dir=str(folder),
        message="",
        phases=view.phases,
    )


def build_phase_charts(phases: Sequence[WatchView]) -> dict[str, Any]:
    """Return the data of the charts, ready for JSON: stretches of work and busy slots by phase."""
    zero = min((each.begun for phase in phases for each in phase.stretches), default=0.0)
    last = max((each.last for phase in phases for each in phase.stretches), default=0.0)
    along = TimeAxis((), *choose_unit(last - zero))
    width = along.length / N_BINS
    return {
        "unit": along.unit,
        "length": along.scale_seconds(along.length),
        "names": [phase.name for phase in phases],
        "bars": [
            {
                "phase": phase.name,
                "start": along.scale_seconds(each.begun - zero),
                "length": along.scale_seconds(each.last - each.begun),
                "state": phase.state if each is phase.stretches[-1] else "killed" if each.ended is None else "stopped",
                "text": f"{text_format.format_duration(each.last - each.begun)}, from {text_format.format_duration(each.begun - zero)} on",
            }
            for phase in phases for each in phase.stretches
        ],
        "busy": {
            "x": list_bin_edges(width, N_BINS, along),
            "phases": [
                {"name": phase.name, "y": make_stair(spread_amounts(list_busy_times(phase, zero), width, N_BINS), width)}
                for phase in phases if phase.runs
            ],
        },
    }  # fmt: skip


def list_busy_times(phase: WatchView, zero: float) -> Iterator[tuple[float, float, float]]:
    """Yield start, end (in seconds since ``zero``) and slot seconds of each task of a phase."""
    for run in phase.runs:
        start = _find_run_start(run, phase.stretches) - zero
        for task in run.tasks:
            yield start + task.start, start + task.t, task.seconds


def _find_run_start(run: LoggedRun, stretches: Sequence[WorkStretch]) -> float:
    """Return when a run of a phase began, in seconds since 1970.

    This is the begin of the latest stretch before the run's own time. There may be stretches without a run.
    """
    if not run.head.time:
        return stretches[-1].begun
    second = datetime.fromisoformat(run.head.time).timestamp() + 1  # the time has a resolution of one second
    return next((each.begun for each in reversed(stretches) if each.begun < second), stretches[0].begun)
