"""Construction of the parts of a run and their connections: input, slots, output, journal, and the engine."""

from __future__ import annotations

import errno
import os
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from millrace import _core
from millrace.core.errors import RefusedError
from millrace.core.tool_use import InputUse, ProgressSnapshot, RemoteFileView
from millrace.core.wait_loop import wait_until
from millrace.execution.action_runner import ActionRunner
from millrace.execution.engine_loop import InputMeter, RunEngine
from millrace.execution.output_verifier import (
    OutputVerifier,
    choose_short_batches,
    choose_stretches,
    select_kept_batches,
)
from millrace.execution.quarantine_writer import QuarantineWriter
from millrace.execution.resume import list_done_extents
from millrace.execution.run_claim import RunClaim
from millrace.execution.run_start import EarlierResults, RunContext
from millrace.host import debug_log
from millrace.node.batch_files import EndOfInput, FileList, SkippedRecords, SpooledBatch, open_reader
from millrace.node.input_feeder import InputFeeder, InputSource
from millrace.node.local_slots import LocalSlots
from millrace.node.task_slots import Executor
from millrace.output.commits import ChangeGuard, GroupCommit, GuardedWriter
from millrace.output.output_parts import OrderedWriter, OutputWriter
from millrace.output.output_streams import OutputStreams, begin_record, record_stdout, resolve_destination
from millrace.planning import result_fingerprint
from millrace.planning.file_checks import list_existing_outputs, list_record_files
from millrace.planning.program_lookup import is_unknown_tool
from millrace.report.event_log import EventLog
from millrace.report.events import VolumesEvent
from millrace.report.progress import ProgressDisplay
from millrace.rundir import paths
from millrace.scheduler.limits import QuarantineLimit
from millrace.scheduler.scheduler import BatchScheduler, SchedulerSettings

#: Batches for each slot that are cut before they are needed, if nodes choose those that lie near them.
BATCHES_AHEAD = 8

if TYPE_CHECKING:  # only a job of several processes needs these, and imports them at its start
    from millrace.cluster.membership import JobMembership
    from millrace.cluster.remote_slots import RemoteSlots, SharedPieces
    from millrace.cluster.write.parallel_output import ParallelOutput
    from millrace.host.signals import StopSignals
    from millrace.planning.run_plan import RunPlan


