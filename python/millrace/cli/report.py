"""``millrace report``."""

from __future__ import annotations

import os
from pathlib import Path

import click

#: How a page begins, in lower case.
PAGE = b"<!doctype html>"

#: What it is called in a run directory.
PAGE_NAME = "report.html"


@click.command("report", short_help="Write a page that shows how a run went.")
@click.argument("run", metavar="RUN")
@click.option(
    "-o",
    "output",
    type=click.Path(path_type=Path),
    help="Where to write it (default: RUN/report.html, or report-RUN.html if the run directory is gone).",
)
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON instead.")
def command(run: str, output: Path | None, as_json: bool) -> None:
    """Write one self-contained HTML page that shows how a run went. RUN is its run directory, there or gone, an output
    that this lies beside, or its name in ``millrace runs``.

    \b
    millrace report hits.tsv -o report.html
    """
    from millrace.cli.run import print_json
    from millrace.plan import run_place
    from millrace.report import html, summary
    from millrace.report.events import read
    from millrace.rundir import RunDir
    from millrace.storage import past
    from millrace.workflow.folder import is_workflow

    rundir = RunDir(run_place.of(run))
    if is_workflow(rundir.path):
        _of_phases(rundir.path, rundir.path, output or rundir.path / PAGE_NAME, as_json=as_json)
        return
    if rundir.path.is_dir():
        rundir.read_manifest()
        shown, events, page = rundir.path, rundir.events, rundir.path / PAGE_NAME
    else:
        kept = past.find(run, os.environ)
        shown, events, page = Path(kept.past.run_dir), kept.events, Path(f"report-{kept.past.name}.html")
        if is_workflow(kept.folder):
            _of_phases(kept.folder, shown, output or page, as_json=as_json)
            return
    if as_json:
        print_json(summary.summarise(read(events)))
        return
    _check_page(output or page)
    html.write(shown, output or page, events)
    click.echo(str(output or page))


def _check_page(output: Path) -> None:
    """A slip of the hand may not cost an output."""
    from millrace.errors import RefusedError

    if not output.is_file():
        return
    with output.open("rb") as file:
        begin = file.read(len(PAGE)).lower()
    if begin not in (b"", PAGE):
        raise RefusedError(f"{output}: is there, and no report", "name another file, or remove it before")


def _of_phases(folder: Path, shown: Path, output: Path, *, as_json: bool) -> None:
    """Write the page of a job in phases whose logs are in ``folder``, and which was run in ``shown``."""
    from millrace.cli.run import print_json
    from millrace.report import summary
    from millrace.watch import phases
    from millrace.watch.job import WatchedJob

    job = WatchedJob(folder, str(folder), os.environ)
    try:
        view = job.look()
    finally:
        job.close()
    if as_json:
        print_json({phase.name: summary.of_runs(list(phase.runs)) for phase in view.phases if phase.runs})
        return
    _check_page(output)
    phases.write(view, shown, output)
    click.echo(str(output))
