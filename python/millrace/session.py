"""A run from end to end: job, plan, run directory, engine, output, report. Reads like a table of contents."""

from __future__ import annotations

import atexit
import errno
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from millrace import _core, debug, history
from millrace.committed import Committed
from millrace.engine.failures import disk_full
from millrace.engine.loop import Engine
from millrace.engine.quarantine import QuarantineWriter
from millrace.engine.verify import Verifier, kept, short, stretches
from millrace.errors import CorruptError, ExitCode, LostError, MillraceError, RefusedError, ToolError, UnverifiedError
from millrace.interrupt import Interrupt, StoppedBySignal, nobody_reads
from millrace.launch.heart import PERIOD
from millrace.launch.mpi_environment import Launched, garbles_stdin
from millrace.launch.mpi_environment import process as launcher_process
from millrace.launch.supervisor_link import Supervision
from millrace.launch.sweep import NAME as JOB
from millrace.lock import Lock
from millrace.model import InputUse
from millrace.node import workdir
from millrace.node.agent import Node, Slots
from millrace.node.feed import Feeder, FileList, Source
from millrace.node.spool import open_reader
from millrace.output import left
from millrace.output.commit import GroupCommit, commit
from millrace.output.guard import Guard, GuardedWriter
from millrace.output.stage import OrderedWriter, Stage
from millrace.output.streams import Streams, withdraw
from millrace.output.whole import restore
from millrace.plan import cores, learnt, workplace
from millrace.plan.plan import Plan
from millrace.plan.privacy import folder_mode
from millrace.report import progress, summary
from millrace.report.event_log import EventLog
from millrace.report.events import EndEvent, RunEvent, WarningEvent, read_typed
from millrace.report.words import count
from millrace.resume import Begun, as_before, begun, chosen, done_extents, outputs_are_there, take_over
from millrace.rundir import Complete, Manifest, RunDir
from millrace.storage import launcher_folder
from millrace.task_numbers import kind_of
from millrace.tasks import Compare

if TYPE_CHECKING:  # what only a job of several processes needs is imported where it begins
    from millrace.cluster.membership import Member, Membership
    from millrace.cluster.parallel_output import ParallelOutput
    from millrace.job import Job


#: Seconds that outputs get at the end of a run that is stopped, to take what is done.
LAST_WRITES = 5.0


@dataclass(frozen=True)
class Finished:
    """How a run ended."""

    code: int
    #: Text for the user, or empty.
    text: str
    summary: summary.Summary | None


def join(launched: Launched, supervision: Supervision, job: Job) -> Membership | None:
    """Become one process of a job.

    Args:
        job: What is to be done; the rest of the plan is made when the others are there.

    Returns:
        The others, for the coordinator; None if there are none. In them it does not return: it ends the process when
        its part is over.

    Raises:
        RefusedError: There is no MPI, or it is not the launcher's.
    """
    cores.unbind(launcher_process())
    if launched.size == 1:
        return None
    from millrace.cluster.leader import agent
    from millrace.cluster.membership import Membership
    from millrace.cluster.mpi import World

    try:
        launcher_folder.check(os.environ)
    except LostError as error:
        if launched.rank:
            sys.exit(f"millrace: rank {launched.rank}: {error.message}")
        raise
    slots = job.slots or cores.usable(os.environ)[0]
    work = workdir.choose(workplace.find(job.work_dir, slots, Path.cwd()).path)
    watchdog = _core.Watchdog(str(work.path), work.token)  # before any thread; MPI starts some
    work.make()
    try:
        with supervision.starting():
            world = World(launched, work.path)
    except RefusedError:
        watchdog.close()
        if launched.rank:
            sys.exit(ExitCode.REFUSED)  # the first one tells
        raise
    if world.rank:
        with Interrupt(supervised=supervision.active) as interrupt:
            agent(world, work, job.partition_size).run(interrupt)
        watchdog.close()
        world.leave(ExitCode.DONE)
        sys.exit(ExitCode.DONE)
    crew = Membership(world, work, job.partition_size, supervision.patience)
    # At the very end, when what went wrong has been said.
    atexit.register(crew.leave)
    atexit.register(watchdog.close)
    return crew


