"""The processes that take part in a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

import msgspec

from millrace.interrupt import Interrupt
from millrace.launch.supervisor_link import Supervision
from millrace.node.workdir import WorkDir
from millrace.plan.plan import Plan
from millrace.session.chained import Chained

if TYPE_CHECKING:  # only a job of several processes needs these, and imports them at its start
    from millrace.cluster.membership import Member, Membership
    from millrace.session.outbox import Outbox
    from millrace.session.urls import Named


class Processes(msgspec.Struct):
    """This process, its supervisor, the other processes of an MPI job, and their copies of files."""

    work: WorkDir
    interrupt: Interrupt
    supervision: Supervision
    #: The other processes; None: there are none.
    crew: Membership | None = None
    #: The files behind the URLs of the command; None: there are none.
    behind: Named | None = None
    #: The outputs of the command that go to URLs; None: there are none.
    outbox: Outbox | None = None
    #: The other phases of the job; None: there are none.
    chain: Chained | None = None
    #: All processes with slots, this one first; empty: there are no others.
    members: Sequence[Member] = ()
    #: (copy, file) by host: tools there read the copy in place of the file.
    staged: Mapping[str, Sequence[tuple[str, str]]] = msgspec.field(default_factory=dict)
    #: Paths of files behind URLs, by host and name.
    copies: Mapping[str, Mapping[str, str]] = msgspec.field(default_factory=dict)

    def share(self, plan: Plan, say: Callable[[str], None]) -> Plan:
        """Return ``plan`` with the slots of all processes."""
        if not self.crew:
            return plan
        from millrace.cluster.membership import share

        self.members, notes = share(self.crew.gather(), plan.job, plan.use)
        for note in (*notes, *self.crew.notes):
            say(note)
        return msgspec.structs.replace(plan, slots=sum(member.slots for member in self.members))

    def stage(self, plan: Plan, stack: ExitStack, say: Callable[[str], None]) -> None:
        """Copy databases to the nodes, where requested or worth it, until ``stack`` closes."""
        here = self.own.hello.host if self.own else ""
        view = plan.command.view
        self.copies = {here: self.behind.copies(view)} if self.behind and view else {}
        from millrace.plan.staging import is_read_again

        asked = self.crew or plan.job.stage != "auto" or plan.job.replica
        if asked or is_read_again(plan.use.databases, plan.command.cwd):
            from millrace.cluster.staging import stage

            keeper, self.staged, copies = stage(
                plan, self.members, self.crew, self.work.path, self.interrupt, say, self.copies.get(here, {})
            )
            stack.callback(keeper.close)
            self.copies = {**copies, **self.copies}

    @property
    def own(self) -> Member | None:
        """Return this process as a member of the job; None: there are no other processes."""
        return self.members[0] if self.members else None
