"""Execution of the actions that the scheduler returns; their results are reported to it at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from millrace import _core
from millrace.engine.batches import Batches
from millrace.engine.counts import Counts
from millrace.engine.failures import stopped
from millrace.engine.quarantine import QuarantineWriter
from millrace.engine.verify import Piece, Verifier
from millrace.ids import BatchId
from millrace.node.batch import Batch
from millrace.node.feed import Feeder
from millrace.node.file_list import changed_files
from millrace.node.slots import Slots
from millrace.output.guard import Guard, GuardedWriter
from millrace.plan.plan import Plan
from millrace.report.event_log import EventLog
from millrace.report.events import QuarantineEvent, RetryEvent, WarningEvent
from millrace.schedule.protocol import (
    Action,
    BatchDivided,
    BatchQuarantined,
    BatchSplit,
    Divide,
    Happened,
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
    Withdraw,
)
from millrace.schedule.quarantine_limit import QuarantineLimit
from millrace.schedule.scheduler import Scheduler
from millrace.tasks import Task, Withdrawn


class Actions(msgspec.Struct):
    """Runner of the scheduler's actions.

    Args:
        tool: Name of the tool in messages.
        begun: Start of the run, on the monotonic clock, in seconds.
    """

    plan: Plan
    scheduler: Scheduler
    limit: QuarantineLimit
    batches: Batches
    counts: Counts
    node: Slots
    feeder: Feeder
    stage: GuardedWriter
    guard: Guard
    journal: _core.Journal
    events: EventLog
    quarantine: QuarantineWriter
    verifier: Verifier
    message: Callable[[str], None]
    tool: str
    begun: float
    #: Pieces that are being run for comparison.
    _pieces: dict[BatchId, Piece] = msgspec.field(default_factory=dict)

    def now(self) -> float:
        """Return the seconds since the run began."""
        return time.monotonic() - self.begun

    def tell(self, event: Happened) -> None:
        """Pass an event to the scheduler, and run the actions that it returns."""
        self.do(self.scheduler.handle(event, self.now()))

    def do(self, actions: Sequence[Action]) -> None:
        """Run actions in their order; where one causes an event, handle that event before the next action.

        Raises:
            MillraceError: The run is to stop.
        """
        for action in actions:
            match action:
                case Submit(task):
                    self._submit(task)
                case Split(batch, records, failure):
                    if failure:
                        self.verifier.failed(self.batches[batch], failure)
                        self._log_retry(self.batches[batch], f"split: {failure.reason}")
                    self.tell(BatchSplit(batch, self.batches.split(batch, records)))
                case Divide(batch, n_parts):
                    self.tell(BatchDivided(batch, self.batches.divide(batch, n_parts)))
                case Retry(batch, failure):
                    self._log_retry(self.batches[batch], failure.reason)
                case Output():
                    self._put(action)
                case Quarantine(batch, failure):
                    self.guard.look()  # a missing file must not quarantine records
                    self._give_up(self.batches[batch], failure.reason)
                    self.tell(BatchQuarantined(batch))
                case Release(batch):
                    self.batches.release(batch)
                case Looked(batch, result):
                    self.batches.pop(batch)
                    self.verifier.looked(self._pieces.pop(batch), result)
                case Withdraw():
                    for number in self.node.withdraw():
                        self.tell(Withdrawn(number))
                case Kill():
                    self.node.kill_all()
                case Stop(batch):
                    self.guard.look()  # as above: a changed file is the better reason
                    item = self.batches[batch]
                    raise stopped(
                        action, item, self.node.argv(item), self.plan.use, self.tool, self.limit, self.quarantine
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
        self.message(f"quarantined record {batch.first + 1} ({name}): {reason.splitlines()[0]}")

    def _log_retry(self, batch: Batch, reason: str) -> None:
        self.events.write(RetryEvent(t=self.now(), first=batch.first, last=batch.last, reason=reason), self.now())

    def warn(self, text: str) -> None:
        """Show a warning to the user, and write it to the event log."""
        self.message(text)
        self.events.write(WarningEvent(t=self.now(), text=text), self.now())

    def look_again(self) -> None:
        """Request the tasks that the verifier wants to run for comparison."""
        for piece in self.verifier.take(self.now(), done=self.scheduler.is_done):
            part = self.batches.add(piece.batch)
            self._pieces[part.batch] = piece
            self.tell(LookWanted(part, piece.attempt, self.verifier.is_urgent(piece), piece.way.over))
