"""``millrace status``."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("status", short_help="Say how far a run is.")
@click.argument("run_dir", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def command(run_dir: Path, as_json: bool) -> None:
    """Say how far a run is: running, stopped or done, from its run directory alone.

    \b
    millrace status hits.tsv.millrace
    """
    from millrace.cli.run import print_json
    from millrace.output import status
    from millrace.report.words import count

    found = status.look(run_dir)
    if as_json:
        print_json(found)
        return
    click.echo(f"{run_dir}: {found.state}")
    click.echo(f"  command:      {' '.join(found.argv)}")
    click.echo(
        f"  records done: {found.records_done} (whole from the start: {found.records_in_order}), quarantined: {found.quarantined}"
    )
    click.echo(f"  results:      {found.output_bytes} bytes in {count(len(found.journals), 'journal')} of {run_dir}")
    for line in found.damage:
        click.echo(f"  damage:       {line}")
    if found.state == "stopped":
        click.echo("  type the command again in the same folder to resume")
