"""The loop of a run: it passes events to the scheduler and lets ``Actions`` run what the scheduler returns."""

from __future__ import annotations

import os
from collections.abc import Callable

import msgspec

from millrace import _core
from millrace.engine.actions import Actions
from millrace.engine.batches import Batches
from millrace.engine.counts import Counts
from millrace.engine.failures import failure_of, not_kept, unequal
from millrace.engine.intake import Intake
from millrace.engine.quarantine import QuarantineWriter
from millrace.engine.strays import Strays
from millrace.engine.task_log import TaskLog
from millrace.engine.tool_messages import ToolMessages
from millrace.engine.verify import Verifier
from millrace.engine.watcher import Watcher
from millrace.interrupt import Interrupt
from millrace.model import Snapshot
from millrace.node.batch import Batch, End, Limits, Skipped
from millrace.node.feed import Feeder
from millrace.node.slots import Slots
from millrace.output.commit import GroupCommit
from millrace.output.guard import Guard, GuardedWriter
from millrace.plan.plan import Plan
from millrace.report.event_log import EventLog
from millrace.report.words import count
from millrace.schedule.fragments import FoundBefore
from millrace.schedule.interruption import GRACE_SECONDS
from millrace.schedule.protocol import (
    Action,
    BatchCut,
    Begun,
    InputEnded,
    Interrupted,
    Quarantine,
    Stop,
    TaskFailed,
    Turn,
)
from millrace.schedule.quarantine_limit import QuarantineLimit
from millrace.schedule.scheduler import Scheduler, Settings
from millrace.tasks import Compare, Ended, Ending, News, SlotsChanged, Started, Task, Withdrawn, Woken

#: Longest wait for events, in seconds.
TICK_SECONDS = 0.2

#: Shortest interval between two updates of the progress display, in seconds.
SHOW_SECONDS = 0.1

#: Message for ``--warm`` with few tasks.
NEVER_WARM = (
    "warm: no task ran in a fork alone, as the first ones are compared; smaller batches make more tasks: --batch N"
)


