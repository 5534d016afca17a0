"""The command ``millrace store``."""

from __future__ import annotations

import os
import re
import sys
import time
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from millrace.extensions.reuse.search_store import SearchStore


def _choose_store(_context: click.Context, _parameter: click.Parameter, typed: str | None) -> str:
    """Return the store: the typed one, or that of the environment, or of ``millrace.toml``.

    Raises:
        RefusedError: There is none.
    """
    from millrace.core.errors import RefusedError
    from millrace.core.job import expand_home
    from millrace.host import site_defaults

    found = expand_home(typed) if typed else site_defaults.find_store(os.environ)
    if not found:
        hint = 'name it by --store DIR, by MILLRACE_STORE, or by store = "DIR" in ~/.config/millrace.toml'
        raise RefusedError("no store is named", hint)
    return found


_store = click.option(
    "--store", "folder", metavar="DIR", callback=_choose_store,
    help="The store, as for millrace run (default: MILLRACE_STORE, or that of millrace.toml).",
)  # fmt: skip
_json = click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")


@click.group("store", short_help="What earlier runs have computed, and is kept.")
def command() -> None:
    """Show and check what runs with --store have computed, which is not computed again."""


@command.command("list", short_help="List the searches and commands of which something is kept.")
@_store
@_json
def list_command(folder: str, as_json: bool) -> None:
    """List the searches and commands of which something is kept, the last used first.

    \b
    millrace store list --store ~/searches
    """
    from millrace.cli.run import print_json
    from millrace.core.text_format import format_count, format_size
    from millrace.extensions.reuse.store_contents import list_searches

    found = list_searches(_open_store(folder))
    if as_json:
        print_json([each._asdict() for each in found])
        return
    for each in found:
        counted = format_count(each.n_queries, "query") if each.n_queries else format_count(each.n_batches, "batch")
        used = time.strftime("%Y-%m-%d", time.localtime(each.used))
        click.echo(f"{used}  {counted:>14}  {format_size(each.bytes):>9}  {each.search}")


@command.command("stats", short_help="Print how much is kept.")
@_store
@_json
def stats_command(folder: str, as_json: bool) -> None:
    """Print how many queries and batches are kept, and the size of the store.

    \b
    millrace store stats --store ~/searches
    """
    from millrace.cli.run import print_json
    from millrace.core.text_format import format_count, format_size
    from millrace.extensions.reuse.store_contents import count_kept

    store = _open_store(folder)
    kept = count_kept(store)
    counted = {
        "queries": kept.n_queries,
        "batches": kept.n_batches,
        "sets": len(store.list_sets()),
        "bytes": store.count_bytes(),
    }
    if as_json:
        print_json(counted)
        return
    click.echo(
        f"candidates of {format_count(counted['queries'], 'query')} in {format_count(counted['sets'], 'set')} of entries, "
        f"results of {format_count(counted['batches'], 'batch')}, {format_size(counted['bytes'])} in all"
    )


@command.command("verify", short_help="Compare all that is kept with its checksums.")
@_store
def verify_command(folder: str) -> None:
    """Compare all that is kept with its checksums. The exit code is 5 if something is damaged: runs do not use it.

    \b
    millrace store verify --store ~/searches
    """
    from millrace.core.errors import ExitCode
    from millrace.core.text_format import format_count
    from millrace.extensions.reuse.store_contents import check_contents

    found = check_contents(_open_store(folder))
    click.echo(
        f"{found.n_damaged_rows:,} of {format_count(found.n_rows, 'row')} damaged, "
        f"{found.n_damaged_sets:,} of {format_count(found.n_sets, 'set')} of entries damaged"
    )
    sys.exit(ExitCode.DONE if found.is_whole else ExitCode.CORRUPT)


@command.command("evict", short_help="Drop what was not used for longest.")
@_store
@click.option("--max", "most", required=True, metavar="SIZE", help="Bytes that the store may take, such as 500M or 2G.")
def evict_command(folder: str, most: str) -> None:
    """Drop the queries and batches that were not used for longest until the store takes SIZE at most.

    \b
    millrace store evict --store ~/searches --max 2G
    """
    from millrace.core.errors import RefusedError
    from millrace.core.replica_rules import is_url, redact_place
    from millrace.core.text_format import format_count, format_size
    from millrace.extensions.reuse.store_contents import count_kept

    max_bytes = _parse_size(most)
    if is_url(folder):
        raise RefusedError(
            f"{redact_place(folder)}: nothing is removed at a URL", "give the place a rule for old files (a lifecycle rule of the bucket), or remove them there"
        )  # fmt: skip
    store = _open_store(folder, read_only=False)
    before, kept = store.count_bytes(), count_kept(store)
    store.evict(max_bytes)
    left = count_kept(store)
    n_queries, n_batches = kept.n_queries - left.n_queries, kept.n_batches - left.n_batches
    dropped = f"{format_count(n_queries, 'query')} and {format_count(n_batches, 'batch')} dropped"
    n_sets = len(store.list_sets())
    sets = f", and {format_count(n_sets, 'set')} of entries of the last minute" if n_sets else ""
    rest = "" if any(left) else f"; left are the tables, which are empty{sets}"
    click.echo(f"{format_size(before)} before, {format_size(store.count_bytes())} now: {dropped}{rest}")


def _parse_size(text: str) -> int:
    """Parse ``500M`` or ``2G`` into bytes.

    Raises:
        RefusedError: It is no size.
    """
    from millrace.core.errors import RefusedError

    found = re.fullmatch(r"(\d{1,15})([KMGT]?)(?:i?B)?", text, re.IGNORECASE)
    if not found:
        raise RefusedError(f"--max {text}: not a size", "write it as 500M or 2G")
    return int(found[1]) << 10 * " KMGT".index(found[2].upper() or " ")


def _open_store(name: str, *, read_only: bool = True) -> SearchStore:
    """Open a store.

    Raises:
        RefusedError: There is none, or it is another user's.
        CorruptError: Its tables are damaged.
    """
    from millrace.cli.run import get_working_folder
    from millrace.core.errors import RefusedError
    from millrace.core.replica_rules import is_url
    from millrace.extensions.reuse.search_store import SearchStore
    from millrace.extensions.reuse.store_run import STORE_NAME, open_store

    cwd = get_working_folder()
    if not is_url(name) and not SearchStore.is_there(cwd / name / STORE_NAME):
        raise RefusedError(
            f"{name}: is no store, or nothing is kept in it yet", "name a folder of millrace run --store"
        )
    return open_store(name, cwd, read_only=read_only)
