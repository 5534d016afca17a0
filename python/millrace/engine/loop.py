"""The loop of a run: carries events to the scheduler and its actions to slots, feeder and output. It decides nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import msgspec

from millrace import _core
from millrace.engine.batches import Batches
from millrace.engine.counts import Counts
from millrace.engine.failures import failure_of, named_in, not_collected, not_kept, stopped
from millrace.engine.intake import Intake
from millrace.engine.quarantine import QuarantineWriter
from millrace.engine.task_log import TaskLog
from millrace.engine.tool_messages import ToolMessages
from millrace.engine.verify import Piece, Verifier
from millrace.engine.watcher import Watcher
from millrace.ids import BatchId
from millrace.interrupt import Interrupt
from millrace.model import Snapshot
from millrace.node.agent import Slots
from millrace.node.feed import Batch, End, Feeder, Limits, Skipped, changed_files
from millrace.output.commit import GroupCommit
from millrace.output.guard import Guard, GuardedWriter
from millrace.plan.plan import Plan
from millrace.report.event_log import EventLog
from millrace.report.events import QuarantineEvent, RetryEvent, WarningEvent
from millrace.schedule.fragments import FoundBefore
from millrace.schedule.interruption import GRACE_SECONDS
from millrace.schedule.protocol import (
    Action,
    BatchCut,
    BatchDivided,
    BatchQuarantined,
    BatchSplit,
    Begun,
    Divide,
    Happened,
    InputEnded,
    Interrupted,
    Kill,
    Looked,
    LookWanted,
    Output,
    Quarantine,
    Release,
    Retry,
    Split,
    Stop,
    Submit,
    TaskFailed,
    Turn,
    Withdraw,
)
from millrace.schedule.quarantine_limit import QuarantineLimit
from millrace.schedule.scheduler import Scheduler, Settings
from millrace.tasks import Ended, Ending, News, SlotsChanged, Started, Task, Withdrawn, Woken

#: Seconds between looks at the clock while nothing happens.
TICK_SECONDS = 0.2

#: Fewest seconds between two looks at how far the run is.
SHOW_SECONDS = 0.1


@dataclass
class Engine:
    """Runs a plan to its end, an interruption, or an error.

    ``run`` returns normally only when every record is done or given up. It raises what stopped it otherwise;
    everything committed by then is in the journal.
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
    #: What an earlier run found in fragments, by the extent of the batch.
    begun_searches: FoundBefore = field(default_factory=dict)
    counts: Counts = field(default_factory=Counts)
    #: Second looks that are at work.
    _pieces: dict[BatchId, Piece] = field(default_factory=dict)
    #: Signals that the scheduler knows of.
    _n_signals: int = 0
    _shown_at: float = 0.0

    def __post_init__(self) -> None:
        use, job = self.plan.use, self.plan.job
        self.limit = QuarantineLimit(*job.quarantine_limit)
        settings = Settings(
            slots=self.plan.slots, cost=use.cost, batch_size=job.batch_size, retries=job.retries,
            stop_on_failure=job.on_failure == "stop", record_timeout_seconds=job.record_timeout,
            is_proven=self.resumes_results, is_file=self.feeder.total is not None, fragmented=use.fragmented,
            n_nodes=self.node.n_nodes, begun=self.begun_searches,
        )  # fmt: skip
        self.scheduler = Scheduler(settings, self.limit)
        self.batches = Batches(self.plan, self.feeder.inputs)
        self.said = ToolMessages(use.argv[0] if isinstance(use.argv[0], str) else "tool", self.message)
        self._intake = Intake(use.cost, self.feeder.total)
        self._log = TaskLog(self.events, self.batches.units)

    def now(self) -> float:
        return time.monotonic() - self.begun

    # The loop

    def run(self) -> None:
        """Carry messages until everything is done.

        Raises:
            MillraceError: The run cannot go on; `MillraceError.exit_code` says how it ends.
        """
        self._tell(Begun())
        while not self._is_over():
            self._notice_signals()
            self._ask()
            for news in self.node.events(TICK_SECONDS):
                self._heard(news)
            self._take_fed()
            self._tell(Turn())
            self._look_again()
            self._look_around()
        self.show(self._snapshot())
        if self._n_signals:
            raise self.interrupt.error(self.plan.run_dir)

    def _is_over(self) -> bool:
        return self.scheduler.is_done and (bool(self._n_signals) or self.verifier.done)

    def _notice_signals(self) -> None:
        while self._n_signals < min(self.interrupt.count, 2):
            if not self._n_signals:
                self.message(
                    f"{self.interrupt.name}: no more work is handed out; waiting at most {GRACE_SECONDS:.0f} s for "
                    f"{self.counts.running} running tools (again: at once)"
                )
            self._n_signals += 1
            self._tell(Interrupted())

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
                    self._tell(BatchCut(self.batches.add(batch)))
                case Skipped() as skipped:
                    self.verifier.skipped(skipped)
                    units = self.batches.units(skipped)
                    self.counts.skipped(skipped, units, self._intake.read(skipped, units))
                case End(records):
                    self.verifier.ended(records)
                    self._tell(InputEnded())
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
                self._tell(news)
            case SlotsChanged(slots, why):
                self.plan = msgspec.structs.replace(self.plan, slots=slots)
                self._tell(news)
                self._warn(why)
            case Woken():
                pass

    def _ended(self, ended: Ended) -> None:
        task = self.scheduler.task(ended.task)
        batch = self.batches[task.batch]
        self.counts.cpu += ended.cpu_seconds
        if ended.ending in (Ending.DONE, Ending.KILLED, Ending.MISPLACED):
            actions = self.scheduler.handle(ended, self.now())
        else:
            actions = [] if ended.ending is Ending.IO else self._failed(task, batch, ended)
        self._log.ended(task, batch, ended, self.now() - ended.ago_seconds, actions)
        if lost := named_in(self.plan.command.argv, ended.extra):
            raise not_collected(self.said.tool, lost)
        self.said.extra(ended.extra)
        if ended.is_done and task.speaks:
            self.said.hear(ended.stderr, batch.first, batch.last)
            if ended.exit_status:
                self.said.status(ended.exit_status)
        if ended.ending is Ending.IO:
            raise not_kept(ended, self.plan)
        self._do(actions)

    def _failed(self, task: Task, batch: Batch, ended: Ended) -> list[Action]:
        failure = failure_of(task, ended, self.plan, self.quarantine.names(batch))
        actions = self.scheduler.handle(TaskFailed(task.id, failure), self.now())
        if ended.ending is Ending.STILL and not any(isinstance(action, Quarantine | Stop) for action in actions):
            self._warn(f"{self.said.tool} {failure.reason.splitlines()[0]}; ended and tried again")
        return actions

    # Actions

    def _tell(self, event: Happened) -> None:
        self._do(self.scheduler.handle(event, self.now()))

    def _do(self, actions: Sequence[Action]) -> None:
        for action in actions:
            match action:
                case Submit(task):
                    self._submit(task)
                case Split(batch, records, reason):
                    if reason:
                        self._log_retry(self.batches[batch], f"split: {reason}")
                    self._tell(BatchSplit(batch, self.batches.split(batch, records)))
                case Divide(batch, n_parts):
                    self._tell(BatchDivided(batch, self.batches.divide(batch, n_parts)))
                case Retry(batch, reason):
                    self._log_retry(self.batches[batch], reason)
                case Output():
                    self._put(action)
                case Quarantine(batch, reason):
                    self._give_up(self.batches[batch], reason)
                    self._tell(BatchQuarantined(batch))
                case Release(batch):
                    self.batches.release(batch)
                case Looked(batch, result):
                    self.batches.pop(batch)
                    self.verifier.looked(self._pieces.pop(batch), result)
                case Withdraw():
                    for number in self.node.withdraw():
                        self._tell(Withdrawn(number))
                case Kill():
                    self.node.kill_all()
                case Stop(batch):
                    item = self.batches[batch]
                    raise stopped(
                        action, item, self.node.argv(item), self.plan.use, self.said.tool, self.limit, self.quarantine
                    )

    def _submit(self, task: Task) -> None:
        batch = self.batches[task.batch]
        if batch.files:
            inputs, cwd = self.feeder.inputs, self.plan.command.cwd
            self.guard.also(batch.first, batch.last, partial(changed_files, batch, inputs, cwd))
        self.node.submit(task, batch)

    def _put(self, output: Output) -> None:
        batch = self.batches[output.batch]
        self.stage.put(output.result)
        self.counts.done(batch, self.batches.units(batch))
        self.verifier.committed(batch, output.result, output.seconds, output.cpu_seconds)

    def _give_up(self, batch: Batch, reason: str) -> None:
        name = self.quarantine.keep(batch, self.node.argv(batch), reason)
        task = self.journal.quarantine(batch.first, batch.last, 1, list(batch.digests))
        self.verifier.given_up(batch)
        self.stage.put(task)
        self.counts.quarantined += batch.n_records
        self.counts.done(batch, self.batches.units(batch))
        self.events.write(QuarantineEvent(t=self.now(), record=batch.first, name=name, reason=reason), self.now())
        self.message(f"quarantined record {batch.first + 1} ({name}): {reason.splitlines()[0] if reason else 'failed'}")

    def _log_retry(self, batch: Batch, reason: str) -> None:
        self.events.write(RetryEvent(t=self.now(), first=batch.first, last=batch.last, reason=reason), self.now())

    def _warn(self, text: str) -> None:
        self.message(text)
        self.events.write(WarningEvent(t=self.now(), text=text), self.now())

    def _look_again(self) -> None:
        for piece in () if self._n_signals else self.verifier.take(done=self.scheduler.is_done):
            part = self.batches.add(piece.batch)
            self._pieces[part.batch] = piece
            self._tell(LookWanted(part, piece.attempt, self.verifier.is_urgent(piece)))

    def _snapshot(self) -> Snapshot:
        counts, scheduler = self.counts, self.scheduler
        # Where batches are few, each of them long, what is found shows that the run goes on.
        searched = int(sum(batch.bytes * scheduler.share(number) for number, batch in self.batches.items()))
        return Snapshot(
            elapsed=self.now(), slots=self.plan.slots, slots_busy=counts.running, records_done=counts.records,
            units_done=counts.units, unit=self.plan.use.cost.unit, bytes_done=counts.bytes + searched,
            bytes_total=self.feeder.total, records_resumed=counts.resumed,
            retries=scheduler.n_retries, quarantined=counts.quarantined, cpu=counts.cpu,
        )  # fmt: skip
