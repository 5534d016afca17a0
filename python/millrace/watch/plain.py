"""The state of a run in one line, for logs and pipes. Pure."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from millrace.report import words
from millrace.report.progress import format_eta
from millrace.watch.view import WatchView


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
        *([words.format_percent(share)] if share is not None and not view.is_over else []),
        words.format_count(view.records_done, "record"),
        *([words.format_count(view.n_retries, "retry")] if view.n_retries else []),
        *([f"{view.n_quarantined:,} quarantined"] if view.n_quarantined else []),
        words.format_duration(view.elapsed),
        *([format_eta(estimate)] if estimate else []),
    ]


def build_change_key(view: WatchView) -> Hashable:
    """Return a key that changes when a new line should be printed."""
    own = (view.state, view.records_done, view.n_retries, view.n_quarantined)
    return (own, tuple(build_change_key(phase) for phase in view.phases))
