"""The command ``millrace doctor``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from millrace.doctor import FolderReport


@click.command("doctor", short_help="Say what this machine offers: cores, memory, tools.")
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def command(as_json: bool) -> None:
    """Say what millrace finds on this machine: versions, cores it may use and why, where its work directories lie,
    and which of the tools that it knows are installed, or how to install them.

    \b
    millrace doctor --json
    """
    import os

    from millrace import doctor, site
    from millrace.cli.run import print_json
    from millrace.report.words import format_size

    found = doctor.examine_machine(os.environ)
    if as_json:
        print_json(found)
        return
    click.echo(f"millrace:  {found.millrace} (Python {found.python}, Linux {found.kernel})")
    click.echo(f"cores:     {found.cores} ({found.cores_why})")
    where = (
        f"{found.work_dir} ({found.work_filesystem}), {format_size(found.work_free)} free; {found.work_why}"
        if found.work_dir
        else "no place to write"
    )
    click.echo(f"work:      {where}")
    layers = site.read_defaults(os.environ)
    for file, values in layers:
        said = ", ".join(f"{key} = {value}" for key, value in values.items()) or "nothing"
        click.echo(f"site:      {file}: {said}")
    if not layers:
        click.echo(f"site:      no {site.FILE}")
    click.echo(f"folder:    {describe_folder(found.folder)}")
    click.echo(f"view:      {describe_view(found.unseen)}")
    click.echo(f"pidfd:     {'yes' if found.pidfd else 'no: Millrace asks again and again instead'}")
    click.echo("tools:")
    for tool in found.tools:
        click.echo(
            f"  {tool.name:<12} {f'{tool.path} ({tool.version})' if tool.path else f'not found; {tool.install}'}"
        )


def describe_view(unseen: str) -> str:
    """Say how tasks see the current folder.

    Args:
        unseen: Why they cannot see it through an overlay; empty: they can.
    """
    if not unseen:
        return "tasks see this folder as it is, and what they write lies over it (overlay)"
    return (
        f"no overlay over this folder ({unseen}): known tools work in it, with paths of their own for input and outputs, "
        "others among links to what is in it, and are compared with what they do in the folder itself"
    )


def describe_folder(folder: FolderReport) -> str:
    """Say which operations the filesystem of a folder supports."""
    if not folder.writable:
        return f"{folder.path} ({folder.filesystem}), cannot be written"
    flock = {
        "yes": "flock works",
        "no": "no flock: the lock of a run is kept by signs of life",
        "local": "flock within one machine: between machines, the lock of a run is kept by signs of life",
    }[folder.flock]
    synced = "folders are synced" if folder.syncs_folders else "folders cannot be synced"
    nameless = "files without a name" if folder.nameless_files else "no files without a name"
    return f"{folder.path} ({folder.filesystem}): {flock}; {synced}; {nameless}"
