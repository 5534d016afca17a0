"""``millrace runs``."""

from __future__ import annotations

import os
import shlex

import click


@click.command("runs", short_help="List the runs that ended.")
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def command(as_json: bool) -> None:
    """List your latest runs that ended, whatever way, the last one at the end: name, when, how, records, command, folder.

    ``millrace status`` and ``millrace report`` take the name. Kept are at most 50 runs, of this user, in
    ``~/.local/state/millrace/runs`` (or in ``$XDG_STATE_HOME``), which may be removed at any time.

    \b
    millrace runs
    millrace report 3f2a91c0
    """
    from millrace.cli.run import print_json
    from millrace.report.words import count
    from millrace.storage import past

    runs = [each.past for each in past.kept(os.environ)]
    if as_json:
        print_json(runs)
        return
    for run in runs:
        how = run.status if run.exit_code in (0, 3) else f"{run.status} ({run.exit_code})"
        when = run.ended[:16].replace("T", " ")
        click.echo(f"{run.name}  {when}  {how:<17}  {count(run.records_done, 'record'):>14}  {shlex.join(run.argv)}")
        click.echo(f"{'':<10}in {run.host}:{run.cwd}")
    if not runs:
        click.echo("no runs are kept", err=True)
