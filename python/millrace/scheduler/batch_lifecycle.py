"""The life of each batch: which one runs next, is retried, split or quarantined. Pure: no clock, file or process."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Sequence
from enum import Enum

import msgspec

from millrace.core.tasks import BatchId
from millrace.scheduler.cut_planner import CutPlanner
from millrace.scheduler.limits import QuarantineLimit
from millrace.scheduler.protocol import (
    AttemptResult,
    BatchExtent,
    CutBatches,
    QuarantineBatch,
    ReleaseBatch,
    SplitBatch,
    StopReason,
    StopRun,
    TaskFailure,
)


class RunBatch(msgspec.Struct, frozen=True):
    """Start an attempt at a batch; ``urgent``: before those that wait."""

    batch: BatchId
    attempt: int
    urgent: bool = False
    #: It must run alone on its node.
    alone: bool = False


#: The next step for a batch.
BatchStep = RunBatch | SplitBatch | QuarantineBatch | ReleaseBatch | StopRun


class _BatchState(Enum):
    #: Cut, and not yet submitted.
    READY = 1
    #: Submitted: at a slot, or in the queue before it.
    RUNNING = 2
    #: Failed, and held until it is known whether the tool works at all.
    HELD = 3


class _LiveBatch(msgspec.Struct):
    records: int
    units: int
    attempt: int = 0
    state: _BatchState = _BatchState.READY
    #: No more retries as a whole: it is being split down to the culprit record.
    suspect: bool = False
    #: Its last failure, or that of the batch from which it was cut.
    failure: TaskFailure | None = None
    #: How often memory ran out for it.
    starved: int = 0


#: The tool does not work if this many single records fail alike and none succeeds. Records without any units do not
#: count: a working tool may fail on each of them.
MIN_FAILURES_TO_BLAME_TOOL = 3

#: The same for records that fail in different ways: a message may contain something random.
MIN_MIXED_FAILURES_TO_BLAME_TOOL = 10

#: A file with at most this many units (about bytes) left is cut within a few milliseconds.
MAX_GATHERED_UNITS = 1 << 20

#: A batch runs alone after memory ran out for it this often.
MAX_SHARED_OUT_OF_MEMORY = 2

#: Memory, not the records, is the reason if it is too small for this many records, and for more than are done.
MAX_ALONE_OUT_OF_MEMORY = 10


def _get_failure_kind(failure: TaskFailure) -> tuple[AttemptResult, str]:
    """Return the key that failures of one kind share."""
    return failure.result, failure.signature


class BatchLifecycle:
    """Decides for each batch, from the time when it is cut until it is done or quarantined.

    Near the end all that is left is cut, and the largest batch goes first: a long record that starts last ends last.
    Source: R. L. Graham, Bounds on multiprocessing timing anomalies, SIAM J. Appl. Math. 17(2), 1969 (largest
    processing time first).

    Args:
        cutting: Decides which batches are asked for.
        retries: Further attempts at a failing batch before it is split, and at a single record.
        stop_on_failure: Stop the run at the first record that would be quarantined.
        proven: The tool is known to work: a record was done before.
        limit: How many records may be quarantined.
    """

    def __init__(
        self, cutting: CutPlanner, retries: int = 1, *, stop_on_failure: bool = False, proven: bool = False,
        limit: QuarantineLimit | None = None,
    ) -> None:  # fmt: skip
        self.cutting, self.retries, self.stop_on_failure, self.proven = cutting, retries, stop_on_failure, proven
        self.limit = limit or QuarantineLimit()
        self._batches: dict[BatchId, _LiveBatch] = {}
        self._held: deque[BatchId] = deque()
        #: Batches that wait to be submitted: a heap of (-units, batch).
        self._ready: list[tuple[int, BatchId]] = []
        #: Whether so little is left that batches wait until all of it is cut, so that the largest goes first.
        self._gathers = False
        #: Single records that failed while nothing had succeeded, with their failures.
        self._witnesses: dict[BatchId, TaskFailure] = {}
        #: Number of single records for which memory is too small.
        self._starved = 0

    @property
    def is_done(self) -> bool:
        """Whether all of the input was cut and every batch is done or quarantined."""
        return self.cutting.ended and not self._batches and not self.cutting.asked

    # Batches

    def request_batches(self, remaining: float | None, *, several: bool = False) -> CutBatches | None:
        """One more batch to cut, or several; None if enough are ready. See ``CutPlanner``.

        Args:
            several: The input is a file, of which the next batches are there in a moment.
        """
        if not self._held:
            here = len(self._batches)
            if not self.cutting.should_cut(remaining, here):
                return None
            self._gathers = several and remaining is not None and remaining <= MAX_GATHERED_UNITS
            return self.cutting.request_batches(remaining, here, several=several)
        if any(batch not in self._witnesses for batch in self._batches):
            return None
        # Everything so far has failed: one more record may show whether anything works.
        return None if self.cutting.ended or self.cutting.asked else self.cutting.request_one_record()

    def add_cut_batch(self, part: BatchExtent, *, stays_whole: bool = False) -> list[BatchStep]:
        """Add a batch that was asked for.

        Args:
            stays_whole: It must not be split for its size.
        """
        self.cutting.count_arrival(part.units)
        batch, records = part.batch, part.records
        self._batches[batch] = _LiveBatch(records, part.units)
        if self._held:
            self._hold_batch(batch)
            return self._decide_if_tool_works()
        if records > 1 and self.cutting.is_far_longer(part.units) and not stays_whole:
            return [SplitBatch(batch, records - 1)]  # the last record is the long one
        return self._queue_batches([batch])

    def _queue_batches(self, batches: Iterable[BatchId]) -> list[BatchStep]:
        """Run batches of one very long record at once, and queue the others."""
        steps: list[BatchStep] = []
        for batch in batches:
            item = self._batches[batch]
            if item.records == 1 and self.cutting.is_far_longer(item.units):
                steps.append(self._start_attempt(batch, urgent=True))
            else:
                heapq.heappush(self._ready, (-item.units, batch))
        return steps if self._gathers else steps + self._start_ready_batches()

    def end_tick(self) -> list[BatchStep]:
        """Start batches that waited for one that does not come any more. Call it after all other events."""
        return [] if self._gathers and self.cutting.asked else self._start_ready_batches()

    def _start_ready_batches(self) -> list[BatchStep]:
        """Submit ready batches to the slots and their queues, the largest first."""
        steps: list[BatchStep] = []
        while self._ready and len(self._batches) - len(self._ready) < self.cutting.max_batches + len(self._held):
            steps.append(self._start_attempt(heapq.heappop(self._ready)[1]))
        return steps

    def end_input(self) -> list[BatchStep]:
        """Note that no more batches can be cut."""
        self.cutting.end_input()
        return self._decide_if_tool_works()

    def replace_split_batch(self, whole: BatchId, parts: Sequence[BatchExtent]) -> list[BatchStep]:
        """Replace ``whole``, which was split, by ``parts``."""
        item = self._batches.pop(whole)
        fresh = item.state is _BatchState.READY
        for part in parts:
            self._batches[part.batch] = _LiveBatch(part.records, part.units, suspect=not fresh, failure=item.failure)
        if fresh:
            return self._queue_batches(part.batch for part in parts)
        if self.proven:
            return [self._start_attempt(part.batch, urgent=True) for part in parts]
        # The first record alone tests the tool; the rest waits for its result.
        for part in parts[1:]:
            self._hold_batch(part.batch)
        return [self._start_attempt(parts[0].batch, urgent=True)]

    def replace_divided_batch(self, whole: BatchId, parts: Sequence[BatchExtent]) -> None:
        """Replace ``whole``, which is in progress, by ``parts`` in the same state."""
        item = self._batches.pop(whole)
        for part in parts:
            self._batches[part.batch] = _LiveBatch(
                part.records, part.units, item.attempt, item.state, item.suspect, item.failure
            )

    # Results

    def finish_attempt(self, batch: BatchId, seconds: float | None) -> list[BatchStep]:
        """Release a batch whose attempt gave the result, and learn from its time.

        Args:
            seconds: Wall time of the attempt, for the cost model; None: unknown.
        """
        item = self._batches.pop(batch)
        self._witnesses.pop(batch, None)
        self.limit.count_done(item.records)
        if seconds is not None:
            self.cutting.cost.observe_task(item.units, seconds, item.records)
        return [ReleaseBatch(batch), *self._mark_tool_as_working(), *self._start_ready_batches()]

    def fail_attempt(self, batch: BatchId, failure: TaskFailure) -> list[BatchStep]:
        """Retry, split or hold a batch whose attempt gave no result, or stop the run."""
        item, result = self._batches[batch], failure.result
        item.failure = failure
        if result.is_tool_failure:
            return [StopRun(batch, StopReason.TOOL, failure)]
        if result in (AttemptResult.OUT_OF_MEMORY_SHARED, AttemptResult.FILESYSTEM_GONE):
            item.starved += result is AttemptResult.OUT_OF_MEMORY_SHARED
            item.attempt -= 1
            return [self._start_attempt(batch, urgent=True)]
        if result is AttemptResult.STALLED and item.attempt <= self.retries:
            return [self._start_attempt(batch, urgent=True)]
        if result is AttemptResult.OUT_OF_MEMORY_ALONE:
            item.starved = MAX_SHARED_OUT_OF_MEMORY
        if not self.proven:
            return self._suspect_tool(batch, failure)
        return self._suspect_record(batch, failure)

    def _suspect_record(self, batch: BatchId, failure: TaskFailure) -> list[BatchStep]:
        item, result = self._batches[batch], failure.result
        again = result in (AttemptResult.FAILED, AttemptResult.OUT_OF_MEMORY_ALONE) and item.attempt <= self.retries
        if again and (item.records == 1 or not item.suspect):
            return [self._start_attempt(batch, urgent=True)]
        if item.records > 1:
            return [SplitBatch(batch, item.records // 2, failure)]
        if result is AttemptResult.OUT_OF_MEMORY_ALONE:
            self._starved += 1
            if self._starved >= MAX_ALONE_OUT_OF_MEMORY and self._starved > self.limit.n_done:
                return [StopRun(batch, StopReason.MEMORY, failure)]
        if self.stop_on_failure:
            return [StopRun(batch, StopReason.RECORD, failure)]
        if self.limit.count_given_up(failure.signature, died=failure.died):
            return [StopRun(batch, StopReason.MANY, failure)]
        return [QuarantineBatch(batch, failure)]

    def drop_quarantined_batch(self, batch: BatchId) -> list[BatchStep]:
        """Release ``batch``, whose quarantine is committed."""
        del self._batches[batch]
        return [ReleaseBatch(batch), *self._decide_if_tool_works(), *self._start_ready_batches()]

    def _suspect_tool(self, batch: BatchId, failure: TaskFailure) -> list[BatchStep]:
        """Hold a batch that failed before anything succeeded: single records test whether the tool works."""
        item = self._batches[batch]
        self._hold_batch(batch)
        if item.records <= 1:
            self._witnesses[batch] = failure
        # A ready batch takes its place: it may succeed.
        return [*self._start_ready_batches(), *self._decide_if_tool_works()]

    def _decide_if_tool_works(self) -> list[BatchStep]:
        if self.proven or not self._held:
            return []
        if self._has_enough_failures():
            return [self._stop_run()]
        running = any(item.state is _BatchState.RUNNING for item in self._batches.values())
        more = [batch for batch in self._held if batch not in self._witnesses]
        if running:
            return []
        for batch in more:
            item = self._batches[batch]
            if item.records > 1:
                self._held.remove(batch)
                return [SplitBatch(batch, 1, item.failure)]
        if more:
            self._held.remove(more[0])
            return [self._start_attempt(more[0], urgent=True)]
        if not self.cutting.ended:
            return []
        if len({_get_failure_kind(failure) for failure in self._witnesses.values()}) > 1:
            return self._mark_tool_as_working()  # few records, each bad in its own way
        # All records have failed alike. They are few: perhaps the machine failed once, so each is retried.
        for batch, failure in self._witnesses.items():
            if (
                failure.result in (AttemptResult.FAILED, AttemptResult.OUT_OF_MEMORY_ALONE)
                and self._batches[batch].attempt <= self.retries
            ):
                del self._witnesses[batch]
                self._held.remove(batch)
                return [self._start_attempt(batch, urgent=True)]
        return [self._stop_run()]

    def _has_enough_failures(self) -> bool:
        counted = (each for each in self._witnesses.items() if self._batches[each[0]].units > 0)
        said = [_get_failure_kind(failure) for _, failure in counted]
        return len(said) >= (MIN_FAILURES_TO_BLAME_TOOL if len(set(said)) == 1 else MIN_MIXED_FAILURES_TO_BLAME_TOOL)

    def _stop_run(self) -> StopRun:
        """Stop the run: no record succeeded."""
        batch, failure = next(iter(self._witnesses.items()))
        starved = failure.result is AttemptResult.OUT_OF_MEMORY_ALONE
        return StopRun(batch, StopReason.MEMORY if starved else StopReason.TOOL, failure)

    def _mark_tool_as_working(self) -> list[BatchStep]:
        """Note that the tool works: from now on, failures are due to the records."""
        self.proven = True
        held, self._held = list(self._held), deque()
        steps: list[BatchStep] = []
        for batch in held:
            if batch in self._witnesses:
                steps.extend(self._suspect_record(batch, self._witnesses[batch]))
            else:
                steps.append(self._start_attempt(batch))
        self._witnesses.clear()
        return steps

    def _hold_batch(self, batch: BatchId) -> None:
        self._batches[batch].state = _BatchState.HELD
        self._held.append(batch)

    def _start_attempt(self, batch: BatchId, *, urgent: bool = False) -> RunBatch:
        item = self._batches[batch]
        item.attempt += 1
        item.state = _BatchState.RUNNING
        return RunBatch(batch, item.attempt, urgent, alone=item.starved >= MAX_SHARED_OUT_OF_MEMORY)
