"""The command ``millrace receive``."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from millrace.cli.options import add_regenerating_options

#: Longest wait, in seconds, for an earlier receiver whose sender is gone.
MAX_WAIT_SECONDS = 60.0


@click.command("receive", short_help="Write a result that millrace send sends.")
@add_regenerating_options(required=True)
def command(
    outputs: tuple[Path, ...], db: str, queries: Path | None, any_version: bool, slots: int | None, work_dir: str
) -> None:
    """Regenerate a result while its pack arrives on standard input. Started by ``millrace send``, by ssh."""
    from millrace.cli.run import get_working_folder
    from millrace.core.errors import RefusedError, ToolError
    from millrace.core.text_format import escape_unprintable
    from millrace.extensions.pack import pack_destinations, pack_receiver, pack_unpacker
    from millrace.extensions.pack.pack_receiver import ReceivingFolder
    from millrace.extensions.pack.regeneration_run import RegenerationSettings
    from millrace.launch.launch_commands import remove_mpi_variables

    cwd = get_working_folder()
    dests = [cwd / each for each in outputs]
    pack_destinations.check_destinations(dests, [cwd / queries] if queries else [])
    place = ReceivingFolder(dests[0])
    held = place.acquire_lock(MAX_WAIT_SECONDS, lambda text: click.echo(f"millrace: {text}", err=True))
    is_new = not (place.pack.exists() or place.work.exists())
    settings = RegenerationSettings(remove_mpi_variables(os.environ), slots, work_dir)
    there = pack_unpacker.UnpackOptions(settings, cwd, db, cwd / queries if queries else None, any_version)

    told: list[Sequence[str]] = []

    def confirm_command(_: object, argv: Sequence[str]) -> bool:
        if argv not in told:  # called when the pack begins to arrive, and again when it is complete
            click.echo(f"millrace: this pack runs: {escape_unprintable(shlex.join(argv))}", err=True)
            told.append(argv)
        return True  # the sender has logged in as this user

    made = pack_receiver.PackReceiver(place, dests, there, confirm_command)
    try:
        with pack_destinations.explain_write_errors(dests[0]):
            pack_receiver.receive_pack(made, place, sys.stdin.buffer, sys.stdout.buffer)
    except (RefusedError, ToolError):
        if is_new:  # else the same command can resume an earlier start
            place.remove()
        raise
    finally:
        held.close()
        pack_destinations.remove_emptied_folder(place.folder)
    click.echo(f"millrace: {', '.join(map(str, outputs))}: as packed, SHA-256 compared", err=True)
