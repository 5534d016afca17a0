"""The command ``millrace watch``."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from millrace.cli.options import add_search_store_option

if TYPE_CHECKING:
    from millrace.extensions.watch.watch_targets import WatchTarget
    from millrace.extensions.watch.watch_view import WatchView

#: Seconds between updates.
POLL_INTERVAL_SECONDS = 1.0

#: Longest time, in seconds, to serve the final page of a run before anybody has loaded it.
MAX_WAIT_SECONDS = 60.0


@click.command("watch", short_help="Show runs while they last.")
@click.argument("runs", metavar="[RUN]...", nargs=-1)
@click.option(
    "--web", is_flag=True, help="Show it in a browser of this machine: the report page, live. Prints its address."
)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, metavar="N", help="Port for --web (default: any that is free)."
)
@add_search_store_option
def command(runs: tuple[str, ...], web: bool, port: int) -> None:
    """Show runs while they last, from their run directories alone, also from another machine; without RUN, all that are
    running in this folder. On a terminal: a table; elsewhere: a line for each change.

    \b
    millrace watch hits.tsv.millrace
    millrace watch --web hits.tsv.millrace

    Ends when all runs have ended. Exit code 0: done; 3: records were quarantined; 1: a run was stopped or killed.
    Ctrl-C ends the view, not the runs.
    """
    from millrace.cli.run import get_working_folder
    from millrace.core.errors import RefusedError
    from millrace.extensions.watch.watch_targets import list_active_runs, open_watch_targets

    names = runs or tuple(list_active_runs(get_working_folder()))
    if not names:
        raise RefusedError("no run goes on in this folder", "name its run directory: millrace watch RUN")
    if web and len(names) > 1:
        raise RefusedError(f"--web shows one run, and these are {len(names)}", f"millrace watch --web {names[0]}")
    if port and not web:
        raise RefusedError("--port belongs to --web", "leave it out, or say --web")
    with open_watch_targets(names, os.environ) as watched:
        if web:
            views = [_serve_to_browser(watched[0], names[0], port)]
        else:
            views = _show_on_terminal(watched) if sys.stdout.isatty() else _print_changes(watched)
    codes = [view.code for view in views]
    sys.exit(1 if 1 in codes else max(codes))


def _print_changes(watched: Sequence[WatchTarget]) -> list[WatchView]:
    """Print a line whenever a run has changed, until all have ended; return their last views."""
    from millrace.extensions.watch import terminal_screen

    told: list[object] = [None] * len(watched)
    while True:
        views = [each.read_view() for each in watched]
        for number, view in enumerate(views):
            if told[number] != (told_now := terminal_screen.build_change_key(view)):
                click.echo(terminal_screen.format_status_line(view))
                told[number] = told_now
        sys.stdout.flush()
        if all(view.is_over for view in views):
            return views
        time.sleep(POLL_INTERVAL_SECONDS)


def _show_on_terminal(watched: Sequence[WatchTarget]) -> list[WatchView]:
    """Redraw a table on the terminal until all runs have ended; return their last views."""
    from rich.live import Live

    from millrace.core.text_format import make_console
    from millrace.extensions.watch.terminal_screen import draw_views

    console = make_console(sys.stdout)
    views = [each.read_view() for each in watched]
    with Live(draw_views(views), console=console, auto_refresh=False) as live:
        while not all(view.is_over for view in views):
            time.sleep(POLL_INTERVAL_SECONDS)
            views = [each.read_view() for each in watched]
            live.update(draw_views(views), refresh=True)
    return views


def _serve_to_browser(watched: WatchTarget, name: str, port: int) -> WatchView:
    """Serve the live page of a run until it has ended and a browser has loaded the last page; return the last view."""
    from millrace.extensions.watch.token_site import LivePage, serve_site

    page = LivePage(watched, name)
    with serve_site(port, page.pages) as site:
        click.echo(site.url)
        sys.stdout.flush()
        while not (view := page.read_view()).is_over:
            time.sleep(POLL_INTERVAL_SECONDS)
        site.told.wait(MAX_WAIT_SECONDS)
    return view
