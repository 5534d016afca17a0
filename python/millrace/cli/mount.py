"""The command ``millrace data mount``."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click

from millrace.core.errors import ExitCode
from millrace.host.python_launch import make_python_command

#: Seconds between checks whether the view is mounted.
POLL_INTERVAL_SECONDS = 0.02


@click.command("mount", short_help="See a folder behind a URL as a folder of this machine.")
@click.argument("url")
@click.argument("point", metavar="MOUNTPOINT", type=click.Path(path_type=Path, readable=False))
@click.option("--foreground", is_flag=True, help="Stay, and say what goes wrong; Ctrl-C unmounts.")
@click.option("--to", "way", metavar="disk|ram|DIR", default="disk", help="Where copies are kept (default: disk, in $TMPDIR).")  # fmt: skip
def command(url: str, point: Path, foreground: bool, way: str) -> None:
    """See the files behind a URL in a folder, for reading, with any program.

    \b
    millrace data mount s3://bucket/blast/ /mnt/blast
    blastp -db /mnt/blast/nr -query q.faa
    umount /mnt/blast
    """
    from millrace.core.errors import RefusedError
    from millrace.core.replica_rules import FETCHED, check_place, redact_place
    from millrace.storage import fuse_mount
    from millrace.storage.cache import cache_location
    from millrace.storage.view_tree import ViewTree

    check_place(url)
    if not url.startswith(FETCHED) or "?" in url:
        raise RefusedError(f"{redact_place(url)}: is no URL of a folder", f"known are {', '.join(FETCHED)}, without anything behind ?")  # fmt: skip
    fuse_mount.check_mountable(url, point)
    if not foreground:
        _mount_in_background([url, str(point), "--to", way], point)
        return
    tree = ViewTree(url, cache_location.resolve_cache_folder(way))
    if note := fuse_mount.find_listing_notice(url, tree):
        click.echo(f"millrace: {note}", err=True)
    fuse_mount.serve_view(url, tree, point, lambda text: click.echo(f"millrace: {text}", err=True))
    sys.stdout.flush()
    os._exit(0)  # the next process that needs an unfinished download resumes it


def _mount_in_background(words: list[str], point: Path) -> None:
    """Start a background process that serves the view, wait until it is mounted, and print its messages.

    Raises:
        SystemExit: The process ended before; the exit code is its own.
    """
    with tempfile.TemporaryFile() as said:
        argv = make_python_command("-m", "millrace", "data", "mount", "--foreground", *words)
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=said, start_new_session=True)  # fmt: skip
        while process.poll() is None and not os.path.ismount(point):
            time.sleep(POLL_INTERVAL_SECONDS)
        said.seek(0)
        click.echo(said.read(), nl=False, err=True)
        if process.returncode is not None:
            sys.exit(process.returncode if process.returncode > 0 else ExitCode.STOPPED)
        process.returncode = 0  # it goes on in the background: do not wait for it