def run(plan: Plan, supervision: Supervision, crew: Membership | None = None) -> Finished:
    """Do ``plan``, resuming what an earlier run of the same command left.

    Args:
        supervision: Whoever watches over this process.
        crew: The other processes of an MPI job, whose slots work too.

    Raises:
        MillraceError: The run did not get to its end; the run directory holds what was done.
    """
    if any(item.path == "-" for item in plan.use.inputs) and garbles_stdin(os.environ):
        raise RefusedError(
            "standard input: the mpirun of Open MPI 5 does not pass it on as it is",
            "let each process open the file itself: mpirun ... sh -c 'millrace run ... -- TOOL < FILE'",
        )
    with ExitStack() as stack:
        interrupt = stack.enter_context(Interrupt(supervised=supervision.active))
        supervision.obey(interrupt)
        rundir = RunDir(plan.run_dir)
        if supervision.active:
            wait_for_the_last_start(rundir)
        lock = rundir.lock(folder_mode(plan), job=os.environ.get(JOB, ""), fresh=plan.job.fresh)
        stack.callback(lock.close)
        if not supervision.active:
            rundir.put_back()  # what a start that was killed had set aside
        plan = as_before(plan, rundir)
        manifest, resuming = take_over(plan, rundir)
        stack.push(remove_if_fruitless(rundir, supervised=supervision.active))
        # Also where nothing is left to do, so that no dead run's work directory stays.
        work = crew.work if crew else workdir.choose(plan.work_place)
        left.check(plan, rundir, manifest)
        if done := already_complete(plan, rundir, manifest, supervision):
            return done
        left.forget(rundir)
        if crew:
            crew.interrupt = interrupt
            stack.callback(crew.dismiss)
            lock.keep(taken_over(rundir))
            return Session(plan, rundir, manifest, lock, work, interrupt, resuming, supervision, crew).run(stack)
        # Before any thread, as the watchdog is a fork; and before the folder, so that nothing is left whenever we die.
        watchdog = _core.Watchdog(str(work.path), work.token)
        stack.callback(watchdog.close)
        work.make()
        lock.keep(taken_over(rundir))
        return Session(plan, rundir, manifest, lock, work, interrupt, resuming, supervision).run(stack)


def taken_over(rundir: RunDir) -> Callable[[str], None]:
    """What to do when another machine goes on with the run, because this one was frozen: end in order, and keep off."""

    def stop(owner: str) -> None:
        print(f"millrace: {rundir.path}: {owner} has taken this run over", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGTERM)

    return stop


def wait_for_the_last_start(rundir: RunDir) -> None:
    """Let a coordinator that was killed just now be gone.

    Raises:
        LostError: It is not.
    """
    deadline = time.monotonic() + 10 * PERIOD
    while rundir.is_running(os.environ.get(JOB, "")):
        if time.monotonic() > deadline:
            raise LostError(f"{rundir.path}: the coordinator of an earlier start still has it", "wait for its end")
        time.sleep(PERIOD / 10)


def remove_if_fruitless(rundir: RunDir, *, supervised: bool) -> Callable[..., bool]:
    """What to do with the run directory at the end of a context: a run that failed with nothing done leaves none, and one
    that has not begun leaves what was there before.

    Args:
        supervised: The supervisor sees to what was there before: it may start this again.
    """

    def leave(_: object, error: BaseException | None, __: object) -> bool:
        if rundir.earlier.exists() and (supervised or rundir.put_back()):
            return False
        # One that was asked to stop has told where it keeps its results, and may be about to be resumed.
        asked = isinstance(error, StoppedBySignal) and error.number != signal.SIGPIPE
        if isinstance(error, MillraceError) and not asked and not rundir.holds_results():
            rundir.remove()
        return False

    return leave


