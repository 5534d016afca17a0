"""The report page of a job in phases: working times and busy slots of each phase."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from millrace.core import number_format
from millrace.core.errors import MillraceError
from millrace.extensions.watch.watch_view import WatchView
from millrace.extensions.workflow.workflow_folder import WorkStretch
from millrace.host.permissions import replace_file
from millrace.report import html_report
from millrace.report.charts import N_BINS, spread_amounts
from millrace.report.html_report import LivePageMode
from millrace.report.logged_runs import LoggedRun


def write_phases_page(view: WatchView, folder: Path, out: Path) -> None:
    """Write the report of a job to ``out``, replacing it atomically.

    Raises:
        MillraceError: No phase has begun, or ``out`` cannot be written.
    """
    if not any(phase.stretches for phase in view.phases):
        raise MillraceError(f"{folder}: no phase has begun yet", "wait until one has")
    try:
        replace_file(out, render_phases_page(view, folder).encode(errors="backslashreplace"))
    except PermissionError as error:
        raise MillraceError(f"{out}: {error.strerror}", "name a place of your own with -o") from error


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
    """Return the data of the charts, ready for JSON: stretches of work and busy slots by phase; times in seconds."""
    begun = [each.begun for phase in phases for each in phase.stretches]
    zero = min(begun, default=0.0)
    ends = [each.last for phase in phases for each in phase.stretches]
    length = max(max(ends, default=0.0) - zero, 1e-3)
    width = length / N_BINS
    return {
        "unit": "seconds",
        "length": round(length, 3),
        "resumes": [],
        "names": [phase.name for phase in phases],
        "bars": [
            {
                "phase": phase.name, "start": round(each.begun - zero, 3), "length": round(each.last - each.begun, 3),
                "state": phase.state if each is phase.stretches[-1] else "killed" if each.ended is None else "stopped",
                "text": f"{number_format.format_duration(each.last - each.begun)}, from {number_format.format_duration(each.begun - zero)} on",
            }
            for phase in phases for each in phase.stretches
        ],
        "busy": {
            "x": [round(width * number, 3) for number in range(N_BINS)],
            "phases": [
                {"name": phase.name, "y": [round(seconds / width, 3) for seconds in spread_amounts(list_busy_times(phase, zero), width, N_BINS)]}
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
