"""``millrace runs``."""

from __future__ import annotations

import os
import shlex
from contextlib import suppress
from pathlib import Path

import click


@click.command("runs", short_help="List the runs that ended, and those that go on here.")
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def command(as_json: bool) -> None:
    """List your latest runs that ended, whatever way, the last one at the end: name, when, how, records, command, folder.
    Then those that go on in this folder, as ``millrace watch`` has them.

    ``millrace status`` and ``millrace report`` take the name. Kept are at most 50 runs, of this user, in
    ``~/.local/state/millrace/runs`` (or in ``$XDG_STATE_HOME``), which may be removed at any time.

    \b
    millrace runs
    millrace report 3f2a91c0
    """
    from millrace.cli.run import here, print_json
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
    lines = _going_on(here())
    click.echo("".join(f"{line}\n" for line in lines), nl=False)
    if not runs and not lines:
        click.echo("no runs are kept", err=True)


def _going_on(cwd: Path) -> list[str]:
    """A line for each run of the working folder in which somebody is at work."""
    from millrace.errors import MillraceError
    from millrace.watch import plain
    from millrace.watch.watched import going_on, opened

    lines = []
    for name in going_on(cwd):
        with (
            suppress(MillraceError, OSError),
            opened([name], os.environ) as (run,),
        ):  # it ends just now, or is another's
            lines.append(plain.line(run.look()))
    return lines
