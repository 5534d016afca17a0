"""The report of a run: one self-contained HTML page, made from the event log of a run directory.

It has figures, charts (``millrace.report.charts``), and remarks in sentences: how the time of the job was spent, and
how it could be faster.
"""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from millrace.core import text_format
from millrace.core.errors import MillraceError
from millrace.core.tool_use import FrozenValue
from millrace.host.permissions import replace_file
from millrace.report.charts import make_charts
from millrace.report.event_log import LoggedRun, load_runs, summarise_nodes
from millrace.report.events import read_events
from millrace.report.io_profile import FILE_HEADS, describe_totals, make_file_rows, make_node_rows
from millrace.report.run_explanation import describe_costs
from millrace.report.summary import RunSummary, list_slowest_batches, summarise_runs


def make_remarks(runs: Sequence[LoggedRun], summary: RunSummary) -> list[str]:
    """Return remarks, the most important first; figures without a problem have none."""
    said = []
    if summary.n_tasks and summary.occupancy >= 0.95:
        said.append(
            f"Slots were busy {text_format.format_percent(summary.occupancy)} of the time: little is left to gain."
        )
    if summary.tail > max(0.1 * summary.wall, 1.0):
        said.append(
            f"In the last {text_format.format_duration(summary.tail)} some slots had nothing left to do. A few records "
            "cost much more than the rest; see the slowest batches."
        )
    said += describe_costs(runs, summary)
    if summary.cpu_lost > 0.02 * summary.cpu:
        said.append(f"Attempts that failed cost {text_format.format_duration(summary.cpu_lost)} of CPU time.")
    return [*said, *(run.volumes.words for run in runs if run.volumes)]


#: Maximum rows of the tables; further ones are only counted.
MAX_SLOWEST, MAX_QUARANTINED, MAX_RUNS, MAX_NODES, MAX_FILE_ROWS = 20, 200, 50, 1024, 200


#: The chart library that the pages contain: its files, unchanged, and their licence.
UPLOT = Path(__file__).with_name("uplot")


class LivePageMode(FrozenValue, frozen=True):
    """Mode of a page that reloads itself while the run goes on."""

    #: Whether the page is complete; else only its changing parts.
    whole: bool
    #: The run has ended: the page does not reload any more.
    over: bool


def write_report(run_dir: Path, out: Path, log: Path | None = None) -> None:
    """Write the report of ``run_dir`` to ``out``, replacing it as a whole.

    Works during the run too, and for a run that was killed.

    Args:
        log: Its event log, if that was moved.

    Raises:
        MillraceError: There is no event log, or nothing in it.
    """
    log = log or run_dir / "events.jsonl"
    if not log.is_file():
        raise MillraceError(f"{run_dir}: no events.jsonl", "give the run directory, by default OUTPUT.millrace/")
    runs = load_runs(read_events(log))
    if not runs:
        raise MillraceError(f"{log}: no events yet", "wait until the run has begun")
    write_page(out, render_page(runs, run_dir))


def write_page(out: Path, page: str) -> None:
    """Write a page to ``out``, replacing it atomically.

    Raises:
        MillraceError: It cannot be written there.
    """
    try:
        replace_file(out, page.encode(errors="backslashreplace"))
    except OSError as error:
        raise MillraceError(f"{out}: {error.strerror}", "name a place of your own with -o") from error


def render_page(runs: Sequence[LoggedRun], run_dir: Path, live: LivePageMode | None = None) -> str:
    """Return the page as text."""
    summary = summarise_runs(list(runs))
    return render_template(
        "page.html.j2",
        make_charts(runs),
        live,
        summary=summary,
        status="running" if live and not live.over else summary.status,
        about=summary.version or summary.tool,
        title=_format_title(runs[-1], run_dir),
        command=shlex.join(runs[-1].head.argv),
        run_dir=str(run_dir),
        cards=make_cards(summary),
        remarks=make_remarks(runs, summary),
        runs=list(enumerate(runs, 1))[-MAX_RUNS:],
        nodes=(nodes := summarise_nodes(runs[-1])[:MAX_NODES]),
        io=summary.io,
        io_nodes=make_node_rows(nodes),
        io_lines=describe_totals(summary.io) if summary.io else [],
        file_heads=FILE_HEADS,
        files=make_file_rows(summary.io.files, MAX_FILE_ROWS) if summary.io else [],
        slowest=list_slowest_batches(list(runs), MAX_SLOWEST),
        quarantined=summary.quarantined[:MAX_QUARANTINED],
        message=runs[-1].message,
    )


