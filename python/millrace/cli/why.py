"""The command ``millrace why``."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import click

from millrace.cli.options import add_search_store_option

if TYPE_CHECKING:
    from millrace.extensions.watch.watch_view import WatchView


@click.command("why", short_help="Say where the time of a run goes, and what would make it faster.")
@click.argument("run", metavar="RUN")
@add_search_store_option
def command(run: str) -> None:
    """Say in words why slots are idle, what a run waits for, what was tried again, and what would make it faster; while it
    lasts or later. RUN is its run directory, an output beside it, or its name in millrace runs.

    \b
    millrace why hits.tsv
    """
    from millrace.extensions.watch.watch_targets import open_watch_targets

    with open_watch_targets([run], os.environ) as (target,):
        view = target.read_view()
    for phase in view.phases:
        click.echo(f"{phase.name}:")
        for line in _explain_view(phase):
            click.echo(f"  {line}")
    for line in _explain_view(view) if not view.phases else ():
        click.echo(line)


def _explain_view(view: WatchView) -> list[str]:
    from datetime import datetime

    from millrace.report.run_explanation import explain_run

    elapsed = view.elapsed
    if view.state == "running" and view.runs and view.runs[-1].head.time:
        elapsed = max(elapsed, time.time() - datetime.fromisoformat(view.runs[-1].head.time).timestamp())
    return explain_run(view.runs, view.state, elapsed, view.left)
