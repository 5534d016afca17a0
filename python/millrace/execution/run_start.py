"""Start of a run: results of earlier starts in its journals, this start's journal, first event.

The surroundings of a run are a value: the processes that take part in it, and the other phases of its job.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec

from millrace import _core
from millrace.core import record_formats
from millrace.core.errors import CorruptError
from millrace.core.job import JobSpec
from millrace.core.tasks import CommittedRecords, CompareTask, count_records, decode_task_kind
from millrace.core.text_format import format_count
from millrace.core.tool_use import InputUse
from millrace.execution.resume import PartialSearch, find_partial_searches, select_tasks
from millrace.execution.run_claim import RunClaim
from millrace.host.signals import StopSignals
from millrace.launch.supervisor_link import SupervisorLink
from millrace.node.input_feeder import InputSource
from millrace.node.task_slots import SlotLender
from millrace.node.work_dir import WorkDir
from millrace.output import inconsistent_results
from millrace.output.output_parts import drop_unframed_tasks
from millrace.planning.run_plan import RunPlan
from millrace.report.events import RunEvent

if TYPE_CHECKING:
    from millrace.cluster.dask.worker_slots import DaskPool
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
    #: The workers of a Dask cluster, which have all slots; None: there are none.
    dask: DaskPool | None = None
    #: All processes with slots, this one first; empty: there are no others.
    members: Sequence[JobMember] = ()
    #: (copy, file) by host: tools there read the copy in place of the file.
    staged: Mapping[str, Sequence[tuple[str, str]]] = msgspec.field(default_factory=dict)
    #: Paths of files behind URLs, by host and name.
    copies: Mapping[str, Mapping[str, str]] = msgspec.field(default_factory=dict)

    def share_slots(self, plan: RunPlan, say: Callable[[str], None]) -> RunPlan:
        """Return ``plan`` with the slots of all processes."""
        if self.dask:
            return msgspec.structs.replace(plan, slots=self.dask.wait_for_workers(say))
        if not self.crew:
            return plan
        from millrace.cluster.membership import assign_slots_to_members

        self.members, notes = assign_slots_to_members(self.crew.gather_processes(), plan.job, plan.use)
        for note in (*notes, *self.crew.notes):
            say(note)
        plan = msgspec.structs.replace(plan, slots=sum(member.slots for member in self.members))
        if not plan.use.fragmented or not plan.use.fragmented.volumes:
            return plan
        from millrace.host.memory_limits import read_usable_memory
        from millrace.planning.volume_keeping import settle_keeping  # few runs need it

        hosts = {member.hello.host for member in self.members}
        use, said = settle_keeping(plan.use, len(hosts), read_usable_memory()[0])
        if said:
            say(said)
        return msgspec.structs.replace(plan, use=use)

    def stage_databases(self, plan: RunPlan, stack: ExitStack, say: Callable[[str], None]) -> None:
        """Copy databases to the nodes, where requested or worth it, until ``stack`` closes."""
        if self.dask:
            return  # they are on the workers
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


def build_run_event(plan: RunPlan, done: Sequence[CommittedRecords], processes: RunContext) -> RunEvent:
    """Build the first event of a start.

    Args:
        done: Tasks that earlier starts have committed.
    """
    use, argv = plan.use, plan.command.argv
    nodes = [(member.hello.host, member.slots) for member in processes.members]
    if processes.dask:
        nodes = [("Dask workers", plan.slots)]
    return RunEvent(
        time=datetime.now().astimezone().isoformat(timespec="seconds"), argv=list(argv), tool=Path(argv[0]).name,
        version=use.version, slots=plan.slots, threads=max(1, use.threads), unit=use.cost.unit,
        bytes_total=None if processes.chain else _count_input_bytes(plan),  # other phases may still write the inputs
        records_resumed=count_records(task for task in done if not task.quarantined), nodes=nodes or [(os.uname().nodename, plan.slots)],
    )  # fmt: skip


def _count_input_bytes(plan: RunPlan) -> int | None:
    """Return the bytes of all records; None: the file sizes do not tell."""
    total = 0
    for path in _list_input_paths(plan):
        found = _measure_plain_file(path)
        if found is None:
            return None
        total += found
    return total


def _list_input_paths(plan: RunPlan) -> Iterator[Path | int]:
    for item in plan.use.inputs:
        if item.path == "-":
            yield 0
        else:
            yield from (plan.command.cwd / name for name in item.paths)


def _measure_plain_file(path: Path | int) -> int | None:
    """Return the bytes of a plain file from its current position on; None: it is no plain file, or compressed."""
    try:
        about = os.stat(path)
        if not stat.S_ISREG(about.st_mode):
            return None
        if isinstance(path, int):
            return about.st_size - os.lseek(path, 0, os.SEEK_CUR)
        with path.open("rb") as file:
            return None if file.read(6).startswith(record_formats.PACKED_MAGIC) else about.st_size
    except OSError:
        return None  # behind a URL, perhaps


class EarlierResults(msgspec.Struct, frozen=True):
    """Results of earlier starts, and the journal of this one."""

    #: The number of this start, and its open journal.
    start: int
    journal: _core.Journal
    #: Tasks that belong to the output, in input order.
    tasks: Sequence[CommittedRecords]
    #: Batches with some fragments already searched.
    searched: Sequence[PartialSearch]
    #: Tasks of verification, by their records.
    looks: Mapping[tuple[int, int], CommittedRecords]


def open_journals(claim: RunClaim, *, alone: bool, say: Callable[[str], None]) -> EarlierResults:
    """Read the journals of earlier starts, and open the journal of this one.

    Args:
        alone: Whether no other process can still write to the run's first journal, so that this start continues it.
        say: Called with a message about damage, whose results are computed again.

    Raises:
        CorruptError: A journal cannot be read, or belongs to another run.
    """
    rundir = claim.rundir
    start = rundir.choose_start_number()
    forms = claim.manifest.forms
    path = rundir.journal if alone and rundir.journal.name not in forms else rundir.get_rank_journal(start, 0)
    earlier = rundir.list_journals() if claim.resuming else []
    scans = []
    try:
        if path in earlier:
            journal, scan = _core.Journal.open(path, claim.run_id)
            scans.append((path, scan))
        else:
            journal = _core.Journal.create(path, claim.run_id)
        for other in earlier:
            if other != path:
                scans.append((other, _core.scan(other, True)))
                if scans[-1][1].run_id != claim.run_id:
                    raise CorruptError(f"{other}: belongs to another run", "start over with --fresh")
    except (_core.CorruptJournal, IsADirectoryError) as error:
        also = ", or use the release that began the run" if "this release reads" in str(error) else ""
        raise CorruptError(str(error), f"start over with --fresh{also}") from error
    for name, scan in scans:
        for offset, problem, was_synced in scan.damage:
            if was_synced:
                say(f"{name}: byte {offset}: {problem}; what is damaged is not used but computed again")
    held = [task for _, scan in scans for task in scan.tasks]
    found = inconsistent_results.drop_inconsistent_tasks(rundir, claim.manifest.run_id, held)
    if n_odd := len(held) - len(found):
        say(f"{format_count(n_odd, 'result')} did not fit the others, and what they are of is computed again")
    looks = {
        (task.first, task.last): task
        for task in found
        if decode_task_kind(task.fragment) == CompareTask() and Path(task.values[0]).name not in forms
    }
    found = drop_unframed_tasks(found, claim.manifest.frame_forms)
    tasks = select_tasks(found, claim.plan.job.retry_quarantined)
    return EarlierResults(start, journal, tasks, find_partial_searches(found, tasks), looks)
