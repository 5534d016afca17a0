"""The report: one self-contained HTML page, made from the event log of a run directory."""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from millrace.errors import MillraceError
from millrace.model import Frozen
from millrace.own import replace_whole
from millrace.report import words
from millrace.report.by_node import nodes
from millrace.report.charts import charts
from millrace.report.events import read
from millrace.report.remarks import remarks
from millrace.report.runs import Run, load
from millrace.report.summary import Summary, of_runs, slowest

#: Maximum rows of the tables; further ones are only counted.
MAX_SLOWEST, MAX_QUARANTINED, MAX_RUNS, MAX_NODES = 20, 200, 50, 1024


class Live(Frozen, frozen=True):
    """Mode of a page that reloads itself while the run goes on."""

    #: Whether the page is complete; else only its changing parts.
    whole: bool
    #: The run has ended: the page does not reload any more.
    over: bool


def write(run_dir: Path, out: Path, log: Path | None = None) -> None:
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
    runs = load(read(log))
    if not runs:
        raise MillraceError(f"{log}: no events yet", "wait until the run has begun")
    content = page(runs, run_dir).encode(errors="backslashreplace")
    try:
        replace_whole(out, content)
    except PermissionError as error:
        raise MillraceError(f"{out}: {error.strerror}", "name a place of your own with -o") from error


def page(runs: Sequence[Run], run_dir: Path, live: Live | None = None) -> str:
    """Return the page as text."""
    summary = of_runs(list(runs))
    return rendered(
        "page.html.j2",
        charts(runs),
        live,
        summary=summary,
        status="running" if live and not live.over else summary.status,
        about=summary.version or summary.tool,
        title=_title(runs[-1], run_dir),
        command=shlex.join(runs[-1].head.argv),
        run_dir=str(run_dir),
        cards=cards(summary),
        remarks=remarks(runs, summary),
        runs=list(enumerate(runs, 1))[-MAX_RUNS:],
        nodes=nodes(runs[-1])[:MAX_NODES],
        slowest=slowest(list(runs), MAX_SLOWEST),
        quarantined=summary.quarantined[:MAX_QUARANTINED],
        message=runs[-1].message,
    )


def rendered(
    template: str, figures: dict[str, Any], live: Live | None, folders: Sequence[Path] = (), **values: Any
) -> str:
    """Return a page as text.

    Args:
        figures: Data of its charts.
        folders: Folders of the template, if not here.
    """
    # Imported here: only pages need templates and charts.
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup
    from plotly.offline import get_plotlyjs  # type: ignore[import-untyped]

    environment = Environment(
        loader=FileSystemLoader([*folders, Path(__file__).parent]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["duration"] = words.duration
    environment.filters["percent"] = words.percent
    environment.globals["records"] = words.records
    # "<" is escaped so that no name or path can close the script element.
    data = msgspec.json.encode(figures).decode().replace("<", "\\u003c")
    return environment.get_template(template).render(
        **values,
        data=Markup(data),
        nonce=secrets.token_urlsafe(16),  # only scripts of this page have it, not one that a name contains
        plotly=Markup(get_plotlyjs() if live is None or live.whole else ""),
        live=live is not None,
        over=live is not None and live.over,
    )


def _title(run: Run, run_dir: Path) -> str:
    program = Path(run.head.argv[0]).name if run.head.argv else run.head.tool or "run"
    return f"{program}: {run_dir.resolve().name.removesuffix('.millrace')}"


def cards(summary: Summary) -> list[dict[str, Any]]:
    """Return the headline figures: a name, a figure, and a line of detail below."""
    unit_rate = f"{words.scaled(summary.units_per_second)} {summary.unit}/s"
    return [
        {
            "head": "records done",
            "figure": f"{summary.records_done:,}",
            "note": f"{summary.records_resumed:,} by earlier runs"
            if summary.records_resumed
            else words.count(summary.n_tasks, "task"),
        },
        {
            "head": "running time",
            "figure": words.duration(summary.wall),
            "note": f"in {words.count(summary.n_runs, 'run')}, {words.count(summary.slots, 'slot')}",
        },
        {
            "head": "throughput",
            "figure": f"{words.scaled(summary.records_per_second)} records/s",
            "note": unit_rate if summary.unit != "records" else f"{words.size(summary.bytes_in)} read",
        },
        {
            "head": "slots busy",
            "figure": words.percent(summary.occupancy),
            "note": "of slots × time, whatever else ran",
        },
        {
            "head": "parallel efficiency",
            "figure": words.percent(summary.efficiency),
            "note": f"{words.duration(summary.cpu)} of tool CPU / (slots × {'threads × ' if summary.threads > 1 else ''}time)",
        },
        {
            "head": "memory, largest task",
            "figure": words.size(summary.rss),
            "note": f"{words.size(summary.bytes_out)} of output",
        },
        {
            "head": "retries",
            "figure": f"{summary.n_retries:,}",
            "note": f"{words.count(summary.n_failed, 'attempt')} failed",
        },
        {
            "head": "quarantined",
            "figure": f"{len(summary.quarantined):,}",
            "note": "records without a result" if summary.quarantined else "every record has its result",
            "bad": bool(summary.quarantined),
        },
    ]
