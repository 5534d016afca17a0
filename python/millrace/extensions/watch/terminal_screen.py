"""Views of a run for a terminal: drawings, and one line for logs and pipes.

A job in phases gets a line on standard error when a phase begins or ends, and from time to time.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from millrace.core import text_format
from millrace.core.job import ProgressMode
from millrace.core.text_format import escape_unprintable
from millrace.extensions.watch.watch_targets import WatchedJob
from millrace.extensions.watch.watch_view import WatchView
from millrace.report.event_log import NodeFigures, summarise_nodes
from millrace.report.events import QuarantineEvent
from millrace.report.progress import JSON_SECONDS, QUIET_SECONDS, draw_share, format_eta


def format_status_line(view: WatchView) -> str:
    """Format the state of a run, with its name, as one line."""
    if view.phases:
        return (
            f"{view.name}: {view.state}; {'; '.join(f'{phase.name} {format_amounts(phase)}' for phase in view.phases)}"
        )
    return f"{view.name}: {', '.join([view.state, *_list_amounts(view)])}"


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
        *([text_format.format_percent(share)] if share is not None and not view.is_over else []),
        text_format.format_count(view.records_done, "record"),
        *([text_format.format_count(view.n_retries, "retry")] if view.n_retries else []),
        *([f"{view.n_quarantined:,} quarantined"] if view.n_quarantined else []),
        text_format.format_duration(view.elapsed),
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


COLOURS = {
    "waiting": "dim", "running": "cyan", "done": "green", "quarantined": "red", "interrupted": "yellow", "stopped": "red",
    "killed": "red",
}  # fmt: skip

#: Most node rows, and most failures (the latest), shown for each run; further nodes are only counted.
MAX_NODES, MAX_FAILURES = 16, 4


def draw_views(views: Sequence[WatchView]) -> RenderableType:
    """Draw all runs, one below the other."""
    return Group(*(part for view in views for part in _draw_run(view)))


def _draw_run(view: WatchView) -> Iterator[RenderableType]:
    head = Text(no_wrap=True, overflow="ellipsis")
    head.append(escape_unprintable(view.name), "bold")
    head.append(f"  {view.state}", COLOURS[view.state])
    yield head
    if view.phases:
        yield _draw_phases(view.phases)
    elif view.runs:
        yield from _draw_bar(view)
        yield _draw_nodes(summarise_nodes(view.runs[-1]))
    for each in (view, *view.phases):
        yield from _draw_failures(each)
    yield Text()


def _draw_bar(view: WatchView) -> Iterator[RenderableType]:
    if view.share is not None:
        left = view.left
        yield draw_share(view.share, format_eta(left) if left else "")
    counts = Text(
        f"{text_format.format_count(view.records_done, 'record')}, {text_format.format_duration(view.elapsed)}",
        no_wrap=True,
    )
    if view.n_quarantined:
        counts.append(f" · {view.n_quarantined:,} quarantined", "bold red")
    if view.n_retries:
        counts.append(f" · {text_format.format_count(view.n_retries, 'retry')}", "yellow")
    yield counts


def _make_table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left", no_wrap=True, overflow="ellipsis")
    return table


def _draw_nodes(found: Sequence[NodeFigures]) -> Table:
    table = _make_table("node", "slots", "busy", "tasks", "failed", "records", "last task")
    for node in found[:MAX_NODES]:
        table.add_row(
            Text(escape_unprintable(node.host)), str(node.slots), text_format.format_percent(node.busy), f"{node.n_tasks:,}",
            Text(f"{node.n_failed:,}", "red" if node.n_failed else ""), f"{node.records:,}",
            "" if node.silent is None else f"{text_format.format_duration(node.silent)} before",
        )  # fmt: skip
    if len(found) > MAX_NODES:
        table.add_row(f"... and {text_format.format_count(len(found) - MAX_NODES, 'node')} more")
    return table


def _draw_phases(phases: Sequence[WatchView]) -> Table:
    table = _make_table("phase", "state", "time", "done", "records", "retries", "quarantined")
    for phase in phases:
        share = phase.share if phase.state == "running" else None
        table.add_row(
            Text(escape_unprintable(phase.name)), Text(phase.state, COLOURS[phase.state]),
            "" if phase.seconds is None else text_format.format_duration(phase.seconds), "" if share is None else text_format.format_percent(share),
            f"{phase.records_done:,}" if phase.runs else "", f"{phase.n_retries:,}" if phase.n_retries else "",
            Text(f"{phase.n_quarantined:,}", "red") if phase.n_quarantined else "",
        )  # fmt: skip
    return table


def _draw_failures(view: WatchView) -> Iterator[Text]:
    for event in view.failures[-MAX_FAILURES:]:
        if isinstance(event, QuarantineEvent):
            yield Text(
                f"record {event.record + 1} ({escape_unprintable(event.name)}) quarantined: {escape_unprintable(event.reason)}",
                "red",
                no_wrap=True,
            )
        else:
            which = text_format.format_records(event.first, event.last)
            yield Text(f"{which} tried again: {escape_unprintable(event.reason)}", "yellow", no_wrap=True)
