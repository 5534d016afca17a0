"""The command ``millrace gather``."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from millrace import __version__
from millrace.cli.options import add_search_store_option
from millrace.core.errors import ExitCode


@click.command("gather", short_help="Rebuild an output from the journal alone.")
@click.argument("run", metavar="RUN")
@click.option("--stream", default="", metavar="NAME", help="Which output, if there are several.")
@click.option(
    "-d", "--directory", default="", metavar="DIR",
    help="Folder of RUN; or a run directory, or the folder of a job in phases, of which RUN is an output.",
)  # fmt: skip
@click.option("-o", "--output", default="", metavar="FILE", help="Where to write it (default: standard output).")
@click.option(
    "-f", "--force", is_flag=True, help="Write FILE also where it is the output of the run itself, which is done."
)
@click.option(
    "-i", "--ignore-errors", is_flag=True, help="Write what is there, although blocks are missing or damaged."
)
@click.version_option(__version__, prog_name="millrace")
@add_search_store_option
def command(run: str, stream: str, directory: str, output: str, force: bool, ignore_errors: bool) -> None:
    """Rebuild an output from the journal of a run alone, verifying every checksum. RUN is its run directory, or an
    output beside it.

    For an unfinished run, everything up to the first gap is written, and the exit code is 1.

    \b
    millrace gather hits.tsv -o again.tsv
    millrace gather scan.millrace --stream tblout > t.txt
    millrace gather -d job.millrace hits.tsv > again.tsv
    """
    from millrace.output import journal_gather

    run_dir, named = _find_output(directory, run)
    stream = stream or named
    found = journal_gather.gather_output(run_dir, stream, output or "-", ignore_errors=ignore_errors, force=force)
    for problem in (*found.damaged, *found.missing):
        click.echo(f"millrace: {problem}", err=True)
    sys.exit(ExitCode.CORRUPT if found.damaged else ExitCode.STOPPED if found.missing else ExitCode.DONE)


def _find_output(directory: str, name: str) -> tuple[Path, str]:
    """Find a run by its name or by that of an output; return its run directory, and the stream if ``name`` is an output.

    Args:
        directory: Folder of the run, run directory, or folder of a job in phases; empty: the working folder.

    Raises:
        RefusedError: There is no such run or output.
    """
    from millrace.core.errors import RefusedError
    from millrace.rundir import run_history
    from millrace.rundir.paths import RunDir

    folder, path = Path(directory), os.path.join(directory, name)
    beside = run_history.resolve_run_dir(path, os.environ)
    places = [beside] if beside.is_dir() else [folder, *sorted(folder.glob("*/"))] if directory else []
    runs = [place for place in places if RunDir(place).has_run()]
    outputs = [(place, output) for place in runs for output in RunDir(place).read_manifest().use.outputs]
    for place, output in outputs:
        if os.path.basename(name) in (output.name, os.path.basename(output.path)):
            return place, output.name
    if outputs and not beside.is_dir():
        known = ", ".join(dict.fromkeys(output.name for _, output in outputs))
        raise RefusedError(f"{directory}: has no output {name}", f"outputs are: {known}")
    run_dir, ended = run_history.find_run_logs(path, os.environ)
    if ended:
        raise RefusedError(
            f"{path}: the run was {ended.status}, and {ended.run_dir} is gone", "--keep-run-dir keeps it for gather"
        )
    return run_dir, ""
