"""The command ``millrace runs``."""

from __future__ import annotations

import os
import shlex
from contextlib import suppress
from pathlib import Path

import click


@click.command("runs", short_help="List the runs that ended, and those that go on here.")
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def command(as_json: bool) -> None:
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