class RunWiring:
    """The parts made so far: a run may end while it is still being connected."""

    def __init__(
        self, claim: RunClaim, processes: RunContext, earlier: EarlierResults, say: Callable[[str], None]
    ) -> None:
        self._claim, self._processes, self._earlier, self._say = claim, processes, earlier, say
        self.guard = ChangeGuard(claim.plan.world)
        #: Writer of the outputs: of this process alone, or of all processes.
        self.alone: OrderedWriter | None = None
        self.parallel: ParallelOutput | None = None
        self.slots: Executor | None = None
        self._remote: RemoteSlots | None = None
        self._own: LocalSlots | None = None
        #: The input that nodes cut, as the feeder and this node have it; None: there is none.
        self._pieces: SharedPieces | None = None
        #: Whether all checks have passed, and the outputs of an earlier run are dropped.
        self.has_begun = False

    def build_engine(self, stack: ExitStack, events: EventLog, show: ProgressDisplay, started: float) -> RunEngine:
        """Make all parts, until ``stack`` closes.

        Args:
            started: Start of this run on the monotonic clock, in seconds.

        Raises:
            MillraceError: A node cannot take part, or a file cannot be read or written.
        """
        plan, rundir, journal = self._claim.plan, self._claim.rundir, self._earlier.journal
        fresh = not self._claim.resuming or not rundir.written_marker.exists()
        before = list_existing_outputs(plan.use, plan.command.cwd) if fresh and is_unknown_tool(plan.use) else []
        if before and self._processes.dask:
            raise RefusedError(
                f"{before[0]}: is there already, and the workers of a Dask cluster do not see what the program would find in it",
                "remove it, or name another output",
            )
        streams = self._make_streams(fresh=fresh)
        stack.callback(streams.remove_new_outputs)
        stage, slots, wake = self._make_workers(stack, streams)
        feeder = self._make_feeder(wake)
        # Every check has passed on every node.
        self.has_begun = True
        if chain := self._processes.chain:
            chain.announce_start()
        paths.delete_backup(rundir)
        feeder.start_thread()
        stack.callback(feeder.close)
        verifier = self._make_verifier(before)

        def begin_writing() -> None:
            begin_record(rundir)
            streams.truncate_old_outputs()

        group_commit = GroupCommit(journal, plan.job.sync, wake, self.guard)
        stack.callback(group_commit.close)
        limit = QuarantineLimit(*plan.job.quarantine_limit)
        actions = ActionRunner(
            plan=plan, scheduler=self._make_scheduler(limit, feeder, slots), limit=limit,
            node=debug_log.log_calls(slots, "slots", ("submit_task", "withdraw_tasks", "kill_all", "end_input", "wait_for_events")),
            stage=GuardedWriter(stage, self.guard, verifier.decisions.should_hold_output, begin_writing), guard=self.guard, journal=journal,
            commit=group_commit, events=events, quarantine=QuarantineWriter(rundir.quarantine, plan.use, plan.command.cwd),
            verifier=verifier, message=self._say, begun=started,
        )  # fmt: skip
        return RunEngine(
            actions, feeder, InputMeter(plan.use.cost, feeder.total, plan.slots), self._processes.interrupt,
            self._choose_display(show),
            self._processes.supervision,
        )  # fmt: skip

    def _choose_display(self, show: ProgressDisplay) -> Callable[[ProgressSnapshot], None]:
        """Return what gets the progress of the run."""
        if not (pool := self._processes.dask):
            return show.update

        def show_and_publish(snapshot: ProgressSnapshot) -> None:
            show.update(snapshot)
            pool.publish_progress(snapshot)

        return show_and_publish

    def _make_streams(self, *, fresh: bool) -> OutputStreams:
        plan, chain = self._claim.plan, self._processes.chain
        with ExitStack() as readers:
            _wait_for_readers(plan, self._processes.interrupt, readers)
            return OutputStreams(
                plan.use.outputs, plan.command.cwd, fresh=fresh, files=list_record_files(plan.use), forms=self._claim.manifest.frame_forms,
                wrote=chain.announce_file if chain else None,
                # A supervisor writes to standard output, and records it.
                writes_stdout=None if self._processes.supervision.active else partial(record_stdout, self._claim.rundir),
                replaces=not fresh and self._claim.rundir.has_rank_journals(),
            )  # fmt: skip

    def _make_verifier(self, before: Sequence[str]) -> OutputVerifier:
        """Make the verifier; ``before`` are the outputs that exist already."""
        plan, earlier = self._claim.plan, self._earlier
        # A result of an earlier start, or of a store, is looked at where the user asks for it.
        doubts_one = bool(before or (earlier.tasks and plan.job.verify))
        parts = choose_stretches(plan, self._claim.run_id, doubts_one=doubts_one)
        results = {task.first: task for task in earlier.tasks}
        return OutputVerifier(plan, parts, self._processes.work.spool, earlier.looks, results, before)

    def _make_scheduler(self, limit: QuarantineLimit, feeder: InputFeeder, slots: Executor) -> BatchScheduler:
        use, job, earlier = self._claim.plan.use, self._claim.plan.job, self._earlier
        settings = SchedulerSettings(
            slots=self._claim.plan.slots, cost=use.cost, batch_size=job.batch_size, retries=job.retries,
            stop_on_failure=job.on_failure == "stop", record_timeout_seconds=job.record_timeout,
            is_proven=any(not task.quarantined for task in earlier.tasks), is_file=feeder.total is not None,
            fragmented=use.fragmented, n_nodes=slots.n_nodes, grace_seconds=job.tool_grace_seconds,
            begun={(batch.first, batch.last): batch.found for batch in earlier.searched},
            batches_ahead=BATCHES_AHEAD if self._pieces else 0,
        )  # fmt: skip
        return debug_log.log_calls(BatchScheduler(settings, limit), "decision", ("handle",))

    def measure_locality(self) -> VolumesEvent | None:
        """Return how many searches ran on a node that holds their volume; None: all volumes were local."""
        return self._remote.summarize_locality(self._own.storage_read) if self._remote and self._own else None

    def _make_workers(
        self, stack: ExitStack, streams: OutputStreams
    ) -> tuple[OutputWriter, Executor, Callable[[], None]]:
        """Make the writer of the outputs, the slots, and the callback that wakes the engine."""
        if self._processes.crew:
            return self._make_shared_workers(self._processes.crew, stack, streams)
        if pool := self._processes.dask:
            from millrace.cluster.dask.worker_slots import WorkerSlots

            workers = WorkerSlots(pool, self._claim.plan, self._earlier.journal)
            self.slots, self.alone = workers, OrderedWriter(streams, workers.wake_waiter)
            return self.alone, workers, workers.wake_waiter
        node = self._make_node(stack)
        self.slots, self.alone = node, OrderedWriter(streams, node.wake_waiter)
        return self.alone, node, node.wake_waiter

    def _make_shared_workers(
        self, crew: JobMembership, stack: ExitStack, streams: OutputStreams
    ) -> tuple[OutputWriter, Executor, Callable[[], None]]:
        from millrace.cluster.node_staging import start_location_watch
        from millrace.cluster.remote_slots import RemoteSlots
        from millrace.cluster.write.parallel_output import ParallelOutput, find_shared_outputs

        claim, members, start = self._claim, self._processes.members, self._earlier.start
        # What frames results of other forms of the command is known to one joiner alone.
        candidates = {} if claim.manifest.frame_forms else find_shared_outputs(claim.plan, self._say)
        crew.set_up_members(
            claim.plan,
            claim.rundir,
            claim.manifest,
            members,
            start,
            self._processes.staged,
            self._processes.copies,
            candidates,
        )
        node = self._make_node(stack)
        # While the others get ready: later they would not wait as long as a NameNode may take to answer.
        if watch := start_location_watch(claim.plan, members, self._say):
            stack.callback(watch.close)
        crew.wait_until_ready()
        journals = {claim.rundir.get_rank_journal(start, member.rank): member.rank for member in members}
        self.parallel = ParallelOutput(claim.plan, streams, candidates, crew, journals, node.wake_waiter, self._say)
        self._own = node
        if watch and claim.plan.command.view and claim.plan.command.view.cut_by_nodes:
            self._pieces = self._make_pieces(claim.plan.command.view, node, stack)
        if apart := [rank for rank in sorted(crew.ready) if not crew.ready[rank].shares_folder]:
            self._say(
                f"{', '.join(map(crew.format_rank_name, apart))}: no folder is shared with the coordinator, which gets all results as messages"
            )
        kept = {0: node.kept_fragments, **{rank: ready.keeps for rank, ready in crew.ready.items()}}
        self.slots = self._remote = RemoteSlots(
            crew, node, members, claim.plan.use, self.parallel, watch, self._pieces, kept, self._earlier.journal
        )
        return self.parallel, self.slots, node.wake_waiter

    def _make_pieces(self, view: RemoteFileView, node: LocalSlots, stack: ExitStack) -> SharedPieces:
        from millrace.cluster.piece_input import PieceInput, list_pieces
        from millrace.cluster.remote_slots import SharedPieces
        from millrace.node.input_pieces import InputPieces

        work, item, cut = self._processes.work, self._claim.plan.use.inputs[0], view.cut_by_nodes
        assert cut
        own = InputPieces(cut, item, work.path / "pieces", node.wake_waiter)
        stack.callback(own.close)
        extents = [piece.extent for piece in list_pieces(view)]
        self._say(f"{item.path}: cut by the nodes that hold its blocks, in {len(extents)} pieces")
        return SharedPieces(PieceInput(cut, item, extents, work.spool), own)

    def _make_node(self, stack: ExitStack) -> LocalSlots:
        """Make the slots of this process."""
        plan, own = self._claim.plan, self._processes.own_member
        host = own.hello.host if own else ""
        node = LocalSlots(
            plan.use, cwd=plan.command.cwd, exe=plan.command.exe, environ=plan.command.environ, work=self._processes.work,
            slots=own.slots if own else plan.slots, journal=self._earlier.journal, nice=plan.job.nice,
            hidden=frozenset({plan.run_dir}), staged=self._processes.staged.get(host),
            names=self._processes.copies.get(host), lender=self._processes.chain, view=plan.command.view,
            files=plan.world, shared=self._claim.rundir.names, profile_io=plan.job.profile_io,
        )  # fmt: skip
        stack.callback(node.close)
        return node

    def _make_feeder(self, wake: Callable[[], None]) -> InputFeeder:
        plan, earlier = self._claim.plan, self._earlier
        parts = choose_stretches(plan, self._claim.run_id)
        results: deque[SpooledBatch | SkippedRecords | EndOfInput | BaseException] = deque()

        def failed(error: BaseException) -> None:
            results.append(error)
            wake()

        return InputFeeder(
            plan.use.inputs, [self._open_source(item, failed) for item in plan.use.inputs], self._processes.work.spool,
            list_done_extents(earlier.tasks), wake, [(batch.first, batch.last, batch.inputs) for batch in earlier.searched],
            select_kept_batches(parts, earlier.tasks), choose_short_batches(plan, self._claim.run_id), results,
        )  # fmt: skip

    def _open_source(self, item: InputUse, failed: Callable[[BaseException], None]) -> InputSource:
        cwd, job = self._claim.plan.command.resolved_command.cwd, self._claim.plan.job
        if self._pieces:
            return self._pieces.source
        chain = self._processes.chain
        if chain and (grows := chain.open_source(item, job, self._processes.work.spool, failed)):
            return grows
        if item.format == "files":
            return _check_planned_files(FileList(item.paths, cwd), self._claim.plan, self.guard)
        path = item.path if item.path == "-" else str(cwd / item.path)
        try:
            if item.dealt:
                from millrace.node.dealt_input import DealtInput  # few runs need it

                return DealtInput(path, item, self._processes.work.spool)
            return open_reader([path], item, job.record_start, job.record_end)
        except (ValueError, OSError, _core.RecordError) as error:
            raise RefusedError(str(error)) from error


