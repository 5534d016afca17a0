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

from millrace import _core, earlier_run
from millrace.engine.looked_at import kept, short, stretches
from millrace.engine.loop import Engine
from millrace.engine.quarantine import QuarantineWriter
from millrace.engine.verify import Verifier
from millrace.errors import RefusedError
from millrace.model import InputUse
from millrace.node.agent import Node
from millrace.node.batch import Batch, End, Skipped
from millrace.node.feed import Feeder, Source
from millrace.node.file_list import FileList
from millrace.node.slots import Slots
from millrace.node.spool import open_reader
from millrace.output.commit import GroupCommit
from millrace.output.guard import Guard, GuardedWriter
from millrace.output.stage import OrderedWriter, Stage
from millrace.output.stdout_record import begin_record, record_stdout
from millrace.output.streams import Streams, destination
from millrace.plan import fingerprint
from millrace.plan.doubts import is_unknown
from millrace.plan.outputs import files_of, there_already
from millrace.report.event_log import EventLog
from millrace.report.events import VolumesEvent
from millrace.report.progress import Progress
from millrace.resume import done_extents
from millrace.session.claim import Claim
from millrace.session.earlier import Earlier
from millrace.session.processes import Processes
from millrace.waiting import until

if TYPE_CHECKING:  # only a job of several processes needs these, and imports them at its start
    from millrace.cluster.block_watch import BlockWatch
    from millrace.cluster.membership import Member, Membership
    from millrace.cluster.parallel_output import ParallelOutput
    from millrace.cluster.remote_slots import RemoteSlots


