"""The command ``millrace unpack``."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from millrace.cli.options import add_regenerating_options

if TYPE_CHECKING:
    from millrace.core.tool_use import ArgumentToken
    from millrace.extensions.pack.layout import PackRecipe


@click.command("unpack", short_help="Write a packed result again, exactly.")
@click.argument("pack", metavar="FILE.mrp", type=click.Path(path_type=Path))
@click.option("--rank", is_flag=True, hidden=True, help="Take part in the regeneration in the folder FILE.mrp.")
@add_regenerating_options(required=False)
@click.option(
    "--identity",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Your private key, of age or ssh, for an encrypted pack.",
)
@click.option("--yes", is_flag=True, help="Run the command that the pack says without asking.")
@click.option("--list", "only_list", is_flag=True, help="Only say what the pack holds.")
def command(
    pack: Path, rank: bool, outputs: tuple[Path, ...], db: str, queries: Path | None, identity: Path | None, yes: bool, any_version: bool,
    hosts: str, only_list: bool, slots: int | None, work_dir: str,
) -> None:  # fmt: skip
    """Regenerate a packed result: the same bytes as were packed, or nothing is written.

    \b
    millrace unpack hits.mrp --db nr --queries q.faa -o hits.txt

    A pack is run with the tool that it names, which must be one that Millrace knows, after its arguments were shown and
    confirmed. The same command again resumes an unpacking that was stopped.
    """
    from millrace.cli.run import get_working_folder
    from millrace.extensions.pack import age_encryption, pack_destinations, pack_unpacker
    from millrace.extensions.pack.regeneration_run import RegenerationSettings
    from millrace.launch.mpi_environment import remove_mpi_variables
    from millrace.launch.node_allocation import find_node_allocation

    if rank:
        from millrace.extensions.pack import node_regeneration

        sys.exit(node_regeneration.run_rank(pack))
    cwd = get_working_folder()
    folder = (cwd / outputs[0]).parent if outputs else cwd
    with age_encryption.decrypt_for_reading(pack, identity, folder if folder.is_dir() else cwd) as source:
        made = pack_unpacker.read_recipe(source)
        if only_list:
            click.echo(_list_contents(made))
            return
        _check_output_count(made, outputs)
        dests = [cwd / each for each in outputs]
        pack_destinations.check_destinations(dests, [cwd / each for each in (pack, queries, identity) if each])
        settings = RegenerationSettings(remove_mpi_variables(os.environ), slots, work_dir)
        place = pack_unpacker.UnpackOptions(
            settings, cwd, db, cwd / queries if queries else None, any_version,
            find_node_allocation([hosts] if hosts else [], os.environ),
        )  # fmt: skip
        with pack_destinations.explain_write_errors(dests[0]):
            why = pack_unpacker.unpack_outputs(
                source, made, dests, place, lambda _, argv: yes or _ask_confirmation(argv)
            )
    click.echo(f"millrace: {', '.join(map(str, outputs))}: {why}", err=True)


def _check_output_count(made: PackRecipe, outputs: Sequence[Path]) -> None:
    """Refuse another number of outputs than the pack has."""
    from millrace.core.errors import RefusedError
    from millrace.core.text_format import escape_unprintable

    if len(outputs) != len(made.outputs):
        names = ", ".join(escape_unprintable(each.name) for each in made.outputs)
        raise RefusedError(
            f"the pack has {len(made.outputs)} outputs: {names}", "say -o FILE once for each, in this order"
        )


def _ask_confirmation(argv: Sequence[str]) -> bool:
    """Show the command of a pack, and ask on a terminal whether to run it; without a terminal, no."""
    from millrace.core.text_format import escape_unprintable

    click.echo(f"millrace: this pack runs: {escape_unprintable(shlex.join(argv))}", err=True)
    return sys.stdin.isatty() and click.confirm("run it?", err=True)


def _list_contents(made: PackRecipe) -> str:
    """Describe the contents of a pack, in lines."""
    from millrace.core.text_format import escape_unprintable, format_size
    from millrace.extensions.pack.layout import UNKNOWN

    lines = [
        f"output {each.name}: {format_size(each.bytes)}, SHA-256 {each.sha256}"
        if each.sha256 != UNKNOWN
        else f"output {each.name}: was not computed before it was packed"
        for each in made.outputs
    ]
    if made.queries and made.database:
        arguments = [each if isinstance(each, str) else _format_placeholder(each) for each in made.arguments]
        lines += [
            f"command: {shlex.join([made.tool, *arguments])}", f"version: {made.version}",
            f"queries: {made.queries.name}, {format_size(made.queries.bytes)}, SHA-256 {made.queries.sha256}",
            f"database: {made.database.name}, {made.database.entries} entries, {made.database.residues} residues, SHA-256 {made.database.ordered}",
        ]  # fmt: skip
    return "\n".join(map(escape_unprintable, [f"packed by Millrace {made.millrace} with {made.codec}", *lines]))


def _format_placeholder(token: ArgumentToken) -> str:
    """Return the placeholder that is shown for a file of the command.

    >>> from millrace.core.tool_use import DatabaseArg, OutputArg
    >>> _format_placeholder(DatabaseArg("--db=")), _format_placeholder(OutputArg(1))
    ('--db=DATABASE', 'OUTPUT2')
    """
    from millrace.core.tool_use import DatabaseArg, InputArg, OutputArg

    match token:
        case InputArg(prefix=prefix):
            return f"{prefix}QUERIES"
        case OutputArg(index=index, prefix=prefix):
            return f"{prefix}OUTPUT{index + 1 if index else ''}"
        case DatabaseArg(prefix=prefix):
            return f"{prefix}DATABASE"
    return "?"
