"""The command ``millrace db``."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from millrace.adapters.blast.volumes import BlastVolume


@click.group("db", short_help="Databases for nodes that do not share storage.")
def command() -> None:
    """Databases for nodes that do not share storage."""


@command.command("split", short_help="Make physical fragments of a BLAST database.")
@click.argument("database")
@click.argument("size", metavar="N|SIZE")
@click.option("-o", "folder", required=True, metavar="DIR", help="Where the fragments are made; may be hdfs://.")
def split(database: str, size: str, folder: str) -> None:
    """Make physical fragments of a BLAST database: N of them, or of SIZE (500M) each.

    Together they are a database of the same name, with the same entries in the same order, and BLAST finds the same
    in it. Each fragment has files of its own, and --fragments cuts the database where they end.

    \b
    millrace db split nr 64 -o /scratch/nr
    millrace run --fragments 64 -- blastp -db /scratch/nr/nr -query q.faa -outfmt 6 -out hits.tsv

    In HDFS all files of a fragment lie on one DataNode, so that its node can search it alone:

    \b
    millrace db split nr 64 -o hdfs://namenode/db/nr
    millrace run --hosts node[1-4] -- blastp -db hdfs://namenode/db/nr/nr -query q.faa -outfmt 6 -out hits.tsv
    """
    from millrace.adapters.blast import physical_fragments as splitting
    from millrace.core.errors import RefusedError
    from millrace.core.job import parse_fragments
    from millrace.core.replica_rules import is_url, redact_place

    try:
        wanted = parse_fragments(size)
    except RefusedError:
        wanted = (0, 0)
    if wanted == (0, 0):
        raise RefusedError(
            f"{size}: neither a number of fragments nor a size", "as in: 8, or the size of a fragment (500M, 2G)"
        )
    if folder.startswith("hdfs://"):
        _split_into_hdfs(database, wanted, folder)
        return
    if is_url(folder):
        raise RefusedError(
            f"{redact_place(folder)}: fragments are not made there", "give a folder of this machine, or hdfs://"
        )
    made = splitting.split_database(database, wanted, Path(folder), Path.cwd(), os.environ)
    _print_volumes((volume.base, volume) for volume in made.volumes)
    click.echo(f"{made.database}  all of them: -db {made.database}")


def _split_into_hdfs(database: str, wanted: tuple[int, int], url: str) -> None:
    """Make the fragments in a temporary folder, and store all files of each on one DataNode of HDFS."""
    from millrace.adapters.blast import physical_fragments as splitting
    from millrace.core.replica_rules import check_place, redact_place
    from millrace.core.text_format import format_count
    from millrace.storage.hdfs_colocation import NewHdfsFolder

    check_place(url)
    with NewHdfsFolder(url, os.environ) as new, tempfile.TemporaryDirectory(prefix="millrace-split-") as here:
        made = splitting.split_database(
            database, wanted, Path(here), Path.cwd(), os.environ, "name another with TMPDIR"
        )
        own = [volume.list_files() for volume in made.volumes]
        others = {*Path(here).iterdir()} - {path for files in own for path in files}
        placed = new.write_groups(own, sorted(others))
    _print_volumes((volume.base.name, volume) for volume in made.volumes)
    name = f"{redact_place(url).rstrip('/')}/{made.database.name}"
    click.echo(f"{name}  all of them: -db {name}")
    on = f"{min(placed.on)} to {max(placed.on)} on each of {format_count(len(placed.on), 'DataNode')}"
    click.echo(f"{placed.n_together} of {format_count(len(own), 'fragment')} with all files on one DataNode, {on}")


def _print_volumes(volumes: Iterable[tuple[str | Path, BlastVolume]]) -> None:
    """Print the name and size of each volume."""
    for name, volume in volumes:
        click.echo(f"{name}  {volume.entries} entries, {volume.residues} residues")
