"""``millrace report``."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("report", short_help="Write a page that shows how a run went.")
@click.argument("run_dir", type=click.Path(path_type=Path))
@click.option("-o", "output", type=click.Path(path_type=Path), help="Where to write it (default: RUN_DIR/report.html).")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON instead.")
def command(run_dir: Path, output: Path | None, as_json: bool) -> None:
    """Write one self-contained HTML page that shows how a run went. The run must keep its directory (--keep-run-dir).

    \b
    millrace report hits.tsv.millrace -o report.html
    """
    from millrace.cli.run import print_json
    from millrace.report import html, summary
    from millrace.report.events import read
    from millrace.rundir import RunDir

    rundir = RunDir(run_dir)
    rundir.read_manifest()
    if as_json:
        print_json(summary.summarise(read(rundir.events)))
        return
    page = output or run_dir / "report.html"
    html.write(run_dir, page)
    click.echo(str(page))
