"""The command ``millrace demo``."""

from __future__ import annotations

import os
from pathlib import Path

import click


@click.command("demo", short_help="Show the main job on made-up proteins: same bytes, sooner, crash-safe.")
@click.option(
    "--dir", "folder", type=click.Path(path_type=Path), default=Path("demo"), show_default=True, help="Where to work."
)
@click.option("--queries", type=click.IntRange(min=1), default=400, show_default=True, help="Number of queries.")
def command(folder: Path, queries: int) -> None:
    """Make a seeded set of proteins, search it with blastp serially and through Millrace, compare the files byte for
    byte, then kill a second run in the middle and resume it. Opens no network.
    """
    from millrace import demo

    demo.run_demo(folder, queries, dict(os.environ), click.echo)
