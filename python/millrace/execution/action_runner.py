"""Runner of the actions that the scheduler returns; their results are reported to it at once.

All that happens to a run reaches the scheduler here. The progress of the run is counted, and its tasks are logged.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from millrace import _core
from millrace.core.tasks import (
    BatchId,
    CompareTask,
    PoolWoken,
    SlotEvent,
    SlotsChanged,
    SlotTask,
    TaskEnded,
    TaskEnding,
    TaskId,
    TaskStarted,
    TaskWithdrawn,
    encode_task_kind,
)
from millrace.execution.batch_table import BatchTable, ProgressCounts
from millrace.execution.output_verifier import OutputVerifier
from millrace.execution.quarantine_writer import QuarantineWriter
from millrace.execution.run_errors import (
    ToolMessages,
    build_commit_error,
    build_failure,
    build_stop_error,
    build_unequal_error,
)
from millrace.execution.undeclared_outputs import UndeclaredOutputs
from millrace.host import debug_log
from millrace.node.batch_files import SkippedRecords, SpooledBatch, find_changed_files
from millrace.node.task_slots import Executor
from millrace.output.commits import ChangeGuard, GroupCommit, GuardedWriter
from millrace.planning.run_plan import RunPlan
from millrace.report.event_log import EventLog
from millrace.report.events import QuarantineEvent, RetryEvent, SlotsEvent, TaskEvent, WarningEvent
from millrace.scheduler.limits import QuarantineLimit
from millrace.scheduler.protocol import (
    BatchCut,
    BatchDivided,
    BatchQuarantined,
    BatchSplit,
    DivideBatch,
    InputEnded,
    KillTasks,
    OutputBatch,
    QuarantineBatch,
    ReleaseBatch,
    ReportRetry,
    SchedulerAction,
    SchedulerEvent,
    SplitBatch,
    StopRun,
    SubmitTask,
    TaskFailed,
    VerificationDone,
    VerificationRequested,
    WithdrawTasks,
)
from millrace.scheduler.scheduler import BatchScheduler
from millrace.scheduler.verification import RunPiece

if TYPE_CHECKING:
    from millrace.core.tasks import FileProfile
    from millrace.report.io_profile import FileTally

#: Endings that are logged under their own name; all others are logged as failures.
TOLD_AS_THEY_ARE = (TaskEnding.DONE, TaskEnding.TIMEOUT, TaskEnding.KILLED, TaskEnding.MISPLACED)


class TaskLog:
    """A writer of one event for each task that ended.

    Args:
        units_of: Cost units of a batch.
    """

    def __init__(self, events: EventLog, units_of: Callable[[SpooledBatch], int]) -> None:
        self._events, self._units_of = events, units_of
        self._started: dict[TaskId, float] = {}
        self._files: FileTally | None = None

    def record_start(self, task: TaskId, at: float) -> None:
        """Record that a slot has started a task, ``at`` seconds after the start of the run."""
        self._started[task] = at

    def record_end(
        self, task: SlotTask, batch: SpooledBatch, ended: TaskEnded, at: float, actions: Sequence[SchedulerAction]
    ) -> None:
        """Write the event of a task that ended.

        Args:
            actions: The scheduler's actions for it.
        """
        if ended.files:
            self._add_files(ended.files)
        status = ended.ending.value if ended.ending in TOLD_AS_THEY_ARE else "failed"
        if ended.is_done and any(isinstance(action, VerificationDone) for action in actions):
            status = "verified"
        is_result = any(isinstance(action, OutputBatch) for action in actions)
        written = sum(block.length for block in ended.committed.blocks) if ended.committed else 0
        self._events.write(
            TaskEvent(
                t=at, start=self._started.pop(task.id, 0.0), slot=ended.slot, first=batch.first, last=batch.last,
                units=self._units_of(batch), bytes=batch.bytes, cpu=ended.cpu_seconds, rss=ended.peak_rss_bytes,
                out=written, attempt=task.attempt, fragment=0 if is_result else encode_task_kind(task.kind), status=status,
                detail=ended.detail, io=ended.io or msgspec.UNSET,
            ),
            at,
        )  # fmt: skip

    def _add_files(self, profile: FileProfile) -> None:
        if not self._files:
            from millrace.report.io_profile import FileTally  # few runs need it

            self._files = FileTally()
            self._events.add_totals(self._files.make_event)
        self._files.add_profile(profile)


class ActionRunner(msgspec.Struct, dict=True):
    """Runner of the scheduler's actions.

    It alone reaches the scheduler, the batches, the results and the verifier. ``RunEngine`` reports to it.

    Args:
        begun: Start of the run, on the monotonic clock, in seconds.
    """

    plan: RunPlan
    scheduler: BatchScheduler
    limit: QuarantineLimit
    node: Executor
    stage: GuardedWriter
    guard: ChangeGuard
    journal: _core.Journal
    commit: GroupCommit
    events: EventLog
    quarantine: QuarantineWriter
    verifier: OutputVerifier
    message: Callable[[str], None]
    begun: float
    counts: ProgressCounts = msgspec.field(default_factory=ProgressCounts)
    #: Pieces that are being run for comparison.
    _pieces: dict[BatchId, RunPiece] = msgspec.field(default_factory=dict)
    #: Warnings that each are shown once.
    _warned: set[str] = msgspec.field(default_factory=set)

    def __post_init__(self) -> None:
        use = self.plan.use
        self.batches = BatchTable(self.plan)
        self.said = ToolMessages(use.argv[0] if isinstance(use.argv[0], str) else "tool", self.message)
        self._strays = UndeclaredOutputs(self.plan.command, use, self.said.tool)
        self._log = TaskLog(self.events, self.batches.count_units)
        self.events = debug_log.log_calls(self.events, "event", ("write",))

    def is_over(self, *, is_interrupted: bool) -> bool:
        """Tell whether all batches are done and verified; after an interrupt, whether no task runs any more."""
        return self.scheduler.is_done and (is_interrupted or self.verifier.decisions.is_done)

    def write_results(self) -> None:
        """Write the results that are checked to the outputs.

        Raises:
            MillraceError: Results cannot be written or committed, or the verifier found other bytes.
        """
        self.stage.write_checked_tasks()
        for error in (self.stage.error, self.commit.error, self.verifier.error):
            if error:
                raise error

    def check_end(self) -> None:
        """Check the files of all tasks, at the end of the run.

        Raises:
            LostOutputError: The tasks wrote only files that were not kept.
        """
        if not self.counts.resumed:
            self._strays.check_all_tasks()

    def read_run_clock(self) -> float:
        """Return the seconds since the run began."""
        return time.monotonic() - self.begun

    # The input

    def add_batch(self, batch: SpooledBatch) -> None:
        """Add a batch that was cut."""
        self.verifier.decisions.add_batch(batch.first, batch.last)
        self.handle_event(BatchCut(self.batches.add_batch(batch)))

    def add_skipped(self, skipped: SkippedRecords, n_bytes: int) -> None:
        """Add records that an earlier run has done, and their ``n_bytes`` of the input files."""
        self.verifier.add_skipped(skipped)
        self.counts.add_skipped(skipped, self.batches.count_units(skipped), n_bytes)

    def end_input(self, records: int) -> None:
        """Report that all ``records`` of the input are cut."""
        self.verifier.decisions.end_input(records)
        self.handle_event(InputEnded())
        self.node.end_input()

    # Actions

    def handle_event(self, event: SchedulerEvent) -> None:
        """Pass an event to the scheduler, and run the actions that it returns."""
        self.run_actions(self.scheduler.handle(event, self.read_run_clock()))

    def run_actions(self, actions: Sequence[SchedulerAction]) -> None:
        """Run actions in their order; where one causes an event, handle that event before the next action.

        Raises:
            MillraceError: The run is to stop.
        """
        for action in actions:
            match action:
                case SubmitTask(task):
                    self._submit_task(task)
                case SplitBatch(batch, records, failure):
                    if failure:
                        whole = self.batches[batch]
                        self.verifier.decisions.record_failure(whole.first, whole.last, failure)
                        self._log_retry(whole, f"split: {failure.reason}")
                    self.handle_event(BatchSplit(batch, self.batches.split_batch(batch, records)))
                case DivideBatch(batch, n_parts):
                    self.handle_event(BatchDivided(batch, self.batches.divide_batch(batch, n_parts)))
                case ReportRetry(batch, failure):
                    self._log_retry(self.batches[batch], failure.reason)
                case OutputBatch():
                    self._stage_output(action)
                case QuarantineBatch(batch, failure):
                    self.guard.check_unchanged()  # a missing file must not quarantine records
                    self._quarantine_record(self.batches[batch], failure.reason)
                    self.handle_event(BatchQuarantined(batch))
                case ReleaseBatch(batch):
                    self.batches.release_batch(batch)
                case VerificationDone(batch, result):
                    self.batches.pop(batch)
                    self.verifier.finish_piece(self._pieces.pop(batch), result)
                case WithdrawTasks():
                    for number in self.node.withdraw_tasks():
                        self.handle_event(TaskWithdrawn(number))
                case KillTasks():
                    self.node.kill_all()
                case StopRun(batch):
                    self.guard.check_unchanged()  # as above: a changed file is the better reason
                    item = self.batches[batch]
                    raise build_stop_error(
                        action, item, self.node.build_argv(item), self.plan.use, self.said.tool, self.limit, self.quarantine
                    )  # fmt: skip

    def _submit_task(self, task: SlotTask) -> None:
        batch = self.batches[task.batch]
        if batch.files:
            inputs, cwd = self.plan.use.inputs, self.plan.command.cwd
            self.guard.add_check(batch.first, batch.last, partial(find_changed_files, batch, inputs, cwd))
        self.node.submit_task(task, batch)

    def _stage_output(self, output: OutputBatch) -> None:
        batch = self.batches[output.batch]
        self.stage.add_task(output.result)
        self.counts.add_batch(batch, self.batches.count_units(batch))
        self.verifier.add_committed(batch, output.result, output.seconds, output.cpu_seconds)

    def _quarantine_record(self, batch: SpooledBatch, reason: str) -> None:
        name = self.quarantine.write_record(batch, self.node.build_argv(batch), reason)
        task = self.journal.quarantine(batch.first, batch.last, 1, list(batch.digests))
        self.verifier.decisions.record_quarantine(batch.first, batch.last)
        self.stage.add_task(task)
        self.counts.quarantined += batch.n_records
        self.counts.add_batch(batch, self.batches.count_units(batch))
        self.events.write(
            QuarantineEvent(t=self.read_run_clock(), record=batch.first, name=name, reason=reason),
            self.read_run_clock(),
        )
        self.message(f"quarantined record {batch.first + 1} ({name}): {reason.splitlines()[0]}")

    def _log_retry(self, batch: SpooledBatch, reason: str) -> None:
        self.events.write(
            RetryEvent(t=self.read_run_clock(), first=batch.first, last=batch.last, reason=reason),
            self.read_run_clock(),
        )

    def warn_user(self, text: str) -> None:
        """Show a warning to the user, and write it to the event log."""
        self.message(text)
        self.events.write(WarningEvent(t=self.read_run_clock(), text=text), self.read_run_clock())

    def _warn_once(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            self.warn_user(text)

    def request_verification(self) -> None:
        """Request the tasks that the verifier wants to run for comparison."""
        for piece, batch in self.verifier.pop_ready_pieces(self.read_run_clock(), done=self.scheduler.is_done):
            part = self.batches.add_batch(batch)
            self._pieces[part.batch] = piece
            self.handle_event(VerificationRequested(part, piece.attempt, piece.urgent, piece.kind))

    # The slots

    def handle_slot_event(self, news: SlotEvent) -> None:
        """Handle a report of the slots."""
        match news:
            case TaskStarted(task):
                self.counts.running += 1
                self._log.record_start(task, self.read_run_clock() - news.ago_seconds)
            case TaskEnded():
                self.counts.running -= 1
                self._handle_task_end(news)
            case TaskWithdrawn():
                self.handle_event(news)
            case SlotsChanged(slots, why):
                if slots != self.plan.slots:
                    self.events.write(SlotsEvent(t=self.read_run_clock(), slots=slots), self.read_run_clock())
                self.plan = msgspec.structs.replace(self.plan, slots=slots)
                self.handle_event(news)
                self.warn_user(why)
            case PoolWoken():
                pass

    def _handle_task_end(self, ended: TaskEnded) -> None:
        task = self.scheduler.get_task(ended.task)
        batch = self.batches[task.batch]
        self.counts.cpu += ended.cpu_seconds
        self._count_warm_task(batch, ended)
        self._check_profile(ended)
        is_over = isinstance(task.kind, CompareTask) and task.kind.over
        if is_over and self._strays.include_backup(self.said.select_new_paths(ended.extra)):
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
        self.run_actions(actions)

    def _count_warm_task(self, batch: SpooledBatch, ended: TaskEnded) -> None:
        self.counts.warm += ended.is_warm
        self.counts.saved += ended.saved_seconds
        if ended.ending is TaskEnding.UNEQUAL:
            raise build_unequal_error(self.said.tool, batch, ended)
        if ended.cold:
            self.counts.cold += 1
            self._warn_once(f"{self.said.tool} cannot stay warm, and is started for each task: {ended.cold}")

    def _check_profile(self, ended: TaskEnded) -> None:
        """Warn of what a profile of files cannot see."""
        if ended.files and ended.is_done:
            from millrace.report.io_profile import describe_uncounted_calls  # few runs need it

            if why := describe_uncounted_calls(self.said.tool, ended.files):
                self._warn_once(why)

    def _handle_failure(self, task: SlotTask, batch: SpooledBatch, ended: TaskEnded) -> list[SchedulerAction]:
        failure = build_failure(task, ended, self.plan, self.quarantine.read_record_names(batch))
        actions = self.scheduler.handle(TaskFailed(task.id, failure), self.read_run_clock())
        if ended.ending is TaskEnding.STALLED and not any(
            isinstance(action, QuarantineBatch | StopRun) for action in actions
        ):
            self.warn_user(f"{self.said.tool} {failure.reason.splitlines()[0]}; ended and tried again")
        return actions
