"""The state of a run in one line, for logs and pipes. Pure."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from millrace.report import words
from millrace.report.progress import left
from millrace.watch.view import View


def line(view: View) -> str:
    """Format the state of a run, with its name, as one line."""
    if view.phases:
        return f"{view.name}: {view.state}; {'; '.join(_phase(phase) for phase in view.phases)}"
    return f"{view.name}: {', '.join([view.state, *_amounts(view)])}"


def _phase(view: View) -> str:
    return f"{view.name} {amounts(view)}"


def amounts(view: View) -> str:
    """Format the state and progress of a phase, without its name."""
    return ", ".join([view.state, *(_amounts(view) if view.runs else [])])


def figures(view: View) -> dict[str, Any]:
    """Return the state of a job in phases as values for JSON."""
    return {"state": view.state, "phases": [_figures(phase) for phase in view.phases]}


def _figures(view: View) -> dict[str, Any]:
    return {
        "name": view.name, "state": view.state, "records_done": view.records_done, "quarantined": view.n_quarantined,
        "retries": view.n_retries, "seconds": view.seconds,
    }  # fmt: skip


def _amounts(view: View) -> list[str]:
    """Return the parts of a line: share, records, retries, quarantined records, time and time left."""
    share, estimate = view.share, view.left
    return [
        *([words.percent(share)] if share is not None and not view.is_over else []),
        words.count(view.records_done, "record"),
        *([words.count(view.n_retries, "retry")] if view.n_retries else []),
        *([f"{view.n_quarantined:,} quarantined"] if view.n_quarantined else []),
        words.duration(view.elapsed),
        *([left(estimate)] if estimate else []),
    ]


def key(view: View) -> Hashable:
    """Return a key that changes when a new line should be printed."""
    own = (view.state, view.records_done, view.n_retries, view.n_quarantined)
    return (own, tuple(key(phase) for phase in view.phases))
