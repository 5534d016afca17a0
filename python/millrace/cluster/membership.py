"""The processes of an MPI job as the coordinator knows them: which have joined, their slots, which are lost."""

from __future__ import annotations

import math
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from millrace import __version__
from millrace.cluster import messages as say
from millrace.cluster.failure_detection import (
    HEARTBEAT_INTERVAL_SECONDS,
    MAX_GOODBYE_SECONDS,
    MAX_SILENCE_AT_END_SECONDS,
    MAX_SILENCE_SECONDS,
    FailureDetector,
    StartupDeadline,
)
from millrace.cluster.node_info import OWN, ClusterPrograms, describe_this_process
from millrace.cluster.transport.mpi_start import NAP_SECONDS
from millrace.cluster.transport.mpi_transport import MpiTransport
from millrace.core.errors import CorruptError, ExitCode, LostError, MillraceError, RefusedError
from millrace.core.job import JobSpec
from millrace.core.text_format import format_count
from millrace.core.tool_use import StorageRead, ToolUse
from millrace.core.wait_loop import wait_until
from millrace.host.signals import StopSignals
from millrace.launch.mpi_environment import remove_mpi_variables
from millrace.node.work_dir import WorkDir
from millrace.planning.run_plan import RunPlan
from millrace.rundir.paths import RunDir, RunManifest
from millrace.scheduler.placement import choose_routes


class JobMember(msgspec.Struct, frozen=True):
    """One process of the job and its part of the slots."""

    rank: int
    hello: say.ProcessJoined
    slots: int
    #: Number of its first slot among all.
    first_slot: int

    @property
    def name(self) -> str:
        return self.hello.format_rank_name(self.rank)