class Wiring:
    """The parts made so far: a run may end while it is still being connected."""

    def __init__(self, claim: Claim, processes: Processes, earlier: Earlier, say: Callable[[str], None]) -> None:
        self._claim, self._processes, self._earlier, self._say = claim, processes, earlier, say
        self.guard = Guard(claim.plan.world)
        #: Writer of the outputs: of this process alone, or of all processes.
        self.alone: OrderedWriter | None = None
        self.parallel: ParallelOutput | None = None
        self.slots: Slots | None = None
        self._remote: RemoteSlots | None = None
        self._own: Node | None = None
        #: Whether all checks have passed, and the outputs of an earlier run are dropped.
        self.has_begun = False

    def engine(self, stack: ExitStack, events: EventLog, show: Progress, started: float) -> Engine:
        """Make all parts, until ``stack`` closes.

        Args:
            started: Start of this run on the monotonic clock, in seconds.

        Raises:
            MillraceError: A node cannot take part, or a file cannot be read or written.
        """
        plan, rundir, journal = self._claim.plan, self._claim.rundir, self._earlier.journal
        chain = self._processes.chain
        fresh = not self._claim.resuming or not rundir.written.exists()
        before = there_already(plan.use, plan.command.cwd) if fresh and is_unknown(plan.use) else []
        with ExitStack() as readers:
            self._wait_for_readers(readers)
            streams = Streams(
                plan.use.outputs, plan.command.cwd, fresh=fresh, files=files_of(plan.use),
                wrote=chain.wrote if chain else None,
                # A supervisor writes to standard output, and records it.
                writes_stdout=None if self._processes.supervision.active else partial(record_stdout, rundir),
            )  # fmt: skip
        stack.callback(streams.give_up)
        stage, slots, wake = self._workers(stack, streams)
        feeder = self._feeder(wake)
        # Every check has passed on every node.
        self.has_begun = True
        if chain:
            chain.begun()
        earlier_run.forget(rundir)
        feeder.start()
        stack.callback(feeder.close)
        parts, tasks = stretches(plan, self._claim.run_id, before=bool(before)), self._earlier.tasks
        results = {task.first: task for task in tasks}
        verifier = Verifier(plan, parts, self._processes.work.spool, self._earlier.looks, results, before)

        def begin_writing() -> None:
            begin_record(rundir)
            streams.begin()

        group_commit = GroupCommit(journal, plan.job.sync, wake, self.guard)
        stack.callback(group_commit.close)
        return Engine(
            plan=plan, node=slots, supervision=self._processes.supervision, feeder=feeder,
            stage=GuardedWriter(stage, self.guard, verifier.holds_back, begin_writing), guard=self.guard, journal=journal,
            commit=group_commit, events=events, interrupt=self._processes.interrupt, show=show.update, message=self._say,
            begun=started, verifier=verifier, resumes_results=any(not task.quarantined for task in tasks),
            begun_searches={(batch.first, batch.last): batch.found for batch in self._earlier.searched},
            quarantine=QuarantineWriter(rundir.quarantine, plan.use, plan.command.cwd),
        )  # fmt: skip

    def _wait_for_readers(self, stack: ExitStack) -> None:
        """Wait for a reader of each output that is a named pipe, and hold the pipes open until ``stack`` closes.

        Raises:
            StoppedBySignal: A signal ended the wait.
        """
        plan, interrupt = self._claim.plan, self._processes.interrupt
        for output in plan.use.outputs:
            place = destination(output, plan.command.cwd)
            if place and place.is_fifo():
                descriptor = until(partial(_opened, place), nap=0.1, enough=lambda: interrupt.count)
                if descriptor is None:
                    raise interrupt.error(plan.run_dir)
                stack.callback(os.close, descriptor)

    def locality(self) -> VolumesEvent | None:
        """Return how many searches ran on a node that holds their volume; None: all volumes were local."""
        return self._remote.locality(self._own.read) if self._remote and self._own else None

    def _workers(self, stack: ExitStack, streams: Streams) -> tuple[Stage, Slots, Callable[[], None]]:
        """Make the writer of the outputs, the slots, and the callback that wakes the engine."""
        if self._processes.crew:
            return self._shared(self._processes.crew, stack, streams)
        node = self._node(stack)
        self.slots, self.alone = node, OrderedWriter(streams, node.wake)
        return self.alone, node, node.wake

    def _shared(self, crew: Membership, stack: ExitStack, streams: Streams) -> tuple[Stage, Slots, Callable[[], None]]:
        from millrace.cluster.parallel_output import ParallelOutput, shared
        from millrace.cluster.remote_slots import RemoteSlots

        claim, members, start = self._claim, self._processes.members, self._earlier.start
        candidates = shared(claim.plan, self._say)
        crew.set_up(
            claim.plan,
            claim.rundir,
            claim.manifest,
            members,
            start,
            self._processes.staged,
            self._processes.copies,
            candidates,
        )
        node = self._node(stack)
        # While the others get ready: later they would not wait as long as a NameNode may take to answer.
        watch = self._block_watch(members, stack)
        crew.wait_until_ready()
        journals = {claim.rundir.journal_of(start, member.rank): member.rank for member in members}
        self.parallel = ParallelOutput(claim.plan, streams, candidates, crew, journals, node.wake, self._say)
        self._own = node
        self.slots = self._remote = RemoteSlots(crew, node, members, claim.plan.use, self.parallel, watch)
        return self.parallel, self.slots, node.wake

    def _block_watch(self, members: Sequence[Member], stack: ExitStack) -> BlockWatch | None:
        """Start watching which nodes hold the volumes of the database; return None if all are local."""
        use = self._claim.plan.use
        if not use.fragmented or not use.fragmented.volumes:
            return None
        from millrace.cluster.block_watch import BlockWatch

        hosts = {member.rank: member.hello.host for member in members}
        # The coordinator's host has all of a file in pieces.
        in_pieces = any(file.is_piece for files in use.fragmented.volumes for file in files)
        whole = [rank for rank, host in hosts.items() if in_pieces and host == hosts[0]]
        watch = BlockWatch(
            use.fragmented.volumes, hosts, self._claim.plan.command.environ, self._say,
            has_all=whole,
        )  # fmt: skip
        stack.callback(watch.close)
        return watch

    def _node(self, stack: ExitStack) -> Node:
        """Make the slots of this process."""
        plan, own = self._claim.plan, self._processes.own
        host = own.hello.host if own else ""
        node = Node(
            plan.use, cwd=plan.command.cwd, exe=plan.command.exe, environ=plan.command.environ, work=self._processes.work,
            slots=own.slots if own else plan.slots, journal=self._earlier.journal, nice=plan.job.nice,
            hidden=frozenset({plan.run_dir}), staged=self._processes.staged.get(host),
            names=self._processes.copies.get(host), lender=self._processes.chain, view=plan.command.view,
            files=plan.world, shared=self._claim.rundir.names,
        )  # fmt: skip
        stack.callback(node.close)
        return node

    def _feeder(self, wake: Callable[[], None]) -> Feeder:
        plan, earlier = self._claim.plan, self._earlier
        parts = stretches(plan, self._claim.run_id)
        results: deque[Batch | Skipped | End | BaseException] = deque()

        def failed(error: BaseException) -> None:
            results.append(error)
            wake()

        return Feeder(
            plan.use.inputs, [self._source(item, failed) for item in plan.use.inputs], self._processes.work.spool,
            done_extents(earlier.tasks), wake, [(batch.first, batch.last, batch.inputs) for batch in earlier.searched],
            kept(parts, earlier.tasks), short(plan, self._claim.run_id), results,
        )  # fmt: skip

    def _source(self, item: InputUse, failed: Callable[[BaseException], None]) -> Source:
        cwd, job = self._claim.plan.command.seen.cwd, self._claim.plan.job
        chain = self._processes.chain
        if chain and (grows := chain.source(item, job, self._processes.work.spool, failed)):
            return grows
        if item.format == "files":
            return self._as_planned(FileList(item.path.split("\0"), cwd))
        path = item.path if item.path == "-" else str(cwd / item.path)
        try:
            return open_reader([path], item, job.record_start, job.record_end)
        except (ValueError, OSError, _core.RecordError) as error:
            raise RefusedError(str(error)) from error

    def _as_planned(self, listed: FileList) -> FileList:
        """Check that the files of ``listed`` are those of the plan, and return it.

        From now on each batch checks its own files.

        Raises:
            CorruptError: A file has changed since.
        """
        planned = self._claim.plan.fingerprints
        for path, (size, changed) in zip(listed.paths, listed.stats, strict=True):
            now = fingerprint.of_state(size, changed)
            if planned.get(f"input {path}", now) != now:
                self.guard.changed = f"input {path}: is not what it was"
                raise self.guard.error()
        return listed


def _opened(pipe: Path) -> int | None:
    """Open a pipe for writing; return None if it has no reader yet."""
    try:
        return os.open(pipe, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        return None