def _wait_for_readers(plan: RunPlan, interrupt: StopSignals, stack: ExitStack) -> None:
    """Wait for a reader of each output that is a named pipe, and hold the pipes open until ``stack`` closes.

    Raises:
        StoppedBySignalError: A signal ended the wait.
    """
    for output in plan.use.outputs:
        place = resolve_destination(output, plan.command.cwd)
        if place and place.is_fifo():
            descriptor = wait_until(partial(_open_pipe, place), nap=0.1, enough=lambda: interrupt.count)
            if descriptor is None:
                raise interrupt.make_error(plan.run_dir)
            stack.callback(os.close, descriptor)


def _check_planned_files(listed: FileList, plan: RunPlan, guard: ChangeGuard) -> FileList:
    """Check that the files of ``listed`` are those of the plan, and return it.

    From now on each batch checks its own files.

    Raises:
        CorruptError: A file has changed since.
    """
    for path, (size, changed) in zip(listed.paths, listed.stats, strict=True):
        now = result_fingerprint.format_stat_fingerprint(size, changed)
        if plan.fingerprints.get(f"input {path}", now) != now:
            guard.changed = f"input {path}: is not what it was"
            raise guard.build_change_error()
    return listed


def _open_pipe(pipe: Path) -> int | None:
    """Open a pipe for writing; return None if it has no reader yet."""
    try:
        return os.open(pipe, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        return None
