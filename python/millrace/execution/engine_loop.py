"""The loop of a run: it passes on what happens, and monitors the progress.

``ActionRunner`` reports it to the scheduler, and runs the actions. The loop measures how much of the input is read and how
much remains. A ``LoopWatcher`` monitors its progress.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

from millrace.core.tool_use import CostHint, ProgressSnapshot
from millrace.execution.action_runner import ActionRunner
from millrace.host.signals import StopSignals
from millrace.node.batch_files import BatchLimits, EndOfInput, SkippedRecords, SpooledBatch
from millrace.node.input_feeder import InputFeeder
from millrace.scheduler.protocol import RunBegun, RunInterrupted, TickEnded


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


class RunEngine(msgspec.Struct):
    """The engine that runs a plan to its end, an interruption, or an error.

    ``RunEngine.run`` returns only when every record is done or quarantined. Otherwise it raises the cause; everything committed
    by then is in the journal.
    """

    actions: ActionRunner
    feeder: InputFeeder
    #: The input that is read so far.
    meter: InputMeter
    interrupt: StopSignals
    show: Callable[[ProgressSnapshot], None]
    supervision: LoopWatcher
    #: Signals that were reported to the scheduler.
    _n_signals: int = 0
    _shown_at: float = 0.0

    # The loop

    def run(self) -> None:
        """Run the loop until everything is done.

        Raises:
            MillraceError: The run cannot go on; ``MillraceError.exit_code`` is the exit code.
        """
        self.actions.handle_event(RunBegun())
        while not self.actions.is_over(is_interrupted=self._n_signals > 0):
            self._handle_signals()
            self._request_batches()
            for news in self.actions.node.wait_for_events(TICK_SECONDS):
                self.actions.handle_slot_event(news)
            self._handle_feeder_results()
            self.actions.handle_event(TickEnded())
            if not self._n_signals:
                self.actions.request_verification()
            self._check_and_report()
        self.show(self._build_snapshot())
        if self._n_signals:
            raise self.interrupt.make_error(self.actions.plan.run_dir)
        self.actions.check_end()

    def _handle_signals(self) -> None:
        while self._n_signals < min(self.interrupt.count, 2):
            self._n_signals += 1
            self.actions.handle_event(RunInterrupted())
            if self._n_signals == 1:
                self.actions.message(
                    f"{self.interrupt.name}: no more work is handed out; waiting at most {self.actions.plan.job.tool_grace_seconds:.0f} s for "
                    f"{self.actions.counts.running} running tools (again: at once)"
                )

    def _check_and_report(self) -> None:
        self.supervision.report_progress(self.actions.counts.records)
        self.actions.write_results()
        if (now := self.actions.read_run_clock()) - self._shown_at >= MIN_SHOW_INTERVAL_SECONDS:
            self._shown_at = now
            self.show(self._build_snapshot())
            self.actions.events.flush_if_due(now)

    # The input

    def _request_batches(self) -> None:
        if ask := self.actions.scheduler.request_batches(self.meter.remaining_units):
            self.feeder.request_batches(BatchLimits(ask.records, ask.units, ask.bytes), ask.n_batches)

    def _handle_feeder_results(self) -> None:
        while self.feeder.results and not self._n_signals:
            match self.feeder.results.popleft():
                case SpooledBatch() as batch:
                    self._count_part(batch)
                    self.actions.add_batch(batch)
                case SkippedRecords() as skipped:
                    self.actions.add_skipped(skipped, self._count_part(skipped))
                case EndOfInput(records):
                    self.actions.end_input(records)
                case BaseException() as error:
                    raise error
            self._request_batches()

    def _count_part(self, part: SpooledBatch | SkippedRecords) -> int:
        """Count a part of the input as read; return its bytes in the input files."""
        return self.meter.count_part(part, self.actions.batches.count_units(part))

    def _build_snapshot(self) -> ProgressSnapshot:
        plan, counts, scheduler = self.actions.plan, self.actions.counts, self.actions.scheduler
        # With few long batches, finished searches of fragments show that the run goes on.
        searched = int(
            sum(batch.bytes * scheduler.compute_done_share(number) for number, batch in self.actions.batches.items())
        )
        return ProgressSnapshot(
            elapsed=self.actions.read_run_clock(), slots=plan.slots, slots_busy=counts.running, records_done=counts.records,
            units_done=counts.units, unit=plan.use.cost.unit, bytes_done=counts.bytes_before + self.meter.estimate_file_bytes(counts.bytes + searched),
            bytes_total=self.feeder.total, records_resumed=counts.resumed,
            retries=scheduler.n_retries, quarantined=counts.quarantined, cpu=counts.cpu,
        )  # fmt: skip
