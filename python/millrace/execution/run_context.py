"""The surroundings of a run: the processes that take part in it, and the other phases of its job."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec

from millrace.core.job import JobSpec
from millrace.core.tool_use import InputUse
from millrace.host.signals import StopSignals
from millrace.launch.supervisor_link import SupervisorLink
from millrace.node.input_feeder import InputSource
from millrace.node.task_slots import SlotLender
from millrace.node.work_dir import WorkDir
from millrace.planning.run_plan import RunPlan

if TYPE_CHECKING:
    from millrace.cluster.membership import JobMember, JobMembership
    from millrace.execution.url_inputs import UrlFiles
    from millrace.execution.url_outputs import OutputUploads


class PhaseConnections(SlotLender, Protocol):
    """Connections of one phase to the others."""

    def open_source(
        self, item: InputUse, job: JobSpec, spool: Path, failed: Callable[[BaseException], None]
    ) -> InputSource | None:  # fmt: skip
        """Open an input that another phase still writes; return None if none does.

        Args:
            failed: Called with an error of reading it while it grows.
        """

    def announce_start(self) -> None:
        """Announce that the outputs hold only bytes of this run from now on."""

    def announce_file(self, path: str) -> None:
        """Announce that the file of one record is complete."""


class RunContext(msgspec.Struct):
    """This process, its supervisor, the other processes of an MPI job, and their copies of files."""

    work: WorkDir
    interrupt: StopSignals
    supervision: SupervisorLink
    #: The other processes; None: there are none.
    crew: JobMembership | None = None
    #: The files behind the URLs of the command; None: there are none.
    behind: UrlFiles | None = None
    #: The outputs of the command that go to URLs; None: there are none.
    outbox: OutputUploads | None = None
    #: The other phases of the job; None: there are none.
    chain: PhaseConnections | None = None
    #: All processes with slots, this one first; empty: there are no others.
    members: Sequence[JobMember] = ()
    #: (copy, file) by host: tools there read the copy in place of the file.
    staged: Mapping[str, Sequence[tuple[str, str]]] = msgspec.field(default_factory=dict)
    #: Paths of files behind URLs, by host and name.
    copies: Mapping[str, Mapping[str, str]] = msgspec.field(default_factory=dict)

    def share_slots(self, plan: RunPlan, say: Callable[[str], None]) -> RunPlan:
        """Return ``plan`` with the slots of all processes."""
        if not self.crew:
            return plan
        from millrace.cluster.membership import assign_slots_to_members

        self.members, notes = assign_slots_to_members(self.crew.gather_processes(), plan.job, plan.use)
        for note in (*notes, *self.crew.notes):
            say(note)
        return msgspec.structs.replace(plan, slots=sum(member.slots for member in self.members))

    def stage_databases(self, plan: RunPlan, stack: ExitStack, say: Callable[[str], None]) -> None:
        """Copy databases to the nodes, where requested or worth it, until ``stack`` closes."""
        here = self.own_member.hello.host if self.own_member else ""
        view = plan.command.view
        self.copies = {here: self.behind.map_copies(view)} if self.behind and view else {}
        from millrace.storage.staging_choice import may_be_read_again

        asked = self.crew or plan.job.stage != "auto" or plan.job.replica
        if asked or may_be_read_again(plan.use.databases, plan.command.cwd):
            from millrace.cluster.database_staging import stage_databases

            keeper, self.staged, copies = stage_databases(
                plan, self.members, self.crew, self.work.path, self.interrupt, say, self.copies.get(here, {})
            )
            stack.callback(keeper.close)
            self.copies = {**copies, **self.copies}

    @property
    def own_member(self) -> JobMember | None:
        """Return this process as a member of the job; None: there are no other processes."""
        return self.members[0] if self.members else None