def already_complete(plan: Plan, rundir: RunDir, manifest: Manifest, supervision: Supervision) -> Finished | None:
    """The result of an earlier run that got to its end, if its outputs are still there; else None."""
    complete = rundir.read_complete(manifest)
    if complete is None:
        return None
    if plan.job.retry_quarantined or not outputs_are_there(plan, rundir, complete):
        # From here on this is a run that is not complete, should it be killed.
        rundir.complete.unlink()
        return None
    try:
        counted = summary.summarise(read_typed(rundir.events))
    except OSError:
        counted = None  # killed while it removed the directory
    if not complete.kept and not (counted and counted.quarantined):
        if not supervision.active:  # which does so once it has passed everything on
            rundir.remove()
        return Finished(ExitCode.DONE, "already done: an earlier run wrote everything", counted)
    code = ExitCode.QUARANTINED if counted and counted.quarantined else ExitCode.DONE
    return Finished(code, f"already done: {rundir.path} holds this run, complete (--fresh starts over)", counted)


#: Seconds between looks at the outputs, at the end.
LOOK_SECONDS = 0.05


class Session:
    """One process's part in a run."""

    def __init__(
        self, plan: Plan, rundir: RunDir, manifest: Manifest, lock: Lock, work: workdir.WorkDir, interrupt: Interrupt, resuming: bool,
        supervision: Supervision, crew: Membership | None = None,
    ) -> None:  # fmt: skip
        self.plan, self.rundir, self.manifest, self.work = plan, rundir, manifest, work
        self.lock = lock
        self.interrupt, self.resuming, self.supervision, self.crew = interrupt, resuming, supervision, crew
        self.members: list[Member] = []
        self.writers: ParallelOutput | None = None
        #: Who writes the outputs, if that is this process alone.
        self.alone: OrderedWriter | None = None
        self.slots: Slots | None = None
        #: Whether what an earlier run has left in the outputs is gone.
        self.has_begun = False
        self.start = 0
        #: (copy, file): what tools on each host are to read in the place of what.
        self.staged: Mapping[str, Sequence[tuple[str, str]]] = {}
        self.run_id = bytes.fromhex(manifest.run_id)
        #: What an earlier start wrote to compare results with, by its records.
        self.looks: Mapping[tuple[int, int], Committed] = {}
        self.guard = Guard(plan.world)

    def run(self, stack: ExitStack) -> Finished:
        """Run until done; see `run`."""
        show = stack.enter_context(progress.make(self._mode(), sys.stderr))
        self.message = debug.told(show.message if self.plan.job.verbosity >= 0 else _nothing)
        for warning in self.plan.warnings:
            self.message(warning)
        if self.crew:
            self._share(self.crew)
        self._stage(stack)
        plan = self.plan
        started = time.monotonic()
        journal, tasks, searched = self._open_journal()
        done = done_extents(tasks)
        events = stack.enter_context(EventLog(self.rundir.events))
        events.write(self._run_event(done), 0.0)
        try:
            engine = self._engine(stack, journal, events, show, tasks, searched, started)
            stack.callback(self._remember, engine)
            debug.watch(engine)
            for task in tasks:
                engine.stage.put(task)
            engine.counts.quarantined = sum(task.last - task.first for task in tasks if task.quarantined)
            engine.limit.resumed(engine.counts.quarantined)
            engine.run()
            self.supervision.over()
            self._drain(engine)  # which other processes may have a part in
            if self.crew:
                self.crew.dismiss(whole=True)  # what they committed is on the disk before this run is called complete
                self.guard.changed = self.guard.changed or self.crew.changed
            return self._finish(engine, journal, events)
        except BaseException as error:
            stopped = self._why_changed(error) or (
                error if isinstance(error, MillraceError) else translated(error, plan)
            )
            self._settle()
            never_worked = isinstance(stopped, ToolError) and self.has_begun and not self.rundir.holds_results()
            if isinstance(stopped, UnverifiedError) or never_worked:
                withdraw(plan.use.outputs, plan.command.cwd, self.rundir.journals())
            status = "interrupted" if isinstance(stopped, StoppedBySignal) else "stopped"
            events.write(
                EndEvent(t=time.monotonic() - started, status=status, message=str(stopped or error)),
                time.monotonic() - started,
            )
            events.close()
            self._last_commit(journal, stopped)
            if self.alone and self.alone.drain(LAST_WRITES) is not None:
                left.note(plan, self.rundir, self.manifest)
            with suppress(OSError):  # a log that nobody could write
                code = stopped.status if stopped else ExitCode.STOPPED
                history.remember(self.plan, self.rundir, self.manifest, code, str(stopped or error))
            if stopped is None:
                raise
            raise stopped from error

    def _mode(self) -> progress.Mode:
        return "none" if self.plan.job.verbosity < 0 and self.plan.job.progress == "auto" else self.plan.job.progress

    def _share(self, crew: Membership) -> None:
        """Plan with the slots of all processes."""
        from millrace.cluster.membership import share

        self.members, notes = share(crew.gather(), self.plan.job, self.plan.use)
        for note in (*notes, *crew.notes):
            self.message(note)
        self.plan = msgspec.structs.replace(self.plan, slots=sum(member.slots for member in self.members))

    def _stage(self, stack: ExitStack) -> None:
        """Bring copies of the databases to the nodes, where that is asked for or pays."""
        if self.crew or self.plan.job.stage != "auto":
            from millrace.cluster.staging import stage

            keeper, self.staged = stage(
                self.plan, self.members, self.crew, self.work.path, self.interrupt, self.message
            )
            stack.callback(keeper.close)

    def _open_journal(self) -> tuple[_core.Journal, list[Committed], list[Begun]]:
        self.start = self.rundir.next_start()
        # A process on another machine that was taken for dead, and is not, goes on with its own.
        alone = not self.crew and self.lock.certain
        path = self.rundir.journal if alone else self.rundir.journal_of(self.start, 0)
        earlier = self.rundir.journals() if self.resuming else []
        scans = []
        try:
            if path in earlier:
                journal, scan = _core.Journal.open(path, self.run_id)
                scans.append((path, scan))
            else:
                journal = _core.Journal.create(path, self.run_id)
            for other in earlier:
                if other != path:
                    scans.append((other, _core.scan(other, True)))
                    if scans[-1][1].run_id != self.run_id:
                        raise CorruptError(f"{other}: belongs to another run", "start over with --fresh")
        except (_core.CorruptJournal, IsADirectoryError) as error:
            also = ", or use the release that began the run" if "this release reads" in str(error) else ""
            raise CorruptError(str(error), f"start over with --fresh{also}") from error
        for name, scan in scans:
            for offset, problem, was_synced in scan.damage:
                if was_synced:
                    self.message(f"{name}: byte {offset}: {problem}; what is damaged is not used but computed again")
        found = [task for _, scan in scans for task in scan.tasks]
        self.looks = {(task.first, task.last): task for task in found if kind_of(task.fragment) == Compare()}
        tasks = chosen(found, self.plan.job.retry_quarantined)
        return journal, tasks, begun(found, tasks)

    def _run_event(self, done: Sequence[tuple[int, int, object]]) -> RunEvent:
        use = self.plan.use
        return RunEvent(
            time=datetime.now().astimezone().isoformat(timespec="seconds"), argv=list(self.plan.command.argv),
            tool=Path(self.plan.command.argv[0]).name, version=use.version, slots=self.plan.slots, unit=use.cost.unit,
            bytes_total=None, records_resumed=sum(last - first for first, last, _ in done),
        )  # fmt: skip

    def _engine(
        self, stack: ExitStack, journal: _core.Journal, events: EventLog, show: progress.Progress,
        tasks: Sequence[Committed], searched: list[Begun], started: float,
    ) -> Engine:  # fmt: skip
        plan, use = self.plan, self.plan.use
        cwd = plan.command.cwd
        streams = Streams(use.outputs, cwd, fresh=not self.resuming)
        stack.callback(streams.give_up)
        if self.crew:
            from millrace.cluster.parallel_output import ParallelOutput, shared

            candidates = shared(plan, self.message)
            self.crew.set_up(plan, self.rundir, self.manifest, self.members, self.start, self.staged, candidates)
        node = Node(
            use, cwd=cwd, exe=plan.command.exe, environ=plan.command.environ, work=self.work,
            slots=self.members[0].slots if self.members else plan.slots,
            journal=journal, nice=plan.job.nice, hidden=frozenset({plan.run_dir}),
            staged=self.staged.get(self.members[0].hello.host if self.members else ""),
        )  # fmt: skip
        stack.callback(node.close)
        slots: Slots = node
        stage: Stage
        if self.crew:
            from millrace.cluster.remote_slots import RemoteSlots

            self.crew.wait_until_ready()
            journals = {self.rundir.journal_of(self.start, member.rank): member.rank for member in self.members}
            stage = self.writers = ParallelOutput(
                plan, streams, candidates, self.crew, journals, node.wake, self.message
            )
            slots = RemoteSlots(self.crew, node, self.members, use, self.message, self.writers)
        else:
            stage = self.alone = OrderedWriter(streams, node.wake)
        self.slots = slots
        feeder = Feeder(
            use.inputs, [self._source(item) for item in use.inputs], self.work.spool, done_extents(tasks), node.wake,
            [(batch.first, batch.last, batch.inputs) for batch in searched], kept(stretches(plan, self.run_id), tasks),
            short(plan, self.run_id),
        )  # fmt: skip
        streams.begin()  # not before every check has passed on every node
        self.has_begun = True
        self.rundir.forget()
        feeder.start()
        stack.callback(feeder.close)
        verifier = Verifier(
            plan, stretches(plan, self.run_id), self.work.spool, self.looks, {task.first: task for task in tasks}
        )
        group_commit = GroupCommit(journal, plan.job.sync, node.wake, self.guard)
        stack.callback(group_commit.close)
        return Engine(
            plan=plan, node=slots, supervision=self.supervision, feeder=feeder, stage=GuardedWriter(stage, self.guard, verifier.holds_back), guard=self.guard, journal=journal, commit=group_commit,
            events=events, interrupt=self.interrupt, show=show.update, message=self.message, begun=started,
            verifier=verifier,
            resumes_results=any(not task.quarantined for task in tasks), begun_searches={(batch.first, batch.last): batch.found for batch in searched},
            quarantine=QuarantineWriter(self.rundir.quarantine, use, cwd),
        )  # fmt: skip

    def _remember(self, engine: Engine) -> None:
        """Let later runs of the tool begin with what its tasks cost in this one."""
        if self.plan.cost_key and (found := engine.scheduler.cost.learnt):
            learnt.remember(self.plan.cost_key, found, self.plan.command.environ)

    def _source(self, item: InputUse) -> Source:
        cwd, job = self.plan.command.cwd, self.plan.job
        if item.format == "files":
            return FileList(item.path.split("\0"), cwd)
        path = item.path if item.path == "-" else str(cwd / item.path)
        try:
            return open_reader([path], item, job.record_start, job.record_end)
        except (ValueError, OSError, _core.RecordError) as error:
            raise RefusedError(str(error)) from error

    def _drain(self, engine: Engine) -> None:
        """Wait until everything is in the outputs."""
        while (covered := engine.stage.drain(0.2)) is None:
            if self.interrupt.signal:  # whoever reads the output may have stopped reading
                raise self.interrupt.error(self.plan.run_dir)
            engine.node.events(LOOK_SECONDS)  # other processes have a part in it; the slots have nothing more to tell
        if self.writers:
            self.writers.settle(engine.node.events)
        if engine.stage.error:
            raise engine.stage.error
        if covered != engine.counts.records:
            raise CorruptError(
                f"the outputs cover {covered} records of {engine.counts.records}",
                "this must not happen: please report it",
            )

    def _settle(self) -> None:
        """Let no other process wait for this one while it ends."""
        if self.writers and self.slots:
            with suppress(MillraceError):
                self.writers.settle(self.slots.events)

    def _finish(self, engine: Engine, journal: _core.Journal, events: EventLog) -> Finished:
        plan = self.plan
        commit(journal, self.guard)
        if not self.lock.is_ours():
            raise LostError(f"{self.rundir.path}: another process has taken this run over", "wait for its end")
        sizes = engine.stage.finish()
        restore(plan, self.rundir, engine.stage.changed(), self.message)
        now = engine.now()
        for line, times in (*engine.said.results(), *engine.said.repeated()):
            events.write(WarningEvent(t=now, text=line, count=times), now)
        lost = engine.counts.quarantined
        events.write(
            EndEvent(
                t=now,
                status="quarantined" if lost else "done",
                records_done=engine.counts.records - lost,
                quarantined=lost,
            ),
            now,
        )
        events.flush()  # before the run counts as complete, or a kill in between leaves a log of one that is not
        left.note(plan, self.rundir, self.manifest)
        self.rundir.write_complete(Complete(run_id=self.manifest.run_id, outputs=sizes, kept=plan.job.keep_run_dir))
        events.close()
        code = ExitCode.QUARANTINED if lost else ExitCode.DONE
        counted = history.remember(plan, self.rundir, self.manifest, code)
        return self._judge(lost, counted, engine.verifier.outcome(engine.counts.records))

    def _judge(self, lost: int, counted: summary.Summary, verified: str) -> Finished:
        if lost:
            text = f"{count(lost, 'record')} quarantined in {self.rundir.quarantine}; to try again: millrace run --retry-quarantined -- ..."
            return Finished(ExitCode.QUARANTINED, "\nmillrace: ".join(filter(None, (verified, text))), counted)
        if not self.plan.job.keep_run_dir and not self.supervision.active:
            self.rundir.remove()
        return Finished(ExitCode.DONE, verified, counted)

    def _why_changed(self, error: BaseException) -> MillraceError | None:
        """The cause of an error, if that is a world that changed: a database half replaced, an input cut short."""
        if isinstance(error, StoppedBySignal | RefusedError):
            return None
        try:
            self.guard.look()
        except CorruptError as changed:
            return changed
        return None

    def _last_commit(self, journal: _core.Journal, stopped: BaseException | None) -> None:
        try:
            with suppress(CorruptError):
                commit(journal, self.guard)
            unsure = isinstance(stopped, MillraceError) and stopped.exit_code == ExitCode.CORRUPT
            if self.guard.changed or (unsure and not isinstance(stopped, UnverifiedError)):
                # Of what came after the last good look nobody knows in which world it was computed.
                self.rundir.write_manifest(msgspec.structs.replace(self.manifest, world=""))
            journal.sync()
        except OSError as error:
            self.message(f"the last results may not be on disk: {error}")


def translated(error: BaseException, plan: Plan) -> MillraceError | None:
    """An error of a library in the user's terms; None for what is not expected."""
    if isinstance(error, _core.DiskFull):
        return disk_full(plan, str(error))
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return disk_full(plan, f"{error.filename or plan.run_dir}: {error.strerror}")
    if isinstance(error, BrokenPipeError):
        return nobody_reads(plan.run_dir)
    if isinstance(error, OSError):
        return MillraceError(str(error), "nothing is lost: the same command resumes")
    if isinstance(error, _core.CorruptJournal):
        return CorruptError(str(error))
    return None


def _nothing(_: str) -> None:
    pass
