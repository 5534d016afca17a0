"""What this machine offers to a run. Starts nothing but tools that are asked for their version."""

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

from millrace import __version__, lock
from millrace.errors import RefusedError
from millrace.model import Frozen
from millrace.plan import cores, workplace
from millrace.process_handle import open_process_handle

#: Programs that stand for their family: (name, arguments that print the version, Debian package).
TOOLS = (
    ("blastp", "-version", "ncbi-blast+"),
    ("diamond", "version", "diamond-aligner"),
    ("hmmscan", "-h", "hmmer"),
    ("muscle", "-version", "muscle"),
    ("mafft", "--version", "mafft"),
    ("vina", "--version", "autodock-vina"),
    ("obabel", "-V", "openbabel"),
)


#: Mount options (Lustre, NFS) with which each machine has locks of its own.
LOCAL_FLOCK = frozenset({"localflock", "nolock", "local_lock=flock", "local_lock=all"})


class Tool(Frozen, frozen=True):
    """One program that millrace knows."""

    name: str
    #: Where it is; empty if it is not on PATH.
    path: str
    version: str
    #: How to install it.
    install: str


class Folder(Frozen, frozen=True):
    """What the filesystem of a folder can do."""

    path: str
    filesystem: str
    writable: bool
    #: ``yes``, ``no``, or ``local``: by its mount options, it holds among the processes of one machine.
    flock: str = "no"
    #: Whether the names in a folder can be brought to the disk.
    syncs_folders: bool = False
    #: Whether it has files without a name.
    nameless_files: bool = False


class Found(Frozen, frozen=True):
    """What `examine` found."""

    millrace: str
    python: str
    kernel: str
    cores: int
    cores_why: str
    #: Where the next run would make its work directory, empty if nowhere.
    work_dir: str
    #: Why there.
    work_why: str
    work_filesystem: str
    work_free: int
    #: Whether the kernel can hold on to a process by a descriptor, so that no wrong one is ever signalled.
    pidfd: bool
    #: The current folder, where outputs and run directories go.
    folder: Folder
    tools: tuple[Tool, ...]
    #: Why tasks cannot see the current folder as it is; empty: they do.
    unseen: str = ""


def examine(environ: Mapping[str, str]) -> Found:
    """Look at everything that a run depends on."""
    n_cores, why = cores.usable(environ)
    place, work_why, unseen = None, "", "there is no place for a work directory"
    with suppress(RefusedError):
        found = workplace.find(workplace.wanted_here(environ), n_cores, Path.cwd())
        found, unseen = workplace.with_view(found, Path.cwd(), fixed=bool(workplace.wanted_here(environ)))
        place, work_why = found.path, found.why
    return Found(
        millrace=__version__, python=platform.python_version(), kernel=platform.release(), cores=n_cores, cores_why=why,
        work_dir=str(place or ""), work_why=work_why, work_filesystem=filesystem(place) if place else "",
        work_free=shutil.disk_usage(place).free if place else 0, pidfd=has_pidfd(),
        folder=folder(Path.cwd()),
        tools=tuple(tool(name, option, package, environ) for name, option, package in TOOLS), unseen=unseen,
    )  # fmt: skip


def tool(name: str, option: str, package: str, environ: Mapping[str, str]) -> Tool:
    """Look for one program."""
    path = shutil.which(name, path=environ.get("PATH")) or ""
    return Tool(
        name=name, path=path, version=version(path, option) if path else "", install=f"apt-get install {package}"
    )


def version(path: str, option: str) -> str:
    """The first line with a number in what the program says of itself, or ``version unknown``."""
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


def folder(path: Path) -> Folder:
    """Try what a run needs of the filesystem of a folder; leaves nothing in it."""
    kind, options = mount(path)
    try:
        descriptor, name = tempfile.mkstemp(prefix=".millrace-doctor-", dir=path)
    except OSError:
        return Folder(path=str(path), filesystem=kind, writable=False)
    try:
        has_flock = lock.flock(descriptor, fcntl.LOCK_EX)
    finally:
        os.close(descriptor)
        os.unlink(name)
    return Folder(
        path=str(path), filesystem=kind, writable=True,
        flock="no" if not has_flock else "local" if LOCAL_FLOCK & set(options.split(",")) else "yes",
        syncs_folders=works(path, os.O_RDONLY | os.O_DIRECTORY, os.fsync),
        nameless_files=works(path, os.O_RDWR | os.O_TMPFILE, os.fstat),
    )  # fmt: skip


def works(path: Path, how: int, what: Callable[[int], object]) -> bool:
    """Whether ``path`` can be opened so, and ``what`` be done with it."""
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


def filesystem(place: Path) -> str:
    """Type of the filesystem that holds ``place``, such as ``tmpfs``."""
    return mount(place)[0]


def mount(place: Path) -> tuple[str, str]:
    """Type and options of the filesystem that holds ``place``."""
    real = os.path.realpath(place)
    best, kind, options = "", "unknown", ""
    for line in Path("/proc/self/mounts").read_text(errors="replace").splitlines():
        _, mounted, found, given, *_ = line.split(" ")
        inside = real == mounted or real.startswith(mounted.rstrip("/") + "/")
        if inside and len(mounted) >= len(best):
            best, kind, options = mounted, found, given
    return kind, options


def has_pidfd() -> bool:
    """Whether ``pidfd_open`` works here."""
    try:
        os.close(open_process_handle(os.getpid()))
    except OSError:
        return False
    return True
