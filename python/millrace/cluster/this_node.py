"""Facts of a process's own machine, and the checks before it takes part in a run."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from millrace import __version__
from millrace.cluster import messages as say
from millrace.errors import MillraceError, RefusedError
from millrace.model import UserCommand
from millrace.plan import cores, world
from millrace.rundir import RunDir
from millrace.tasks import TaskEnded, TaskStarted
from millrace.tools import registry

if TYPE_CHECKING:
    pass

Happened = TypeVar("Happened", TaskStarted, TaskEnded)


def describe_this_process(environ: Mapping[str, str]) -> say.ProcessJoined:
    """Describe this process and its machine: host, process id, cores, architecture, release of millrace."""
    n_cores, source = cores.count_usable_cores(environ)
    return say.ProcessJoined(socket.gethostname(), os.getpid(), n_cores, source, os.uname().machine, __version__)


def read_program_version(command: UserCommand | None, exe: Path, environ: Mapping[str, str]) -> str:
    """Read the version line of this node's program through its adapter; empty if ``command`` is None.

    Raises:
        MillraceError: The program does not work here.
    """
    if command is None:
        return ""
    command = msgspec.structs.replace(command, exe=exe, environ=dict(environ))
    # A description was confirmed where the run was planned; the folder that records it need not be on this node.
    adapter = registry.find_adapter(command.tool, cwd=command.cwd, environ=command.environ, is_confirmed=True)
    return adapter.understand_command(command.resolved_command).version


def check_same_files(setup: say.SetUpNode, exe: Path) -> tuple[world.DependencyFile, ...]:
    """Check the sizes of databases on this node; return its program and databases.

    Raises:
        RefusedError: A database has another size here than at the coordinator.
    """
    found = world.stat_program_files(setup.use, exe, Path(setup.cwd), setup.view)
    there = {file.name: file for file in setup.world}
    for file in found[1:]:
        other = there.get(file.name)
        if other and other.size_bytes != file.size_bytes:
            raise RefusedError(
                f"{file.name}: has {file.size_bytes:,} bytes here, {other.size_bytes:,} at the coordinator",
                "results would not be those of one database: bring the same one to all nodes",
            )
    return found


def check_run_dir_is_shared(run_dir: Path, run_id: bytes) -> None:
    """Check that the run directory on this node is the coordinator's.

    Raises:
        RefusedError: It is not.
    """
    with suppress(MillraceError):
        if RunDir(run_dir).read_manifest().run_id == run_id.hex():
            return
    raise RefusedError(
        f"{run_dir}: is not here what it is at the coordinator",
        "the run directory must be on storage that all nodes share: name one with --run-dir",
    )


#: Environment variables that differ from machine to machine.
OWN = ("HOSTNAME", "TMPDIR")


def select_machine_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return this machine's variables; all others are the coordinator's, as a tool's output may depend on them."""
    return {name: environ[name] for name in OWN if name in environ}
