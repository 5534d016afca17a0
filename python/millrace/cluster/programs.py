"""The check that all nodes run one program: the same file on each architecture, the same release on all."""

from __future__ import annotations

import os
from collections.abc import Iterable

import msgspec

from millrace.cluster import messages as say
from millrace.errors import RefusedError, ToolError
from millrace.model import UserCommand
from millrace.plan import fingerprint
from millrace.plan.plan import RunPlan
from millrace.rundir import RunDir, write_atomically
from millrace.sealed import encode_checksummed, read_checksummed


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
        own = fingerprint.fingerprint_content(plan.command.exe)
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
