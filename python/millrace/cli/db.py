"""``millrace db``."""

from __future__ import annotations

import os
from pathlib import Path

import click


@click.group("db", short_help="Databases for nodes that do not share storage.")
def command() -> None:
    """Databases for nodes that do not share storage."""


@command.command("split", short_help="Make physical fragments of a BLAST database.")
@click.argument("database")
@click.argument("size", metavar="N|SIZE")
@click.option(
    "-o", "folder", type=click.Path(path_type=Path), required=True, metavar="DIR", help="Where the fragments are made."
)
def split(database: str, size: str, folder: Path) -> None:
    """Make physical fragments of a BLAST database: N of them, or of SIZE (500M) each.

    Together they are a database of the same name, with the same entries in the same order, and BLAST finds the same
    in it. Each fragment has files of its own, and --fragments cuts the database where they end.

    \b
    millrace db split nr 64 -o /scratch/nr
    millrace run --fragments 64 -- blastp -db /scratch/nr/nr -query q.faa -outfmt 6 -out hits.tsv
    """
    from millrace.errors import RefusedError
    from millrace.job import parse_fragments
    from millrace.tools.blast import split as splitting

    try:
        wanted = parse_fragments(size)
    except RefusedError:
        wanted = (0, 0)
    if wanted == (0, 0):
        raise RefusedError(
            f"{size}: neither a number of fragments nor a size", "as in: 8, or the size of a fragment (500M, 2G)"
        )
    made = splitting.split(database, wanted, folder, Path.cwd(), os.environ)
    for volume in made.volumes:
        click.echo(f"{volume.base}  {volume.entries} entries, {volume.residues} residues")
    click.echo(f"{made.database}  all of them: -db {made.database}")
