"""Facts of a process's own machine, and the checks before it takes part in a run.

All nodes must run one program: the same file on each architecture, the same release on all.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import msgspec

from millrace import __version__
from millrace.adapters import registry
from millrace.cluster import messages as say
from millrace.core.errors import MillraceError, RefusedError, ToolError
from millrace.core.tasks import TaskEnded, TaskStarted
from millrace.core.tool_use import UserCommand
from millrace.host import core_allocation
from millrace.planning import dependency_files, result_fingerprint
from millrace.planning.run_plan import RunPlan
from millrace.rundir.checksummed_json import encode_checksummed, read_checksummed
from millrace.rundir.paths import RunDir, write_atomically

Happened = TypeVar("Happened", TaskStarted, TaskEnded)


def describe_this_process(environ: Mapping[str, str]) -> say.ProcessJoined:
    """Describe this process and its machine: host, process id, cores, architecture, release of millrace."""
    n_cores, source = core_allocation.count_usable_cores(environ)
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


def check_same_files(setup: say.SetUpNode, exe: Path) -> tuple[dependency_files.DependencyFile, ...]:
    """Check the sizes of databases on this node; return its program and databases.

    Raises:
        RefusedError: A database has another size here than at the coordinator.
    """
    found = dependency_files.stat_program_files(setup.use, exe, Path(setup.cwd), setup.view)
    there = {file.name: file for file in setup.world}
    for file in found[1:]:
        other = there.get(file.name)
        if other and other.size_bytes != file.size_bytes:
            raise RefusedError(
                f"{file.name}: has {file.size_bytes:,} bytes here, {other.size_bytes:,} at the coordinator",
                "results would not be those of one database: bring the same one to all nodes",
            )
    return found


def is_run_dir_shared(setup: say.SetUpNode) -> bool:
    """Tell whether the run directory on this node is the coordinator's; if not, results travel as messages.

    Raises:
        RefusedError: It is not, and tasks may read other files of a folder that all nodes have to share.
    """
    run_dir = Path(setup.run_dir)
    with suppress(MillraceError):
        if RunDir(run_dir).read_manifest().run_id == setup.run_id.hex():
            return True
    if not (setup.view and setup.view.cut_by_nodes):
        raise RefusedError(
            f"{run_dir}: is not here what it is at the coordinator",
            "the run directory must be on storage that all nodes share: name one with --run-dir",
        )
    for path in setup.use.databases:
        if not setup.view.find_file(path):
            raise RefusedError(
                f"{path}: nodes that share no folder may each have another one", "name it by a URL, as the input"
            )
    return False


#: Environment variables that differ from machine to machine.
OWN = ("HOSTNAME", "TMPDIR")


def select_machine_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return this machine's variables; all others are the coordinator's, as a tool's output may depend on them."""
    return {name: environ[name] for name in OWN if name in environ}


class ClusterPrograms:
    """The program on each architecture, as the coordinator knows it.

    Args:
        plan: Names the programs.
        rundir: Keeps their fingerprints for the next start, whose coordinator may be of another architecture.
    """

    def __init__(self, plan: RunPlan, rundir: RunDir) -> None:
        self._plan, self._rundir = plan, rundir
        self._machine = os.uname().machine

    def choose_program_name(self, who: str, machine: str) -> str:
        """Return the name of the program on a node.

        Args:
            who: The node, for messages.
            machine: Its architecture, as printed by ``uname -m``.

        Raises:
            RefusedError: The job does not allow this architecture.
        """
        job = self._plan.job
        # Independent of the coordinator's architecture, which may differ in the next start.
        if machine in job.arch or (not job.arch and machine == self._machine):
            return job.find_program(machine)
        others = (
            f"the job's programs are for {', '.join(job.arch)}" if job.arch else f"the coordinator of {self._machine}"
        )
        raise RefusedError(
            f"{who} is of architecture {machine}, {others}",
            "results may differ in their last digits: leave the node out, or name the program for each architecture\n"
            f'in a job file, as in: [arch.{machine}] exe = "{job.command[0]}"',
        )

    def get_version_command(self, machine: str) -> UserCommand | None:
        """Return the command whose release a node of another architecture has to report; None for the same one."""
        return None if machine == self._machine else msgspec.structs.replace(self._plan.command, environ={})

    def check_same_programs(self, found: Iterable[tuple[str, str, say.NodeReady]]) -> None:
        """Compare the programs of nodes; each is (the node for messages, its architecture, its answer).

        Raises:
            ToolError: A node has another program.
        """
        plan = self._plan
        own = result_fingerprint.fingerprint_content(plan.command.exe)
        earlier = self._read_earlier_programs()
        known = {**earlier, self._machine: own}
        if earlier.get(self._machine, own) != own:
            raise ToolError(
                f"{plan.command.exe}: is not the program with which this run was begun on {self._machine}",
                "install that one again, or start over with --fresh",
            )
        for who, machine, ready in found:
            if known.setdefault(machine, ready.content) != ready.content:
                others = "the coordinator has" if machine == self._machine else f"other nodes of {machine} have"
                raise ToolError(
                    f"{who}: {ready.exe}: is not the program that {others} under this name",
                    "results would not be those of one program: install the same release on all nodes",
                )
            if machine != self._machine and ready.version != plan.use.version:
                raise ToolError(
                    f"{who}: {ready.exe}: is {ready.version or 'of no known version'}, "
                    f"the coordinator's program {plan.use.version or 'of no known version'}",
                    "results would not be those of one program: install the same release for all architectures",
                )
        if plan.job.arch and known != earlier:
            write_atomically(self._rundir.programs, encode_checksummed(known))

    def _read_earlier_programs(self) -> dict[str, str]:
        try:
            return read_checksummed(self._rundir.programs, dict[str, str], "what programs a run has")
        except FileNotFoundError:
            return {}
