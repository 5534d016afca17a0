"""Execution of the actions that the scheduler returns; their results are reported to it at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from millrace import _core
from millrace.engine.batches import BatchTable
from millrace.engine.counts import ProgressCounts
from millrace.engine.failures import build_stop_error
from millrace.engine.quarantine import QuarantineWriter
from millrace.engine.verify import OutputVerifier, VerificationPiece
from millrace.ids import BatchId
from millrace.node.batch import SpooledBatch
from millrace.node.feed import InputFeeder
from millrace.node.file_list import find_changed_files
from millrace.node.slots import TaskSlots
from millrace.output.guard import ChangeGuard, GuardedWriter
from millrace.plan.plan import RunPlan
from millrace.report.event_log import EventLog
from millrace.report.events import QuarantineEvent, RetryEvent, WarningEvent
from millrace.schedule.protocol import (
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
from millrace.schedule.quarantine_limit import QuarantineLimit
from millrace.schedule.scheduler import BatchScheduler
from millrace.tasks import SlotTask, TaskWithdrawn


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
    _pieces: dict[BatchId, VerificationPiece] = msgspec.field(default_factory=dict)

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
                        self.verifier.record_failure(self.batches[batch], failure)
                        self._log_retry(self.batches[batch], f"split: {failure.reason}")
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
        self.verifier.record_quarantine(batch)
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
        for piece in self.verifier.pop_ready_pieces(self.read_run_clock(), done=self.scheduler.is_done):
            part = self.batches.add_batch(piece.batch)
            self._pieces[part.batch] = piece
            self.handle_event(
                VerificationRequested(part, piece.attempt, self.verifier.is_urgent(piece), piece.way.over)
            )
