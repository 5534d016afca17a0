"""What this machine offers to a run. Starts nothing but tools that are asked for their version."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from millrace import __version__
from millrace.errors import RefusedError
from millrace.model import Frozen
from millrace.plan import cores, workplace

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


class Tool(Frozen, frozen=True):
    """One program that millrace knows."""

    name: str
    #: Where it is; empty if it is not on PATH.
    path: str
    version: str
    #: How to install it.
    install: str


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
    tools: tuple[Tool, ...]


def examine(environ: Mapping[str, str]) -> Found:
    """Look at everything that a run depends on."""
    n_cores, why = cores.usable(environ)
    place, work_why = None, ""
    with suppress(RefusedError):
        found = workplace.find(workplace.wanted_here(environ), n_cores, Path.cwd())
        place, work_why = found.path, found.why
    return Found(
        millrace=__version__, python=platform.python_version(), kernel=platform.release(), cores=n_cores, cores_why=why,
        work_dir=str(place or ""), work_why=work_why, work_filesystem=filesystem(place) if place else "",
        work_free=shutil.disk_usage(place).free if place else 0, pidfd=has_pidfd(),
        tools=tuple(tool(name, option, package, environ) for name, option, package in TOOLS),
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
            timeout=5,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return "version unknown"
    lines = (line.strip(" #") for line in done.stdout.decode(errors="replace").splitlines())
    return next((line for line in lines if any(letter.isdigit() for letter in line)), "version unknown")


def filesystem(place: Path) -> str:
    """Type of the filesystem that holds ``place``, such as ``tmpfs``."""
    real = os.path.realpath(place)
    best, kind = "", "unknown"
    for line in Path("/proc/self/mounts").read_text(errors="replace").splitlines():
        _, mounted, found, *_ = line.split(" ")
        inside = real == mounted or real.startswith(mounted.rstrip("/") + "/")
        if inside and len(mounted) >= len(best):
            best, kind = mounted, found
    return kind


def has_pidfd() -> bool:
    """Whether ``pidfd_open`` works here."""
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (OSError, AttributeError):
        return False
    return True