def assign_slots_to_members(
    hellos: Sequence[say.ProcessJoined], job: JobSpec, use: ToolUse
) -> tuple[list[JobMember], list[str]]:
    """Assign slots to each process; processes on one machine share its cores.

    Returns:
        The members by rank, and notes for the user.
    """
    at: dict[str, list[int]] = defaultdict(list)
    for rank, one in enumerate(hellos):
        at[one.host].append(rank)
    members, notes, first = [], [], 0
    for rank, one in enumerate(hellos):
        sharers = at[one.host]
        place, many = sharers.index(rank), len(sharers)
        n_cores = one.cores // many + (place < one.cores % many)
        slots = job.slots or max(1, n_cores // use.threads)
        members.append(JobMember(rank, one, slots, first))
        first += slots
    for host, ranks in at.items():
        if len(ranks) > 1:
            n_slots = sum(members[rank].slots for rank in ranks)
            cores = hellos[ranks[0]].cores
            notes.append(
                f"{host}: {len(ranks)} processes share its {cores} cores, {n_slots} slots in all; one is enough"
            )
    notes.insert(0, f"slots: {first} in {format_count(len(hellos), 'process')} on {format_count(len(at), 'node')}")
    return members, notes


def _check_same_release(found: Sequence[say.ProcessJoined]) -> None:
    for rank, one in enumerate(found):
        if one.millrace != __version__:
            raise RefusedError(
                f"{one.format_rank_name(rank)} has millrace {one.millrace}, {found[0].host} has {__version__}",
                "install the same release on all nodes",
            )


def _build_node_setups(
    plan: RunPlan, rundir: RunDir, manifest: RunManifest, members: Sequence[JobMember], start: int,
    staged: Mapping[str, Sequence[tuple[str, str]]], copies: Mapping[str, Mapping[str, str]], shared: dict[int, int],
    programs: ClusterPrograms,
) -> list[say.SetUpNode]:  # fmt: skip
    """Build the message that sets up each member but the first; see ``JobMembership.set_up_members``."""
    whole = {name: value for name, value in plan.command.environ.items() if name not in OWN}
    names = [programs.choose_program_name(member.name, member.hello.machine) for member in members]
    return [say.SetUpNode(
        use=plan.use, cwd=str(plan.command.cwd), program=names[member.rank],
        command=programs.get_version_command(member.hello.machine), environ=whole,
        nice=plan.job.nice, run_dir=str(rundir.path), run_id=bytes.fromhex(manifest.run_id),
        journal=str(rundir.get_rank_journal(start, member.rank)), sync=plan.job.sync, slots=member.slots, first_slot=member.first_slot,
        name=member.name, staged=staged.get(member.hello.host, []), shared=shared,
        world=plan.world, view=plan.command.view, copies=dict(copies.get(member.hello.host, {})),
        profile_io=plan.job.profile_io,
    ) for member in members[1:]]  # fmt: skip


class FinalReports(msgspec.Struct):
    """What the nodes have reported in their ``say.NodeStopped``."""

    #: What changed on a node during the run, as text.
    changed: str = ""
    #: Evidence against a program that stayed alive on a node, as text.
    against: str = ""
    #: Reads of all nodes from HDFS.
    read: StorageRead = msgspec.field(default_factory=StorageRead)

    def add_report(self, name: str, report: say.NodeStopped) -> None:
        """Add the report of the node ``name``; of texts the first one stays."""
        self.read += report.read
        self.against = self.against or report.against
        self.changed = self.changed or (report.changed and f"{name}: {report.changed}")


class JobMembership:
    """The coordinator's connections with all other processes, from their first message to their last.

    Beyond a size they form partitions: messages for a process of a partition go through its leader.

    Args:
        partition_size: Nodes of a partition, as the user wants it; see ``millrace.scheduler.placement``.
        patience: Factor by which the usual startup limit is stretched.
    """

    def __init__(
        self, world: MpiTransport, work: WorkDir, partition_size: int | None = None, patience: float = math.inf
    ) -> None:
        self.world, self.work, self._patience = world, work, patience
        self.hellos: dict[int, say.ProcessJoined] = {0: describe_this_process(remove_mpi_variables(os.environ))}
        world.name_of = self.format_rank_name
        self.interrupt: StopSignals | None = None
        #: The rank that messages for each rank are sent to: itself, or its leader.
        self._route = choose_routes(world.size, partition_size)
        #: Ranks of each partition, by its leader; a rank without a leader is a partition of one.
        self.partitions: dict[int, list[int]] = defaultdict(list)
        for rank, by in self._route.items():
            self.partitions[by].append(rank)
        self._links = FailureDetector(world, self.partitions)
        #: What each rank has reported of its slots.
        self.ready: dict[int, say.NodeReady] = {}
        self._left: set[int] = set()
        self._programs: ClusterPrograms | None = None
        #: Whether all are ready: from then on the run continues without a lost process.
        self._works = False
        #: Notes on the partitions, for the user.
        self.notes: list[str] = []
        self.final_reports = FinalReports()
        if led := [len(ranks) for ranks in self.partitions.values() if len(ranks) > 1]:
            self.notes.append(f"partitions: {len(led) + 1} of {max(led)} processes at most")
        #: Exit code of this process if it cannot finalize MPI together with the others.
        self.exit_code = int(ExitCode.STOPPED)

    # Messages

    def send_to_rank(self, rank: int, message: say.Plain) -> None:
        by = self._route[rank]
        self._links.send_message(by, message if by == rank else say.ForwardToMember(rank, message))

    def send_to_all(self, message: say.Plain) -> None:
        for rank in self._links.list_living_ranks():
            alone = len(self.partitions[rank]) == 1
            self._links.send_message(rank, message if alone else say.ForwardToPartition(message))

    def send_to_leaders(self, message: say.Plain) -> None:
        for rank in self._links.list_living_ranks():
            if len(self.partitions[rank]) > 1:
                self._links.send_message(rank, message)

    def receive_messages(self) -> list[tuple[int, object]]:
        """Receive messages and find lost ranks; return the messages for others as (rank, message).

        ``say.ProcessLost`` among them: the run continues without that process.

        Raises:
            MillraceError: A process has failed, or one is lost that the run needs.
        """
        found, now, links = [], time.monotonic(), self._links
        for by, message in self._receive_from_transport():
            rank = by
            if isinstance(message, say.ForwardedFromMember):
                rank, message = message.rank, message.message
            if by in links.lost or rank in links.lost:
                continue  # it was stopped and continues now, but other nodes have its tasks
            links.record_message(by, now)
            match message:
                case say.AgentHeartbeat():
                    pass
                case say.ProcessJoined():
                    self.hellos[rank] = message
                case say.NodeReady():
                    self.ready[rank] = message
                case say.NodeStopped():
                    links.gone.add(rank)
                    self.final_reports.add_report(self.format_rank_name(rank), message)
                case say.ProcessLeft():
                    self._left.add(rank)
                case say.ProcessLost(why, tasks):
                    found += self._handle_lost_rank(rank, why, tasks)
                case say.SignalReceived(number):
                    # The launcher may have sent it to all ranks; a second one means "at once".
                    if self.interrupt and not self.interrupt.signal:
                        self.interrupt.count_signal(number)
                case say.AgentFailed():
                    raise message.rebuild_error(self.format_rank_name(rank))
                case _:
                    found.append((rank, message))
        for rank, why in links.find_lost_ranks(now):
            found += self._handle_lost_rank(rank, why, 0)
        return found

    def _receive_from_transport(self) -> list[tuple[int, say.Message]]:
        try:
            return self.world.receive()
        except CorruptError as error:
            self.exit_code = error.status  # its sender cannot be sent a command to end
            raise

    def _handle_lost_rank(self, rank: int, why: str, tasks: int) -> list[tuple[int, object]]:
        """Drop a lost process, and return the message of it.

        Raises:
            LostError: The run is not ready yet, or the process leads a partition, whose state is lost with it.
        """
        partition = self.partitions.get(rank, [rank])
        self._links.lost.update(partition)
        self.world.broken = True
        if self._links.dismissed is not None:
            return []
        if not self._works or len(partition) > 1:
            hint = "nothing that was done is lost: the same command resumes"
            raise LostError(f"{self.format_rank_name(rank)} is lost: {why}", hint)
        return [(rank, say.ProcessLost(why, tasks))]

    @property
    def departed_ranks(self) -> set[int]:
        """Ranks that have sent ``say.NodeStopped``: their journals and outputs are final."""
        return self._links.gone

    def format_rank_name(self, rank: int) -> str:
        """Return the host and rank of a process, for messages to the user."""
        known = self.hellos.get(rank)
        return known.format_rank_name(rank) if known else f"rank {rank}"

    def _carry_messages_until(self, done: Callable[[], bool], timeout_seconds: float = math.inf) -> bool:
        """Carry messages until ``done``; return false after the timeout, or if the user insists on an end."""

        def carry_messages() -> bool:
            if done():
                return True
            for rank, message in self.receive_messages():
                if self._links.dismissed is None:
                    raise say.make_unexpected_message_error(self.format_rank_name(rank), message)
            return done()

        return wait_until(
            carry_messages, timeout_seconds, nap=NAP_SECONDS[1] / 2,
            enough=lambda: self.interrupt is not None and self.interrupt.count > 1,
        )  # fmt: skip

    def _wait_for_others(self, n_there: Callable[[], int]) -> bool:
        """Wait until all others are counted by ``n_there``; return false if the missing ones are late."""
        others = self.world.size - 1
        muster = StartupDeadline(time.monotonic(), others, self._patience)
        return (
            self._carry_messages_until(lambda: n_there() == others or muster.is_late(time.monotonic(), n_there()))
            and n_there() == others
        )

    # From the first message to the last

    def gather_processes(self) -> list[say.ProcessJoined]:
        """Wait until all processes have joined; return their descriptions by rank.

        Raises:
            MillraceError: Some do not join in time.
            RefusedError: They run different releases of millrace.
        """
        if not self._wait_for_others(lambda: len(self.hellos) - 1):
            self.world.broken = True
            missing = sorted(set(range(self.world.size)) - set(self.hellos))
            raise LostError(f"no word from rank {', '.join(map(str, missing))}", "look at these nodes")
        self.world.unlink_startup_memory()
        found = [self.hellos[rank] for rank in range(self.world.size)]
        _check_same_release(found)
        return found

    def set_up_members(
        self, plan: RunPlan, rundir: RunDir, manifest: RunManifest, members: Sequence[JobMember], start: int,
        staged: Mapping[str, Sequence[tuple[str, str]]], copies: Mapping[str, Mapping[str, str]], shared: dict[int, int],
    ) -> None:  # fmt: skip
        """Send all others the setup of their slots. Never blocks. ``staged``, ``copies``, ``shared``: see ``SetUpNode``."""
        self._programs = ClusterPrograms(plan, rundir)
        setups = _build_node_setups(plan, rundir, manifest, members, start, staged, copies, shared, self._programs)
        for member, setup in zip(members[1:], setups, strict=True):
            self.send_to_rank(member.rank, setup)

    def wait_until_ready(self) -> None:
        """Wait until the slots of all processes are ready.

        Raises:
            MillraceError: A process fails or is late, or has another program.
        """
        if not self._wait_for_others(lambda: len(self.ready)):
            missing = map(self.format_rank_name, sorted(set(range(1, self.world.size)) - set(self.ready)))
            self.world.broken = True
            raise LostError(f"{', '.join(missing)} does not get ready", "look at these nodes")
        if self._programs:
            self._programs.check_same_programs(
                (self.format_rank_name(rank), self.hellos[rank].machine, one) for rank, one in self.ready.items()
            )
        self._links.limit = MAX_SILENCE_SECONDS
        self._works = True

    def dismiss_members(self, *, whole: bool = False) -> None:
        """End the work of all others; when this returns, their commits are on disk.

        Args:
            whole: The outputs are written: a process that does not answer soon is not waited for.
        """
        links = self._links
        if links.dismissed is not None:
            return
        links.record_dismissal(time.monotonic(), whole=whole)
        self.send_to_all(say.StopNode(whole))

        def have_ended() -> bool:
            return bool(len(links.gone | links.lost) == self.world.size - 1)

        while True:
            try:
                if not self._carry_messages_until(have_ended, 2 * MAX_GOODBYE_SECONDS):
                    self.world.broken = True
                return
            except MillraceError:
                continue  # an error in the last messages changes nothing any more

    def leave_job(self) -> None:
        """End all processes, and MPI; to be called after the last message."""
        self.dismiss_members()
        self.send_to_all(say.LeaveJob())
        # All others would wait in MPI for a process that is stopped by now.
        patience_seconds = HEARTBEAT_INTERVAL_SECONDS if self.world.broken else MAX_SILENCE_AT_END_SECONDS
        self.world.broken |= not self._wait_for_departures(patience_seconds)
        # A lost process may be stopped rather than dead.
        unfinished = self._find_unfinished_ranks({*self._links.list_living_ranks(), *self._links.lost})
        missing = [rank for rank in unfinished if not self._kill_stalled_process(rank)]
        self.world.finalize_or_abort(self.exit_code, missing=bool(missing))

    def _kill_stalled_process(self, rank: int) -> bool:
        """Kill a stopped process if it is on this node and the launcher tolerates that; return whether it did."""
        known = self.hellos.get(rank)
        here = bool(known and known.host == self.hellos[0].host)
        return here and self.world.kill_stalled_process(self.hellos[rank].process)

    def _wait_for_departures(self, timeout_seconds: float) -> bool:
        try:
            return self._carry_messages_until(
                lambda: not self._find_unfinished_ranks(self._links.list_living_ranks()), timeout_seconds
            )
        except MillraceError:
            return False  # as in ``dismiss_members``

    def _find_unfinished_ranks(self, ranks: Iterable[int]) -> set[int]:
        """Return the ranks that have not sent ``say.ProcessLeft`` and are not known to be dead."""
        return set(ranks) - self._left - self.world.find_failed_ranks()
