"""``millrace report``."""

from __future__ import annotations

import os
from pathlib import Path

import click


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
    """Write one self-contained HTML page that shows how a run went. RUN is its run directory, there or gone, or its name
    in ``millrace runs``.

    \b
    millrace report hits.tsv.millrace -o report.html
    """
    from millrace.cli.run import print_json
    from millrace.report import html, summary
    from millrace.report.events import read
    from millrace.rundir import RunDir
    from millrace.storage import past

    rundir = RunDir(Path(run))
    if rundir.path.exists():
        rundir.read_manifest()
        shown, events, page = rundir.path, rundir.events, rundir.path / "report.html"
    else:
        kept = past.find(run, os.environ)
        shown, events, page = Path(kept.past.run_dir), kept.events, Path(f"report-{kept.past.name}.html")
    if as_json:
        print_json(summary.summarise(read(events)))
        return
    html.write(shown, output or page, events)
    click.echo(str(output or page))
