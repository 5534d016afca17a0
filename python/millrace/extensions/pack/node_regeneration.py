"""Regenerations on several nodes.

The supervisor writes the hits into the journal of the run, and what to regenerate into a file in its folder, which all nodes see. Each
start of the ranks plans the same run from that file.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from millrace.core.errors import MillraceError
from millrace.core.job import JobSpec
from millrace.core.tool_use import FrozenValue
from millrace.execution import plan_execution
from millrace.extensions.pack import regeneration_run, result_codec
from millrace.extensions.pack.layout import PackedDatabase
from millrace.extensions.pack.regeneration_run import RegenerationSettings
from millrace.launch.mpi_environment import find_launched_process, remove_mpi_variables
from millrace.launch.node_allocation import NodeAllocation
from millrace.launch.run_supervisor import run_supervised
from millrace.launch.supervisor_link import SupervisorLink
from millrace.planning.run_plan import RunPlan

#: Name of the file in the folder of a regeneration.
ORDER = "order.json"


class RegenerationOrder(FrozenValue, frozen=True):
    """All that a rank needs to plan the regeneration in a folder as its supervisor has planned it."""

    #: The file of queries.
    queries: str
    argv: tuple[str, ...]
    #: Name of the codec.
    codec: str
    database: PackedDatabase | None
    #: See ``regeneration_run.get_output_name``.
    key: str
    slots: int | None
    work_dir: str
    #: Whether the outputs stay in the journal.
    in_journal: bool

    def plan_run(self, folder: Path) -> RunPlan:
        """Plan the regeneration in ``folder``.

        Raises:
            MillraceError: It is impossible here.
        """
        codec = result_codec.find_result_codec(self.codec)
        if codec is None:
            raise MillraceError(f"the codec {self.codec} is not on {os.uname().nodename}", "install it on all nodes")
        settings = RegenerationSettings(remove_mpi_variables(os.environ), self.slots, self.work_dir)
        plan = regeneration_run.plan_regeneration_run(
            folder, Path(self.queries), self.argv, codec, settings, self.database, self.key
        )
        return regeneration_run.keep_outputs_in_journal(plan) if self.in_journal else plan


def run_on_nodes(folder: Path, order: RegenerationOrder, plan: RunPlan, nodes: NodeAllocation) -> None:
    """Complete ``plan``, the regeneration of ``order`` in ``folder``, on several nodes.

    Raises:
        MillraceError: The run was not completed.
    """
    (folder / ORDER).write_bytes(msgspec.json.encode(order))
    if run_supervised(plan, nodes, os.environ, ("unpack", "--rank", str(folder))):
        raise MillraceError("the result could not be regenerated on the nodes", f"{plan.run_dir} has the details")


def run_rank(folder: Path) -> int:
    """Take part in the regeneration in ``folder``, as a process that the supervisor has started; return its exit code.

    Raises:
        MillraceError: The run was not completed.
    """
    order = msgspec.json.decode((folder / ORDER).read_bytes(), type=RegenerationOrder)
    launched = find_launched_process(os.environ)
    supervision = SupervisorLink(os.environ, coordinator=not (launched and launched.rank))
    supervision.redirect_standard_streams()
    job = JobSpec(command=order.argv, slots=order.slots, work_dir=order.work_dir)
    try:
        crew = plan_execution.join_mpi_job(launched, supervision, job) if launched else None
        finished = plan_execution.run_plan(order.plan_run(folder), supervision, crew)
    except MillraceError as error:
        supervision.report_error(error)
        raise
    if crew:
        crew.exit_code = finished.code
    supervision.report_exit_code(finished.code)
    return finished.code
