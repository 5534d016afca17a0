"""The commands ``millrace status`` and ``millrace runs``."""

from __future__ import annotations

import os
import shlex
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from millrace.cli.options import add_search_store_option

if TYPE_CHECKING:
    from millrace.rundir.run_history import EndedRun


@click.command("status", short_help="Say how far a run is.")
@click.argument("runs", metavar="[RUN]...", nargs=-1)
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
@add_search_store_option
def command(runs: tuple[str, ...], as_json: bool) -> None:
    """Say how far a run is: running, stopped or done, from its run directory alone; for a job in phases, say it of each
    phase. RUN is that directory, or an output beside it. If the directory is gone, or RUN is a name in ``millrace
    runs``, say how the run ended. Without RUN: all run directories in this folder.

    \b
    millrace status hits.tsv
    """
    from millrace.cli.run import get_working_folder
    from millrace.core.errors import RefusedError
    from millrace.rundir import run_history

    names = runs or tuple(path.name for path in run_history.list_run_dirs(get_working_folder()))
    if not names:
        raise RefusedError("no run directory in this folder", "millrace runs lists runs that have ended")
    for name in names:
        _print_run_status(name, as_json=as_json)


def _print_run_status(name: str, *, as_json: bool) -> None:
    """Print the status of a run, or of a job in phases, by its name."""
    from millrace.cli.run import print_json
    from millrace.core.errors import split_hint
    from millrace.core.text_format import format_count
    from millrace.extensions.workflow.workflow_folder import is_workflow_folder
    from millrace.output import journal_gather
    from millrace.rundir import run_history

    run_dir, ended = run_history.find_run_logs(name, os.environ)
    if is_workflow_folder(run_dir):
        _print_phase_status(run_dir, ended, as_json=as_json)
        return
    if ended:
        print_json(ended) if as_json else _print_past_run(ended)
        return
    found = journal_gather.read_run_status(run_dir)
    if as_json:
        print_json(found)
        return
    click.echo(f"{run_dir}: {found.state}")
    click.echo(f"  command:      {' '.join(found.argv)}")
    click.echo(
        f"  records done: {found.records_done} (without a gap from the start, with those in quarantine: {found.records_in_order}), "
        f"quarantined: {found.quarantined}"
    )
    click.echo(
        f"  results:      {found.output_bytes} bytes in {format_count(len(found.journals), 'journal')} of {run_dir}"
    )
    for line in found.damage:
        click.echo(f"  damage:       {line}")
    if found.state == "stopped":
        why, hint = split_hint(found.why)
        for number, line in enumerate(why.splitlines()):
            click.echo(f"  {'' if number else 'why:':<14}{line}")
        click.echo(f"  hint:         {hint}" if hint else "  type the command again in the same folder to resume")


def _print_phase_status(folder: Path, ended: EndedRun | None, *, as_json: bool) -> None:
    """Print the status of a job in phases, a line for each phase."""
    from millrace.cli.run import print_json
    from millrace.extensions.watch import terminal_screen
    from millrace.extensions.watch.watch_targets import open_watch_targets

    with open_watch_targets([str(folder)], os.environ) as (job,):
        view = job.read_view()
    if as_json:
        print_json(terminal_screen.build_figures(view))
        return
    click.echo(_format_heading(ended) if ended else f"{folder}: {view.state}")
    for phase in view.phases:
        click.echo(
            f"  {f'{phase.name}:':<{max(len(each.name) for each in view.phases) + 2}}{terminal_screen.format_amounts(phase)}"
        )
    if not ended and view.is_over and view.state not in ("done", "quarantined"):
        click.echo("  type the command again in the same folder to resume")


def _print_past_run(ended: EndedRun) -> None:
    """Print how a run ended, from the history."""
    from millrace.core.text_format import format_count, format_duration

    click.echo(_format_heading(ended))
    click.echo(f"  command:      {shlex.join(ended.argv)}")
    click.echo(f"  where:        {ended.host}:{ended.cwd}")
    click.echo(
        f"  records done: {ended.records_done}, quarantined: {ended.quarantined}, in {format_duration(ended.wall)} of {format_count(ended.n_starts, 'start')}"
    )
    if ended.message:
        click.echo(f"  why:          {ended.message.splitlines()[0]}")


def _format_heading(ended: EndedRun) -> str:
    return f"{ended.run_dir}: {ended.status} at {ended.ended}, exit code {ended.exit_code}"


@click.command("runs", short_help="List the runs that ended, and those that go on here.")
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def runs_command(as_json: bool) -> None:
    """List your ended runs, the latest last: name, time, status, records, command, folder. Then list the runs that are
    running in this folder, as ``millrace watch`` shows them.

    ``millrace status`` and ``millrace report`` take the name. At most 50 runs of this user are kept, in
    ``~/.local/state/millrace/runs`` (or in ``$XDG_STATE_HOME``), which may be removed at any time.

    \b
    millrace runs
    millrace report 3f2a91c0
    """
    from millrace.cli.run import get_working_folder, print_json
    from millrace.core.text_format import format_count
    from millrace.rundir import run_history

    runs = [each.past for each in run_history.list_archived_runs(os.environ)]
    if as_json:
        print_json(runs)
        return
    for run in runs:
        how = run.status if run.exit_code in (0, 3) else f"{run.status} ({run.exit_code})"
        when = run.ended[:16].replace("T", " ")
        click.echo(
            f"{run.name}  {when}  {how:<17}  {format_count(run.records_done, 'record'):>14}  {shlex.join(run.argv)}"
        )
        click.echo(f"{'':<10}in {run.host}:{run.cwd}")
    lines = _describe_active_runs(get_working_folder())
    click.echo("".join(f"{line}\n" for line in lines), nl=False)
    if not runs and not lines:
        click.echo("no runs are kept", err=True)


def _describe_active_runs(cwd: Path) -> list[str]:
    """Return a line for each run of the working folder that is running now."""
    from millrace.core.errors import MillraceError
    from millrace.extensions.watch import terminal_screen
    from millrace.extensions.watch.watch_targets import list_active_runs, open_watch_targets

    lines = []
    for name in list_active_runs(cwd):
        with (
            suppress(MillraceError, OSError),
            open_watch_targets([name], os.environ) as (run,),
        ):  # it has just ended, or belongs to another user
            lines.append(terminal_screen.format_status_line(run.read_view()))
    return lines
