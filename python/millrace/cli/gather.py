"""The command ``millrace gather``."""

from __future__ import annotations

import os
import sys

import click

from millrace.core.errors import ExitCode


@click.command("gather", short_help="Rebuild an output from the journal alone.")
@click.argument("run", metavar="RUN")
@click.option("--stream", default="", metavar="NAME", help="Which output, if there are several.")
@click.option("-o", "output", default="", metavar="FILE", help="Where to write it (default: standard output).")
@click.option("--ignore-errors", is_flag=True, help="Write what is there, although blocks are missing or damaged.")
def command(run: str, stream: str, output: str, ignore_errors: bool) -> None:
    """Rebuild an output from the journal of a run alone, verifying every checksum. RUN is its run directory, or an
    output beside it.

    For an unfinished run, everything up to the first gap is written, and the exit code is 1.

    \b
    millrace gather hits.tsv -o again.tsv
    millrace gather scan.millrace --stream tblout > t.txt
    """
    from millrace.core.errors import RefusedError
    from millrace.output import journal_gather
    from millrace.rundir import run_history

    run_dir, ended = run_history.find_run_logs(run, os.environ)
    if ended:
        raise RefusedError(
            f"{run}: the run was {ended.status}, and {ended.run_dir} is gone", "--keep-run-dir keeps it for gather"
        )
    found = journal_gather.gather_output(run_dir, stream, output or "-", ignore_errors=ignore_errors)
    for problem in (*found.damaged, *found.missing):
        click.echo(f"millrace: {problem}", err=True)
    sys.exit(ExitCode.CORRUPT if found.damaged else ExitCode.STOPPED if found.missing else ExitCode.DONE)
