"""The command ``millrace status``."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from millrace.storage.past import Past


@click.command("status", short_help="Say how far a run is.")
@click.argument("runs", metavar="[RUN]...", nargs=-1)
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def command(runs: tuple[str, ...], as_json: bool) -> None:
    """Say how far a run is: running, stopped or done, from its run directory alone; for a job in phases, say it of each
    phase. RUN is that directory, or an output beside it. If the directory is gone, or RUN is a name in ``millrace
    runs``, say how the run ended. Without RUN: all run directories in this folder.

    \b
    millrace status hits.tsv
    """
    from millrace.cli.run import here
    from millrace.errors import RefusedError
    from millrace.plan import run_place

    names = runs or tuple(path.name for path in run_place.inside(here()))
    if not names:
        raise RefusedError("no run directory in this folder", "millrace runs lists runs that have ended")
    for name in names:
        _of_run(name, as_json=as_json)


def _of_run(name: str, *, as_json: bool) -> None:
    """Print the status of a run, or of a job in phases, by its name."""
    from millrace.cli.run import print_json
    from millrace.errors import parted
    from millrace.output import status
    from millrace.report.words import count
    from millrace.storage import past
    from millrace.workflow.folder import is_workflow

    run_dir, ended = past.logs_of(name, os.environ)
    if is_workflow(run_dir):
        _of_phases(run_dir, ended, as_json=as_json)
        return
    if ended:
        print_json(ended) if as_json else _tell(ended)
        return
    found = status.look(run_dir)
    if as_json:
        print_json(found)
        return
    click.echo(f"{run_dir}: {found.state}")
    click.echo(f"  command:      {' '.join(found.argv)}")
    click.echo(
        f"  records done: {found.records_done} (without a gap from the start, with those in quarantine: {found.records_in_order}), "
        f"quarantined: {found.quarantined}"
    )
    click.echo(f"  results:      {found.output_bytes} bytes in {count(len(found.journals), 'journal')} of {run_dir}")
    for line in found.damage:
        click.echo(f"  damage:       {line}")
    if found.state == "stopped":
        why, hint = parted(found.why)
        for number, line in enumerate(why.splitlines()):
            click.echo(f"  {'' if number else 'why:':<14}{line}")
        click.echo(f"  hint:         {hint}" if hint else "  type the command again in the same folder to resume")


def _of_phases(folder: Path, ended: Past | None, *, as_json: bool) -> None:
    """Print the status of a job in phases, a line for each phase."""
    from millrace.cli.run import print_json
    from millrace.watch import plain
    from millrace.watch.watched import opened

    with opened([str(folder)], os.environ) as (job,):
        view = job.look()
    if as_json:
        print_json(plain.figures(view))
        return
    click.echo(_heading(ended) if ended else f"{folder}: {view.state}")
    for phase in view.phases:
        click.echo(f"  {f'{phase.name}:':<{max(len(each.name) for each in view.phases) + 2}}{plain.amounts(phase)}")
    if not ended and view.is_over and view.state not in ("done", "quarantined"):
        click.echo("  type the command again in the same folder to resume")


def _tell(ended: Past) -> None:
    """Print how a run ended, from the history."""
    from millrace.report.words import count, duration

    click.echo(_heading(ended))
    click.echo(f"  command:      {shlex.join(ended.argv)}")
    click.echo(f"  where:        {ended.host}:{ended.cwd}")
    click.echo(
        f"  records done: {ended.records_done}, quarantined: {ended.quarantined}, in {duration(ended.wall)} of {count(ended.n_starts, 'start')}"
    )
    if ended.message:
        click.echo(f"  why:          {ended.message.splitlines()[0]}")


def _heading(ended: Past) -> str:
    return f"{ended.run_dir}: {ended.status} at {ended.ended}, exit code {ended.exit_code}"