class Engine(msgspec.Struct, dict=True):
    """The engine that runs a plan to its end, an interruption, or an error.

    ``Engine.run`` returns only when every record is done or quarantined. Otherwise it raises the cause; everything committed
    by then is in the journal.
    """

    plan: Plan
    node: Slots
    feeder: Feeder
    stage: GuardedWriter
    guard: Guard
    journal: _core.Journal
    commit: GroupCommit
    events: EventLog
    interrupt: Interrupt
    show: Callable[[Snapshot], None]
    message: Callable[[str], None]
    quarantine: QuarantineWriter
    verifier: Verifier
    supervision: Watcher
    begun: float
    #: Whether an earlier run of the same command had results.
    resumes_results: bool = False
    #: Candidates that an earlier run found in fragments, by the extent of the batch.
    begun_searches: FoundBefore = msgspec.field(default_factory=dict)
    counts: Counts = msgspec.field(default_factory=Counts)
    #: Signals that were reported to the scheduler.
    _n_signals: int = 0
    _shown_at: float = 0.0
    #: Reasons why tasks do not run warm that were already reported.
    _cold: set[str] = msgspec.field(default_factory=set)

    def __post_init__(self) -> None:
        use, job = self.plan.use, self.plan.job
        self.limit = QuarantineLimit(*job.quarantine_limit)
        settings = Settings(
            slots=self.plan.slots, cost=use.cost, batch_size=job.batch_size, retries=job.retries,
            stop_on_failure=job.on_failure == "stop", record_timeout_seconds=job.record_timeout,
            is_proven=self.resumes_results, is_file=self.feeder.total is not None, fragmented=use.fragmented,
            n_nodes=self.node.n_nodes, begun=self.begun_searches,
        )  # fmt: skip
        self.batches = Batches(self.plan, self.feeder.inputs)
        self.said = ToolMessages(use.argv[0] if isinstance(use.argv[0], str) else "tool", self.message)
        self._strays = Strays(self.plan.command, use, self.said.tool)
        self._intake = Intake(use.cost, self.feeder.total, self.plan.slots)
        self._log = TaskLog(self.events, self.batches.units)
        self.actions = Actions(
            plan=self.plan, scheduler=Scheduler(settings, self.limit), limit=self.limit, batches=self.batches,
            counts=self.counts, node=self.node, feeder=self.feeder, stage=self.stage, guard=self.guard,
            journal=self.journal, events=self.events, quarantine=self.quarantine, verifier=self.verifier,
            message=self.message, tool=self.said.tool, begun=self.begun,
        )  # fmt: skip

    @property
    def scheduler(self) -> Scheduler:
        return self.actions.scheduler

    def now(self) -> float:
        """Return the seconds since the run began."""
        return self.actions.now()

    # The loop

    def run(self) -> None:
        """Run the loop until everything is done.

        Raises:
            MillraceError: The run cannot go on; ``MillraceError.exit_code`` is the exit code.
        """
        self.actions.tell(Begun())
        while not self._is_over():
            self._notice_signals()
            self._ask()
            for news in self.node.events(TICK_SECONDS):
                self._heard(news)
            self._take_fed()
            self.actions.tell(Turn())
            if not self._n_signals:
                self.actions.look_again()
            self._look_around()
        self.show(self._snapshot())
        if self._n_signals:
            raise self.interrupt.error(self.plan.run_dir)
        if not self.counts.resumed:
            self._strays.look_at_all()

    def _is_over(self) -> bool:
        return self.scheduler.is_done and (bool(self._n_signals) or self.verifier.done)

    def _notice_signals(self) -> None:
        while self._n_signals < min(self.interrupt.count, 2):
            self._n_signals += 1
            self.actions.tell(Interrupted())
            if self._n_signals == 1:
                self.message(
                    f"{self.interrupt.name}: no more work is handed out; waiting at most {GRACE_SECONDS:.0f} s for "
                    f"{self.counts.running} running tools (again: at once)"
                )

    def _look_around(self) -> None:
        self.supervision.turned(self.counts.records)
        self.stage.turn()
        for error in (self.stage.error, self.commit.error, self.verifier.error):
            if error:
                raise error
        if (now := self.now()) - self._shown_at >= SHOW_SECONDS:
            self._shown_at = now
            self.show(self._snapshot())

    # The input

    def _ask(self) -> None:
        if ask := self.scheduler.ask(self._intake.remaining):
            self.feeder.request(Limits(ask.records, ask.units, ask.bytes), ask.n_batches)

    def _take_fed(self) -> None:
        while self.feeder.results and not self._n_signals:
            match self.feeder.results.popleft():
                case Batch() as batch:
                    self.verifier.cut(batch)
                    self._intake.read(batch, self.batches.units(batch))
                    self.actions.tell(BatchCut(self.batches.add(batch)))
                case Skipped() as skipped:
                    self.verifier.skipped(skipped)
                    units = self.batches.units(skipped)
                    self.counts.skipped(skipped, units, self._intake.read(skipped, units))
                case End(records):
                    self.verifier.ended(records)
                    self.actions.tell(InputEnded())
                    self.node.no_more()
                case BaseException() as error:
                    raise error
            self._ask()

    # The slots

    def _heard(self, news: News) -> None:
        match news:
            case Started(task):
                self.counts.running += 1
                self._log.started(task, self.now() - news.ago_seconds)
            case Ended():
                self.counts.running -= 1
                self._ended(news)
            case Withdrawn():
                self.actions.tell(news)
            case SlotsChanged(slots, why):
                self.plan = msgspec.structs.replace(self.plan, slots=slots)
                self.actions.tell(news)
                self.actions.warn(why)
            case Woken():
                pass

    def _ended(self, ended: Ended) -> None:
        task = self.scheduler.task(ended.task)
        batch = self.batches[task.batch]
        self.counts.cpu += ended.cpu_seconds
        self._warm(batch, ended)
        is_over = isinstance(task.kind, Compare) and task.kind.over
        if is_over and self._keeps_what_was_there(ended):
            ended = msgspec.structs.replace(ended, committed=None)
        if ended.ending in (Ending.DONE, Ending.KILLED, Ending.MISPLACED):
            actions = self.scheduler.handle(ended, self.now())
        else:
            actions = [] if ended.ending is Ending.IO else self._failed(task, batch, ended)
        self._log.ended(task, batch, ended, self.now() - ended.ago_seconds, actions)
        self._strays.look(ended)
        if not is_over:
            self.said.extra(ended.extra)
        if ended.is_done and task.speaks:
            self.said.hear(ended.stderr, batch.first, batch.last)
            if ended.exit_status:
                self.said.status(ended.exit_status)
        if ended.ending is Ending.IO:
            raise not_kept(ended, self.plan)
        self.actions.do(actions)

    def _keeps_what_was_there(self, ended: Ended) -> bool:
        """Tell whether the tool wrote a backup, such as ``o~``, which it makes only where its output already exists."""
        names = tuple(os.path.basename(output.path) for output in self.plan.use.outputs if not output.stdout)
        return any(os.path.basename(path).startswith(names) for path in self.said.new(ended.extra))

    def _warm(self, batch: Batch, ended: Ended) -> None:
        self.counts.warm += ended.is_warm
        self.counts.saved += ended.saved_seconds
        if ended.ending is Ending.UNEQUAL:
            raise unequal(self.said.tool, batch, ended)
        if ended.cold and ended.cold not in self._cold:
            self._cold.add(ended.cold)
            self.actions.warn(f"{self.said.tool} cannot stay warm, and is started for each task: {ended.cold}")

    def _failed(self, task: Task, batch: Batch, ended: Ended) -> list[Action]:
        failure = failure_of(task, ended, self.plan, self.quarantine.names(batch))
        actions = self.scheduler.handle(TaskFailed(task.id, failure), self.now())
        if ended.ending is Ending.STILL and not any(isinstance(action, Quarantine | Stop) for action in actions):
            self.actions.warn(f"{self.said.tool} {failure.reason.splitlines()[0]}; ended and tried again")
        return actions

    def warmth(self) -> str:
        """Describe what warm tasks saved, or why there were none; empty: already reported, or not requested."""
        counts = self.counts
        if not counts.warm:
            new = counts.records > counts.resumed
            return NEVER_WARM if self.plan.use.warm and not self._cold and new else ""
        how = f"saved {counts.saved:.1f} s of CPU" if counts.saved > 0 else f"cost {-counts.saved:.1f} s of CPU more"
        return f"warm: {count(counts.warm, 'task')} in forks of {self.said.tool}, which {how} in all"

    def _snapshot(self) -> Snapshot:
        counts, scheduler = self.counts, self.scheduler
        # With few long batches, finished searches of fragments show that the run goes on.
        searched = int(sum(batch.bytes * scheduler.share(number) for number, batch in self.batches.items()))
        return Snapshot(
            elapsed=self.now(), slots=self.plan.slots, slots_busy=counts.running, records_done=counts.records,
            units_done=counts.units, unit=self.plan.use.cost.unit, bytes_done=counts.bytes_before + self._intake.in_files(counts.bytes + searched),
            bytes_total=self.feeder.total, records_resumed=counts.resumed,
            retries=scheduler.n_retries, quarantined=counts.quarantined, cpu=counts.cpu,
        )  # fmt: skip
