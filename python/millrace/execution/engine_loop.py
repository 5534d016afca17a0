"""The loop of a run: events go to the scheduler, and the actions that it returns are run.

``ActionRunner`` runs the actions. The loop measures how much of the input is read and how much remains. A
``LoopWatcher`` monitors its progress.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Protocol

import msgspec

from millrace import _core
from millrace.core.tasks import (
    CompareTask,
    PoolWoken,
    SlotEvent,
    SlotsChanged,
    SlotTask,
    TaskEnded,
    TaskEnding,
    TaskStarted,
    TaskWithdrawn,
)
from millrace.core.text_format import format_count
from millrace.core.tool_use import CostHint, ProgressSnapshot
from millrace.execution.action_runner import ActionRunner, ProgressCounts, TaskLog
from millrace.execution.batch_table import BatchTable
from millrace.execution.output_verifier import OutputVerifier
from millrace.execution.quarantine_writer import QuarantineWriter
from millrace.execution.run_errors import ToolMessages, build_commit_error, build_failure, build_unequal_error
from millrace.execution.undeclared_outputs import UndeclaredOutputs
from millrace.host.signals import StopSignals
from millrace.node.batch_files import BatchLimits, EndOfInput, SkippedRecords, SpooledBatch
from millrace.node.input_feeder import InputFeeder
from millrace.node.task_slots import TaskSlots
from millrace.output.commits import ChangeGuard, GroupCommit, GuardedWriter
from millrace.planning.run_plan import RunPlan
from millrace.report.event_log import EventLog
from millrace.scheduler.fragment_search import EarlierCandidates
from millrace.scheduler.limits import QuarantineLimit
from millrace.scheduler.protocol import (
    GRACE_SECONDS,
    BatchCut,
    InputEnded,
    QuarantineBatch,
    RunBegun,
    RunInterrupted,
    SchedulerAction,
    StopRun,
    TaskFailed,
    TickEnded,
)
from millrace.scheduler.scheduler import BatchScheduler, SchedulerSettings


class LoopWatcher(Protocol):
    """Monitor that treats a loop without progress as hung; see ``millrace.launch.supervisor_link.SupervisorLink``."""

    def report_progress(self, records: int) -> None:
        """Report that the loop has completed a cycle, and how many records are done."""


#: Fewest units per byte, assumed before anything is read: the rest may be names and qualities.
MIN_UNITS_PER_BYTE = 0.4


class InputMeter:
    """Counts of the input that is read.

    Args:
        hint: Defines the cost units.
        total: Bytes of the input files; None: unknown, as the input is a pipe.
        slots: Number of tasks that run side by side.
    """

    def __init__(self, hint: CostHint, total: int | None, slots: int) -> None:
        self._hint, self._total = hint, total
        # Where earlier runs tell the cost, first batches are as large as possible: assume few units, so that one of
        # several slots does not get too much.
        self._units_at_first = MIN_UNITS_PER_BYTE if hint.learnt and slots > 1 else 1.0
        #: Bytes of the input files that are read.
        self.offset = 0
        self._units = 0
        #: Bytes of the records that are cut, and of their part of the input files: less if compressed,
        #: more with a header.
        self._bytes = self._in_files = 0

    def count_part(self, part: SpooledBatch | SkippedRecords, units: int) -> int:
        """Count a part of ``units`` units as read; return its bytes in the input files."""
        n_bytes, self.offset = part.offset - self.offset, part.offset
        self._units += units
        if isinstance(part, SpooledBatch):
            self._bytes += part.bytes
            self._in_files += n_bytes
        return n_bytes

    def estimate_file_bytes(self, n_bytes: int) -> int:
        """Estimate the bytes of the input files that hold ``n_bytes`` of records."""
        return n_bytes * self._in_files // self._bytes if self._bytes else 0

    @property
    def remaining_units(self) -> float | None:
        """Return the units not yet cut; None: unknown.

        They are counted before the run, or estimated from the unread bytes and the units per byte so far.
        """
        if self._units < self._hint.units and (self._hint.counted or not self.offset):
            return float(self._hint.units - self._units)
        if self._total is None:
            return None
        left = max(self._total - self.offset, 0)
        if not self.offset:
            return (
                None if self._hint.unit == "records" else left * self._units_at_first
            )  # a unit is a byte, or about that
        return left * (self._units / self.offset)


#: Longest wait for events, in seconds.
TICK_SECONDS = 0.2

#: Shortest interval between two updates of the progress display, in seconds.
MIN_SHOW_INTERVAL_SECONDS = 0.1

#: Message for ``--warm`` with few tasks.
NEVER_WARM = (
    "warm: no task ran in a fork alone, as the first ones are compared; smaller batches make more tasks: --batch N"
)


class RunEngine(msgspec.Struct, dict=True):
    """The engine that runs a plan to its end, an interruption, or an error.

    ``RunEngine.run`` returns only when every record is done or quarantined. Otherwise it raises the cause; everything committed
    by then is in the journal.
    """

    plan: RunPlan
    node: TaskSlots
    feeder: InputFeeder
    stage: GuardedWriter
    guard: ChangeGuard
    journal: _core.Journal
    commit: GroupCommit
    events: EventLog
    interrupt: StopSignals
    show: Callable[[ProgressSnapshot], None]
    message: Callable[[str], None]
    quarantine: QuarantineWriter
    verifier: OutputVerifier
    supervision: LoopWatcher
    begun: float
    #: Whether an earlier run of the same command had results.
    resumes_results: bool = False
    #: Candidates that an earlier run found in fragments, by the extent of the batch.
    begun_searches: EarlierCandidates = msgspec.field(default_factory=dict)
    counts: ProgressCounts = msgspec.field(default_factory=ProgressCounts)
    #: Signals that were reported to the scheduler.
    _n_signals: int = 0
    _shown_at: float = 0.0
    #: Reasons why tasks do not run warm that were already reported.
    _cold: set[str] = msgspec.field(default_factory=set)

    def __post_init__(self) -> None:
        use, job = self.plan.use, self.plan.job
        self.limit = QuarantineLimit(*job.quarantine_limit)
        settings = SchedulerSettings(
            slots=self.plan.slots, cost=use.cost, batch_size=job.batch_size, retries=job.retries,
            stop_on_failure=job.on_failure == "stop", record_timeout_seconds=job.record_timeout,
            is_proven=self.resumes_results, is_file=self.feeder.total is not None, fragmented=use.fragmented,
            n_nodes=self.node.n_nodes, begun=self.begun_searches,
        )  # fmt: skip
        self.batches = BatchTable(self.plan, self.feeder.inputs)
        self.said = ToolMessages(use.argv[0] if isinstance(use.argv[0], str) else "tool", self.message)
        self._strays = UndeclaredOutputs(self.plan.command, use, self.said.tool)
        self._intake = InputMeter(use.cost, self.feeder.total, self.plan.slots)
        self._log = TaskLog(self.events, self.batches.count_units)
        self.actions = ActionRunner(
            plan=self.plan, scheduler=BatchScheduler(settings, self.limit), limit=self.limit, batches=self.batches,
            counts=self.counts, node=self.node, feeder=self.feeder, stage=self.stage, guard=self.guard,
            journal=self.journal, events=self.events, quarantine=self.quarantine, verifier=self.verifier,
            message=self.message, tool=self.said.tool, begun=self.begun,
        )  # fmt: skip

    @property
    def scheduler(self) -> BatchScheduler:
        return self.actions.scheduler

    def read_run_clock(self) -> float:
        """Return the seconds since the run began."""
        return self.actions.read_run_clock()

    # The loop

    def run(self) -> None:
        """Run the loop until everything is done.

        Raises:
            MillraceError: The run cannot go on; ``MillraceError.exit_code`` is the exit code.
        """
        self.actions.handle_event(RunBegun())
        while not self._is_over():
            self._handle_signals()
            self._request_batches()
            for news in self.node.wait_for_events(TICK_SECONDS):
                self._handle_slot_event(news)
            self._handle_feeder_results()
            self.actions.handle_event(TickEnded())
            if not self._n_signals:
                self.actions.request_verification()
            self._check_and_report()
        self.show(self._build_snapshot())
        if self._n_signals:
            raise self.interrupt.make_error(self.plan.run_dir)
        if not self.counts.resumed:
            self._strays.check_all_tasks()

    def _is_over(self) -> bool:
        return self.scheduler.is_done and (bool(self._n_signals) or self.verifier.decisions.is_done)

    def _handle_signals(self) -> None:
        while self._n_signals < min(self.interrupt.count, 2):
            self._n_signals += 1
            self.actions.handle_event(RunInterrupted())
            if self._n_signals == 1:
                self.message(
                    f"{self.interrupt.name}: no more work is handed out; waiting at most {GRACE_SECONDS:.0f} s for "
                    f"{self.counts.running} running tools (again: at once)"
                )

    def _check_and_report(self) -> None:
        self.supervision.report_progress(self.counts.records)
        self.stage.write_checked_tasks()
        for error in (self.stage.error, self.commit.error, self.verifier.error):
            if error:
                raise error
        if (now := self.read_run_clock()) - self._shown_at >= MIN_SHOW_INTERVAL_SECONDS:
            self._shown_at = now
            self.show(self._build_snapshot())

    # The input

    def _request_batches(self) -> None:
        if ask := self.scheduler.request_batches(self._intake.remaining_units):
            self.feeder.request_batches(BatchLimits(ask.records, ask.units, ask.bytes), ask.n_batches)

    def _handle_feeder_results(self) -> None:
        while self.feeder.results and not self._n_signals:
            match self.feeder.results.popleft():
                case SpooledBatch() as batch:
                    self.verifier.decisions.add_batch(batch.first, batch.last)
                    self._intake.count_part(batch, self.batches.count_units(batch))
                    self.actions.handle_event(BatchCut(self.batches.add_batch(batch)))
                case SkippedRecords() as skipped:
                    self.verifier.add_skipped(skipped)
                    units = self.batches.count_units(skipped)
                    self.counts.add_skipped(skipped, units, self._intake.count_part(skipped, units))
                case EndOfInput(records):
                    self.verifier.decisions.end_input(records)
                    self.actions.handle_event(InputEnded())
                    self.node.end_input()
                case BaseException() as error:
                    raise error
            self._request_batches()

    # The slots

    def _handle_slot_event(self, news: SlotEvent) -> None:
        match news:
            case TaskStarted(task):
                self.counts.running += 1
                self._log.record_start(task, self.read_run_clock() - news.ago_seconds)
            case TaskEnded():
                self.counts.running -= 1
                self._handle_task_end(news)
            case TaskWithdrawn():
                self.actions.handle_event(news)
            case SlotsChanged(slots, why):
                self.plan = msgspec.structs.replace(self.plan, slots=slots)
                self.actions.handle_event(news)
                self.actions.warn_user(why)
            case PoolWoken():
                pass

    def _handle_task_end(self, ended: TaskEnded) -> None:
        task = self.scheduler.get_task(ended.task)
        batch = self.batches[task.batch]
        self.counts.cpu += ended.cpu_seconds
        self._count_warm_task(batch, ended)
        is_over = isinstance(task.kind, CompareTask) and task.kind.over
        if is_over and self._has_made_backup(ended):
            ended = msgspec.structs.replace(ended, committed=None)
        if ended.ending in (TaskEnding.DONE, TaskEnding.KILLED, TaskEnding.MISPLACED):
            actions = self.scheduler.handle(ended, self.read_run_clock())
        else:
            actions = [] if ended.ending is TaskEnding.IO else self._handle_failure(task, batch, ended)
        self._log.record_end(task, batch, ended, self.read_run_clock() - ended.ago_seconds, actions)
        self._strays.check_task(ended)
        if not is_over:
            self.said.report_extra_files(ended.extra)
        if ended.is_done and task.should_show_stderr:
            self.said.add_stderr(ended.stderr, batch.first, batch.last)
            if ended.exit_status:
                self.said.add_exit_status(ended.exit_status)
        if ended.ending is TaskEnding.IO:
            raise build_commit_error(ended, self.plan)
        self.actions.run_actions(actions)

    def _has_made_backup(self, ended: TaskEnded) -> bool:
        """Tell whether the tool wrote a backup, such as ``o~``, which it makes only where its output already exists."""
        names = tuple(os.path.basename(output.path) for output in self.plan.use.outputs if not output.stdout)
        return any(os.path.basename(path).startswith(names) for path in self.said.select_new_paths(ended.extra))

    def _count_warm_task(self, batch: SpooledBatch, ended: TaskEnded) -> None:
        self.counts.warm += ended.is_warm
        self.counts.saved += ended.saved_seconds
        if ended.ending is TaskEnding.UNEQUAL:
            raise build_unequal_error(self.said.tool, batch, ended)
        if ended.cold and ended.cold not in self._cold:
            self._cold.add(ended.cold)
            self.actions.warn_user(f"{self.said.tool} cannot stay warm, and is started for each task: {ended.cold}")

    def _handle_failure(self, task: SlotTask, batch: SpooledBatch, ended: TaskEnded) -> list[SchedulerAction]:
        failure = build_failure(task, ended, self.plan, self.quarantine.read_record_names(batch))
        actions = self.scheduler.handle(TaskFailed(task.id, failure), self.read_run_clock())
        if ended.ending is TaskEnding.STALLED and not any(
            isinstance(action, QuarantineBatch | StopRun) for action in actions
        ):
            self.actions.warn_user(f"{self.said.tool} {failure.reason.splitlines()[0]}; ended and tried again")
        return actions

    def describe_warm_savings(self) -> str:
        """Describe what warm tasks saved, or why there were none; empty: already reported, or not requested."""
        counts = self.counts
        if not counts.warm:
            new = counts.records > counts.resumed
            return NEVER_WARM if self.plan.use.warm and not self._cold and new else ""
        how = f"saved {counts.saved:.1f} s of CPU" if counts.saved > 0 else f"cost {-counts.saved:.1f} s of CPU more"
        return f"warm: {format_count(counts.warm, 'task')} in forks of {self.said.tool}, which {how} in all"

    def _build_snapshot(self) -> ProgressSnapshot:
        counts, scheduler = self.counts, self.scheduler
        # With few long batches, finished searches of fragments show that the run goes on.
        searched = int(
            sum(batch.bytes * scheduler.compute_done_share(number) for number, batch in self.batches.items())
        )
        return ProgressSnapshot(
            elapsed=self.read_run_clock(), slots=self.plan.slots, slots_busy=counts.running, records_done=counts.records,
            units_done=counts.units, unit=self.plan.use.cost.unit, bytes_done=counts.bytes_before + self._intake.estimate_file_bytes(counts.bytes + searched),
            bytes_total=self.feeder.total, records_resumed=counts.resumed,
            retries=scheduler.n_retries, quarantined=counts.quarantined, cpu=counts.cpu,
        )  # fmt: skip
