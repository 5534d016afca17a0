"""The command ``millrace doctor``: facts of this machine that a run depends on.

Starts nothing but known tools, to ask for their version.
"""

from __future__ import annotations

import fcntl
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import click

from millrace import __version__
from millrace.core.errors import RefusedError
from millrace.core.tool_use import FrozenValue
from millrace.host import core_allocation, file_lock, work_places
from millrace.host.process_handle import open_process_handle
from millrace.planning import work_dir_location

#: One program of each family: (name, argument that prints the version, Debian package).
TOOLS = (
    ("blastp", "-version", "ncbi-blast+"),
    ("diamond", "version", "diamond-aligner"),
    ("hmmscan", "-h", "hmmer"),
    ("muscle", "-version", "muscle"),
    ("mafft", "--version", "mafft"),
    ("vina", "--version", "autodock-vina"),
    ("obabel", "-V", "openbabel"),
)


#: Mount options (Lustre, NFS) with which locks hold only within one machine.
LOCAL_FLOCK = frozenset({"localflock", "nolock", "local_lock=flock", "local_lock=all"})


class ToolReport(FrozenValue, frozen=True):
    """A known program, and whether it is installed."""

    name: str
    #: Its path; empty if it is not on PATH.
    path: str
    version: str
    #: The command that installs it.
    install: str


class FolderReport(FrozenValue, frozen=True):
    """The operations that the filesystem of a folder supports."""

    path: str
    filesystem: str
    writable: bool
    #: ``yes``, ``no``, or ``local``: by the mount options, locks hold only within one machine.
    flock: str = "no"
    #: Whether a folder can be fsynced.
    syncs_folders: bool = False
    #: Whether it supports ``O_TMPFILE``.
    nameless_files: bool = False


class MachineReport(FrozenValue, frozen=True):
    """The facts that ``examine_machine`` finds."""

    millrace: str
    python: str
    kernel: str
    cores: int
    cores_why: str
    #: Folder in which the next run would make its work directory; empty if there is none.
    work_dir: str
    #: The reason for that folder.
    work_why: str
    work_filesystem: str
    work_free: int
    #: Whether the kernel has pidfds, with which a signal cannot reach a wrong process.
    pidfd: bool
    #: The current folder, where outputs and run directories go.
    folder: FolderReport
    tools: tuple[ToolReport, ...]
    #: Why tasks cannot see the current folder through an overlay; empty: they can.
    unseen: str = ""


def examine_machine(environ: Mapping[str, str]) -> MachineReport:
    """Collect the facts that a run depends on."""
    n_cores, why = core_allocation.count_usable_cores(environ)
    place, work_why, unseen = None, "", "there is no place for a work directory"
    with suppress(RefusedError):
        found = work_dir_location.choose_work_place(work_places.read_wanted_place(environ), n_cores, Path.cwd())
        found, unseen = work_dir_location.choose_place_with_view(
            found, Path.cwd(), fixed=bool(work_places.read_wanted_place(environ))
        )
        place, work_why = found.path, found.why
    return MachineReport(
        millrace=__version__, python=platform.python_version(), kernel=platform.release(), cores=n_cores, cores_why=why,
        work_dir=str(place or ""), work_why=work_why, work_filesystem=read_mount(place)[0] if place else "",
        work_free=shutil.disk_usage(place).free if place else 0, pidfd=has_pidfd(),
        folder=examine_folder(Path.cwd()),
        tools=tuple(examine_tool(name, option, package, environ) for name, option, package in TOOLS), unseen=unseen,
    )  # fmt: skip


def examine_tool(name: str, option: str, package: str, environ: Mapping[str, str]) -> ToolReport:
    """Find one program on PATH and ask for its version."""
    path = shutil.which(name, path=environ.get("PATH")) or ""
    return ToolReport(
        name=name,
        path=path,
        version=ask_tool_version(path, option) if path else "",
        install=f"apt-get install {package}",
    )


def ask_tool_version(path: str, option: str) -> str:
    """Return the first line with a digit of the program's output, or ``version unknown``. Waits at most 60 s."""
    try:
        done = subprocess.run(
            [path, option],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=60,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return "version unknown"
    lines = (line.strip(" #") for line in done.stdout.decode(errors="replace").splitlines())
    return next((line for line in lines if any(letter.isdigit() for letter in line)), "version unknown")


def examine_folder(path: Path) -> FolderReport:
    """Test the operations that a run needs on the filesystem of a folder; leave nothing in it."""
    kind, options = read_mount(path)
    try:
        descriptor, name = tempfile.mkstemp(prefix=".millrace-doctor-", dir=path)
    except OSError:
        return FolderReport(path=str(path), filesystem=kind, writable=False)
    try:
        has_flock = file_lock.try_flock(descriptor, fcntl.LOCK_EX)
    finally:
        os.close(descriptor)
        os.unlink(name)
    return FolderReport(
        path=str(path), filesystem=kind, writable=True,
        flock="no" if not has_flock else "local" if LOCAL_FLOCK & set(options.split(",")) else "yes",
        syncs_folders=can_use_path(path, os.O_RDONLY | os.O_DIRECTORY, os.fsync),
        nameless_files=can_use_path(path, os.O_RDWR | os.O_TMPFILE, os.fstat),
    )  # fmt: skip


def can_use_path(path: Path, how: int, what: Callable[[int], object]) -> bool:
    """Tell whether ``path`` can be opened and ``what`` succeeds on it.

    Args:
        how: Flags of ``open``.
        what: Called with the descriptor.
    """
    try:
        descriptor = os.open(path, how | os.O_CLOEXEC, 0o600)
    except OSError:
        return False
    try:
        what(descriptor)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def read_mount(place: Path) -> tuple[str, str]:
    """Return type and mount options of the filesystem that holds ``place``."""
    real = os.path.realpath(place)
    best, kind, options = "", "unknown", ""
    for line in Path("/proc/self/mounts").read_text(errors="replace").splitlines():
        _, mounted, found, given, *_ = line.split(" ")
        inside = real == mounted or real.startswith(mounted.rstrip("/") + "/")
        if inside and len(mounted) >= len(best):
            best, kind, options = mounted, found, given
    return kind, options


def has_pidfd() -> bool:
    """Tell whether ``pidfd_open`` works here."""
    try:
        os.close(open_process_handle(os.getpid()))
    except OSError:
        return False
    return True


@click.command("doctor", short_help="Say what this machine offers: cores, memory, tools.")
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def command(as_json: bool) -> None:
    """Say what millrace finds on this machine: versions, cores it may use and why, where its work directories lie,
    and which of the tools that it knows are installed, or how to install them.

    \b
    millrace doctor --json
    """
    import os

    from millrace.cli.run import print_json
    from millrace.core.text_format import format_size
    from millrace.host import site_defaults

    found = examine_machine(os.environ)
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
    layers = site_defaults.read_defaults(os.environ)
    for file, values in layers:
        said = ", ".join(f"{key} = {value}" for key, value in values.items()) or "nothing"
        click.echo(f"site:      {file}: {said}")
    if not layers:
        click.echo(f"site:      no {site_defaults.FILE}")
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