def render_template(
    template: str, figures: dict[str, Any], live: LivePageMode | None, folders: Sequence[Path] = (), **values: Any
) -> str:
    """Return a page as text.

    Args:
        figures: Data of its charts.
        folders: Folders of the template, if not here.
    """
    # Imported here: only pages need templates.
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=FileSystemLoader([*folders, Path(__file__).parent]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["duration"] = text_format.format_duration
    environment.filters["percent"] = text_format.format_percent
    environment.filters["size"] = text_format.format_size
    environment.globals["records"] = text_format.format_records
    # "<" is escaped so that no name or path can close the script element.
    data = msgspec.json.encode(figures).decode().replace("<", "\\u003c")
    return environment.get_template(template).render(
        **values,
        data=Markup(data),
        nonce=secrets.token_urlsafe(16),  # only scripts of this page have it, not one that a name contains
        library=Markup(read_library()),
        library_style=Markup((UPLOT / "uPlot.min.css").read_text(encoding="utf-8")),
        whole=live is None or live.whole,
        live=live is not None,
        over=live is not None and live.over,
    )


def read_library() -> str:
    """Return the script that draws charts: uPlot, and what all pages add to it."""
    files = (Path(__file__).with_name("charts.js"), UPLOT / "uPlot.iife.min.js")
    return "\n".join(file.read_text(encoding="utf-8") for file in files)


def _format_title(run: LoggedRun, run_dir: Path) -> str:
    program = Path(run.head.argv[0]).name if run.head.argv else run.head.tool or "run"
    return f"{program}: {run_dir.resolve().name.removesuffix('.millrace')}"


def make_cards(summary: RunSummary) -> list[dict[str, Any]]:
    """Return the headline figures: a name, a figure, and a line of detail below."""
    unit_rate = f"{text_format.format_scaled(summary.units_per_second)} {summary.unit}/s"
    return [
        {
            "head": "records done",
            "figure": f"{summary.records_done:,}",
            "note": f"{summary.records_resumed:,} by earlier runs"
            if summary.records_resumed
            else text_format.format_count(summary.n_tasks, "task"),
        },
        {
            "head": "running time",
            "figure": text_format.format_duration(summary.wall),
            "note": f"in {text_format.format_count(summary.n_runs, 'run')}, {text_format.format_count(summary.slots, 'slot')}",
        },
        {
            "head": "throughput",
            "figure": f"{text_format.format_scaled(summary.records_per_second)} records/s",
            "note": unit_rate if summary.unit != "records" else f"{text_format.format_size(summary.bytes_in)} read",
        },
        {
            "head": "slots busy",
            "figure": text_format.format_percent(summary.occupancy),
            "note": "of slots × time, whatever else ran",
        },
        {
            "head": "parallel efficiency",
            "figure": text_format.format_percent(summary.efficiency),
            "note": f"{text_format.format_duration(summary.cpu)} of tool CPU / (slots × {'threads × ' if summary.threads > 1 else ''}time)",
        },
        {
            "head": "memory, largest task",
            "figure": text_format.format_size(summary.rss),
            "note": f"{text_format.format_size(summary.bytes_out)} of output",
        },
        {
            "head": "retries",
            "figure": f"{summary.n_retries:,}",
            "note": f"{text_format.format_count(summary.n_failed, 'attempt')} failed",
        },
        {
            "head": "quarantined",
            "figure": f"{len(summary.quarantined):,}",
            "note": "records without a result" if summary.quarantined else "every record has its result",
            "bad": bool(summary.quarantined),
        },
    ]
