"""Runner of the actions that the scheduler returns; their results are reported to it at once.

It also counts the progress of the run, and logs its tasks as events.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from millrace import _core
from millrace.core.tasks import BatchId, SlotTask, TaskEnded, TaskEnding, TaskId, TaskWithdrawn, encode_task_kind
from millrace.execution.batch_table import BatchTable
from millrace.execution.output_verifier import OutputVerifier
from millrace.execution.quarantine_writer import QuarantineWriter
from millrace.execution.run_errors import build_stop_error
from millrace.node.batch_files import SkippedRecords, SpooledBatch, find_changed_files
from millrace.node.input_feeder import InputFeeder
from millrace.node.task_slots import TaskSlots
from millrace.output.commits import ChangeGuard, GuardedWriter
from millrace.planning.run_plan import RunPlan
from millrace.report.event_log import EventLog
from millrace.report.events import QuarantineEvent, RetryEvent, TaskEvent, WarningEvent
from millrace.scheduler.limits import QuarantineLimit
from millrace.scheduler.protocol import (
    BatchDivided,
    BatchQuarantined,
    BatchSplit,
    DivideBatch,
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
    VerificationDone,
    VerificationRequested,
    WithdrawTasks,
)
from millrace.scheduler.scheduler import BatchScheduler
from millrace.scheduler.verification import RunPiece


class ProgressCounts(msgspec.Struct):
    """Counts of completed work, including that of earlier runs."""

    records: int = 0
    units: int = 0
    #: Bytes of the records that are done in this run.
    bytes: int = 0
    #: Bytes of the input files that an earlier run has processed.
    bytes_before: int = 0
    resumed: int = 0
    quarantined: int = 0
    cpu: float = 0.0
    #: Tasks that ran in forks of a waiting tool process, and the CPU seconds that this saved.
    warm: int = 0
    saved: float = 0.0
    #: Tool processes that are running.
    running: int = 0

    def add_skipped(self, part: SkippedRecords, units: int, n_bytes: int) -> None:
        """Add records that an earlier run has done, and their ``n_bytes`` of the input files."""
        self.records += part.last - part.first
        self.resumed += part.last - part.first
        self.units += units
        self.bytes_before += n_bytes

    def add_batch(self, batch: SpooledBatch, units: int) -> None:
        """Add a batch that is done or quarantined."""
        self.records += batch.n_records
        self.units += units
        self.bytes += batch.bytes


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
                detail=ended.detail,
            ),
            at,
        )  # fmt: skip


class ActionRunner(msgspec.Struct):
    """Runner of the scheduler's actions.

    Args:
        tool: Name of the tool in messages.
        begun: Start of the run, on the monotonic clock, in seconds.
    """

    plan: RunPlan
    scheduler: BatchScheduler
    limit: QuarantineLimit
    batches: BatchTable
    counts: ProgressCounts
    node: TaskSlots
    feeder: InputFeeder
    stage: GuardedWriter
    guard: ChangeGuard
    journal: _core.Journal
    events: EventLog
    quarantine: QuarantineWriter
    verifier: OutputVerifier
    message: Callable[[str], None]
    tool: str
    begun: float
    #: Pieces that are being run for comparison.
    _pieces: dict[BatchId, RunPiece] = msgspec.field(default_factory=dict)

    def read_run_clock(self) -> float:
        """Return the seconds since the run began."""
        return time.monotonic() - self.begun

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
                        action, item, self.node.build_argv(item), self.plan.use, self.tool, self.limit, self.quarantine
                    )

    def _submit_task(self, task: SlotTask) -> None:
        batch = self.batches[task.batch]
        if batch.files:
            inputs, cwd = self.feeder.inputs, self.plan.command.cwd
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

    def request_verification(self) -> None:
        """Request the tasks that the verifier wants to run for comparison."""
        for piece, batch in self.verifier.pop_ready_pieces(self.read_run_clock(), done=self.scheduler.is_done):
            part = self.batches.add_batch(batch)
            self._pieces[part.batch] = piece
            self.handle_event(VerificationRequested(part, piece.attempt, piece.urgent, piece.over))
