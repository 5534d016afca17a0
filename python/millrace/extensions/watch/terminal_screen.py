"""Drawings of runs for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from millrace.core import number_format
from millrace.core.number_format import escape_unprintable
from millrace.extensions.watch.watch_view import WatchView
from millrace.report.events import QuarantineEvent
from millrace.report.logged_runs import NodeFigures, summarise_nodes
from millrace.report.progress import format_eta

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
    share, estimate = view.share, view.left
    if share is not None:
        grid = Table.grid(padding=(0, 1), expand=True)
        grid.add_column(ratio=1, min_width=10)
        grid.add_column(no_wrap=True, justify="right")
        grid.add_column(no_wrap=True)
        bar = ProgressBar(total=1.0, completed=share, complete_style="green", finished_style="green")
        grid.add_row(
            bar,
            Text(number_format.format_percent(share), "bold"),
            Text(format_eta(estimate) if estimate else "", "cyan"),
        )
        yield grid
    counts = Text(
        f"{number_format.format_count(view.records_done, 'record')}, {number_format.format_duration(view.elapsed)}",
        no_wrap=True,
    )
    if view.n_quarantined:
        counts.append(f" · {view.n_quarantined:,} quarantined", "bold red")
    if view.n_retries:
        counts.append(f" · {number_format.format_count(view.n_retries, 'retry')}", "yellow")
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
            Text(escape_unprintable(node.host)), str(node.slots), number_format.format_percent(node.busy), f"{node.n_tasks:,}",
            Text(f"{node.n_failed:,}", "red" if node.n_failed else ""), f"{node.records:,}",
            "" if node.silent is None else f"{number_format.format_duration(node.silent)} before",
        )  # fmt: skip
    if len(found) > MAX_NODES:
        table.add_row(f"... and {number_format.format_count(len(found) - MAX_NODES, 'node')} more")
    return table


def _draw_phases(phases: Sequence[WatchView]) -> Table:
    table = _make_table("phase", "state", "time", "done", "records", "retries", "quarantined")
    for phase in phases:
        share = phase.share if phase.state == "running" else None
        table.add_row(
            Text(escape_unprintable(phase.name)), Text(phase.state, COLOURS[phase.state]),
            "" if phase.seconds is None else number_format.format_duration(phase.seconds), "" if share is None else number_format.format_percent(share),
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
            which = number_format.format_records(event.first, event.last)
            yield Text(f"{which} tried again: {escape_unprintable(event.reason)}", "yellow", no_wrap=True)
