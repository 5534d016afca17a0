"""The command ``millrace report``."""

from __future__ import annotations

import os
from pathlib import Path

import click

from millrace.cli.options import add_search_store_option

#: First bytes of a report page, in lower case.
PAGE = b"<!doctype html>"


@click.command("report", short_help="Write a page that shows how a run went.")
@click.argument("run", metavar="RUN")
@click.option(
    "-o",
    "output",
    type=click.Path(path_type=Path),
    help="Where to write it (default: RUN/report.html, or report-RUN.html if the run directory is gone).",
)
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON instead.")
@click.option(
    "--ro-crate",
    "crate",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Write outputs, journal and description of a finished run as an RO-Crate into the new folder DIR instead.",
)
@click.option(
    "--multiqc",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Write a table for MultiQC (RUN_mqc.json) and versions (RUN_mqc_versions.yml) into the folder DIR instead.",
)
@add_search_store_option
def command(run: str, output: Path | None, as_json: bool, crate: Path | None, multiqc: Path | None) -> None:
    """Write one self-contained HTML page that shows how a run went, or what other programs read of it. RUN is its run
    directory, present or removed, an output beside it, or its name in ``millrace runs``.

    \b
    millrace report hits.tsv -o report.html
    """
    from millrace.cli.run import print_json
    from millrace.extensions.workflow.workflow_folder import is_workflow_folder
    from millrace.report import html_report, summary
    from millrace.report.events import read_events
    from millrace.rundir import run_history
    from millrace.rundir.paths import SUFFIX, RunDir

    if sum(map(bool, (output, as_json, crate, multiqc))) > 1:
        raise click.UsageError("-o, --json, --ro-crate and --multiqc: one at a time")
    if crate:
        _write_crate(run, crate)
        return
    folder, ended = run_history.find_run_logs(run, os.environ)
    shown = Path(ended.run_dir) if ended else folder
    page = output or (Path(f"report-{ended.name}.html") if ended else folder / "report.html")
    if is_workflow_folder(folder):
        _write_phases_page(folder, shown, page, as_json=as_json)
        return
    rundir = RunDir(folder)
    if not ended:
        rundir.read_manifest()
    if as_json:
        print_json(summary.summarise_events(read_events(rundir.events)))
        return
    if multiqc:
        from millrace.report.multiqc import write_multiqc_files

        found = summary.summarise_events(read_events(rundir.events))
        for path in write_multiqc_files(found, (shown if ended else Path(run)).name.removesuffix(SUFFIX), multiqc):
            click.echo(str(path))
        return
    _check_page(page)
    html_report.write_report(shown, page, rundir.events)
    click.echo(str(page))


def _write_crate(run: str, dest: Path) -> None:
    """Write the crate of a run that was kept."""
    from millrace.extensions.provenance import journaled_run, run_crate

    run_crate.write_crate(journaled_run.open_journaled_run(run, os.environ), dest, os.environ)
    click.echo(str(dest))


def _check_page(output: Path) -> None:
    """Refuse to overwrite a file that is no report page: a typing error must not destroy an output."""
    from millrace.core.errors import RefusedError

    if str(output) == "-":
        raise RefusedError("-o -: a file is needed, not standard output", "name one: -o report.html")
    if output.is_dir():
        raise RefusedError(f"-o {output}: is a folder", "name a file: -o report.html")
    if output.exists() and not (output.is_file() and _has_page(output)):
        raise RefusedError(f"{output}: is there, and no report", "name another file, or remove it before")


def _has_page(file: Path) -> bool:
    """Tell whether a file is a report page, or empty."""
    with file.open("rb") as opened:
        return opened.read(len(PAGE)).lower() in (b"", PAGE)


def _write_phases_page(folder: Path, shown: Path, output: Path, *, as_json: bool) -> None:
    """Write the page, or print the JSON, of a job in phases with logs in ``folder`` and the run directory ``shown``."""
    from millrace.cli.run import print_json
    from millrace.extensions.watch import watch_view
    from millrace.extensions.watch.watch_targets import WatchedJob
    from millrace.report import summary

    job = WatchedJob(folder, str(folder), os.environ)
    try:
        view = job.read_view()
    finally:
        job.close()
    if as_json:
        print_json({phase.name: summary.summarise_runs(list(phase.runs)) for phase in view.phases if phase.runs})
        return
    _check_page(output)
    watch_view.write_phases_page(view, shown, output)
    click.echo(str(output))
