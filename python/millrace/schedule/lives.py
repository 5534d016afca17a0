"""The life of each batch: which one runs next, is retried, split or quarantined. Pure: no clock, file or process."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Sequence
from enum import Enum

import msgspec

from millrace.ids import BatchId
from millrace.schedule.cutting import Cutting
from millrace.schedule.protocol import Ask, Failure, Part, Quarantine, Release, Result, Split, Stop, Why
from millrace.schedule.quarantine_limit import QuarantineLimit


class Run(msgspec.Struct, frozen=True):
    """Start an attempt at a batch; ``urgent``: before those that wait."""

    batch: BatchId
    attempt: int
    urgent: bool = False
    #: It must run alone on its node.
    alone: bool = False


#: The next step for a batch.
Step = Run | Split | Quarantine | Release | Stop


class _State(Enum):
    #: Cut, and not yet submitted.
    READY = 1
    #: Submitted: at a slot, or in the queue before it.
    RUNNING = 2
    #: Failed, and held until it is known whether the tool works at all.
    HELD = 3


class _Batch(msgspec.Struct):
    records: int
    units: int
    attempt: int = 0
    state: _State = _State.READY
    #: No more retries as a whole: it is being split down to the culprit record.
    suspect: bool = False
    #: Its last failure, or that of the batch from which it was cut.
    failure: Failure | None = None
    #: How often memory ran out for it.
    starved: int = 0


#: The tool does not work if this many single records fail alike and none succeeds. Records without any units do not
#: count: a working tool may fail on each of them.
WITNESSES = 3

#: The same for records that fail in different ways: a message may contain something random.
MOST_WITNESSES = 10

#: A file with at most this many units (about bytes) left is cut within a few milliseconds.
GATHERED_UNITS = 1 << 20

#: A batch runs alone after memory ran out for it this often.
MOST_CROWDED = 2

#: Memory, not the records, is the reason if it is too small for this many records, and for more than are done.
MOST_STARVED = 10


def _kind(failure: Failure) -> tuple[Result, str]:
    """Return the key that failures of one kind share."""
    return failure.result, failure.signature


class Lives:
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
        self, cutting: Cutting, retries: int = 1, *, stop_on_failure: bool = False, proven: bool = False,
        limit: QuarantineLimit | None = None,
    ) -> None:  # fmt: skip
        self.cutting, self.retries, self.stop_on_failure, self.proven = cutting, retries, stop_on_failure, proven
        self.limit = limit or QuarantineLimit()
        self._batches: dict[BatchId, _Batch] = {}
        self._held: deque[BatchId] = deque()
        #: Batches that wait to be submitted: a heap of (-units, batch).
        self._ready: list[tuple[int, BatchId]] = []
        #: Whether so little is left that batches wait until all of it is cut, so that the largest goes first.
        self._gathers = False
        #: Single records that failed while nothing had succeeded, with their failures.
        self._witnesses: dict[BatchId, Failure] = {}
        #: Number of single records for which memory is too small.
        self._starved = 0

    @property
    def done(self) -> bool:
        """Whether all of the input was cut and every batch is done or quarantined."""
        return self.cutting.ended and not self._batches and not self.cutting.asked

    # Batches

    def ask(self, remaining: float | None, *, several: bool = False) -> Ask | None:
        """One more batch to cut, or several; None if enough are ready. See ``Cutting``.

        Args:
            several: The input is a file, of which the next batches are there in a moment.
        """
        if not self._held:
            here = len(self._batches)
            if not self.cutting.wants(remaining, here):
                return None
            self._gathers = several and remaining is not None and remaining <= GATHERED_UNITS
            return self.cutting.ask(remaining, here, several=several)
        if any(batch not in self._witnesses for batch in self._batches):
            return None
        # Everything so far has failed: one more record may show whether anything works.
        return None if self.cutting.ended or self.cutting.asked else self.cutting.ask_for_one()

    def batch_cut(self, part: Part, *, stays_whole: bool = False) -> list[Step]:
        """Add a batch that was asked for.

        Args:
            stays_whole: It must not be split for its size.
        """
        self.cutting.came()
        batch, records = part.batch, part.records
        self._batches[batch] = _Batch(records, part.units)
        if self._held:
            self._hold(batch)
            return self._verdict()
        if records > 1 and self.cutting.is_far_longer(part.units) and not stays_whole:
            return [Split(batch, records - 1)]  # the last record is the long one
        return self._add([batch])

    def _add(self, batches: Iterable[BatchId]) -> list[Step]:
        """Run batches of one very long record at once, and queue the others."""
        steps: list[Step] = []
        for batch in batches:
            item = self._batches[batch]
            if item.records == 1 and self.cutting.is_far_longer(item.units):
                steps.append(self._run(batch, urgent=True))
            else:
                heapq.heappush(self._ready, (-item.units, batch))
        return steps if self._gathers else steps + self._hand_out()

    def turn(self) -> list[Step]:
        """Start batches that waited for one that does not come any more. Call it after all other events."""
        return [] if self._gathers and self.cutting.asked else self._hand_out()

    def _hand_out(self) -> list[Step]:
        """Submit ready batches to the slots and their queues, the largest first."""
        steps: list[Step] = []
        while self._ready and len(self._batches) - len(self._ready) < self.cutting.most + len(self._held):
            steps.append(self._run(heapq.heappop(self._ready)[1]))
        return steps

    def input_ended(self) -> list[Step]:
        """Note that no more batches can be cut."""
        self.cutting.end()
        return self._verdict()

    def batch_split(self, whole: BatchId, parts: Sequence[Part]) -> list[Step]:
        """Replace ``whole``, which was split, by ``parts``."""
        item = self._batches.pop(whole)
        fresh = item.state is _State.READY
        for part in parts:
            self._batches[part.batch] = _Batch(part.records, part.units, suspect=not fresh, failure=item.failure)
        if fresh:
            return self._add(part.batch for part in parts)
        if self.proven:
            return [self._run(part.batch, urgent=True) for part in parts]
        # The first record alone tests the tool; the rest waits for its result.
        for part in parts[1:]:
            self._hold(part.batch)
        return [self._run(parts[0].batch, urgent=True)]

    def batch_divided(self, whole: BatchId, parts: Sequence[Part]) -> None:
        """Replace ``whole``, which is in progress, by ``parts`` in the same state."""
        item = self._batches.pop(whole)
        for part in parts:
            self._batches[part.batch] = _Batch(
                part.records, part.units, item.attempt, item.state, item.suspect, item.failure
            )

    # Results

    def attempt_done(self, batch: BatchId, seconds: float | None) -> list[Step]:
        """Release a batch whose attempt gave the result, and learn from its time.

        Args:
            seconds: Wall time of the attempt, for the cost model; None: unknown.
        """
        item = self._batches.pop(batch)
        self._witnesses.pop(batch, None)
        self.limit.done(item.records)
        if seconds is not None:
            self.cutting.cost.observe(item.units, seconds, item.records)
        return [Release(batch), *self._prove(), *self._hand_out()]

    def attempt_failed(self, batch: BatchId, failure: Failure) -> list[Step]:
        """Retry, split or hold a batch whose attempt gave no result, or stop the run."""
        item, result = self._batches[batch], failure.result
        item.failure = failure
        if result.is_of_the_tool:
            return [Stop(batch, Why.TOOL, failure)]
        if result in (Result.CROWDED, Result.AWAY):
            item.starved += result is Result.CROWDED
            item.attempt -= 1
            return [self._run(batch, urgent=True)]
        if result is Result.STILL and item.attempt <= self.retries:
            return [self._run(batch, urgent=True)]
        if result is Result.STARVED:
            item.starved = MOST_CROWDED
        if not self.proven:
            return self._suspect_tool(batch, failure)
        return self._suspect_record(batch, failure)

    def _suspect_record(self, batch: BatchId, failure: Failure) -> list[Step]:
        item, result = self._batches[batch], failure.result
        again = result in (Result.FAILED, Result.STARVED) and item.attempt <= self.retries
        if again and (item.records == 1 or not item.suspect):
            return [self._run(batch, urgent=True)]
        if item.records > 1:
            return [Split(batch, item.records // 2, failure)]
        if result is Result.STARVED:
            self._starved += 1
            if self._starved >= MOST_STARVED and self._starved > self.limit.n_done:
                return [Stop(batch, Why.MEMORY, failure)]
        if self.stop_on_failure:
            return [Stop(batch, Why.RECORD, failure)]
        if self.limit.give_up(failure.signature, died=failure.died):
            return [Stop(batch, Why.MANY, failure)]
        return [Quarantine(batch, failure)]

    def batch_quarantined(self, batch: BatchId) -> list[Step]:
        """Release ``batch``, whose quarantine is committed."""
        del self._batches[batch]
        return [Release(batch), *self._verdict(), *self._hand_out()]

    def _suspect_tool(self, batch: BatchId, failure: Failure) -> list[Step]:
        """Hold a batch that failed before anything succeeded: single records test whether the tool works."""
        item = self._batches[batch]
        self._hold(batch)
        if item.records <= 1:
            self._witnesses[batch] = failure
        # A ready batch takes its place: it may succeed.
        return [*self._hand_out(), *self._verdict()]

    def _verdict(self) -> list[Step]:
        if self.proven or not self._held:
            return []
        if self._enough_witnesses():
            return [self._stop()]
        running = any(item.state is _State.RUNNING for item in self._batches.values())
        more = [batch for batch in self._held if batch not in self._witnesses]
        if running:
            return []
        for batch in more:
            item = self._batches[batch]
            if item.records > 1:
                self._held.remove(batch)
                return [Split(batch, 1, item.failure)]
        if more:
            self._held.remove(more[0])
            return [self._run(more[0], urgent=True)]
        if not self.cutting.ended:
            return []
        if len({_kind(failure) for failure in self._witnesses.values()}) > 1:
            return self._prove()  # few records, each bad in its own way
        # All records have failed alike. They are few: perhaps the machine failed once, so each is retried.
        for batch, failure in self._witnesses.items():
            if failure.result in (Result.FAILED, Result.STARVED) and self._batches[batch].attempt <= self.retries:
                del self._witnesses[batch]
                self._held.remove(batch)
                return [self._run(batch, urgent=True)]
        return [self._stop()]

    def _enough_witnesses(self) -> bool:
        said = [_kind(failure) for batch, failure in self._witnesses.items() if self._batches[batch].units > 0]
        return len(said) >= (WITNESSES if len(set(said)) == 1 else MOST_WITNESSES)

    def _stop(self) -> Stop:
        """Stop the run: no record succeeded."""
        batch, failure = next(iter(self._witnesses.items()))
        return Stop(batch, Why.MEMORY if failure.result is Result.STARVED else Why.TOOL, failure)

    def _prove(self) -> list[Step]:
        """Note that the tool works: from now on, failures are due to the records."""
        self.proven = True
        held, self._held = list(self._held), deque()
        steps: list[Step] = []
        for batch in held:
            if batch in self._witnesses:
                steps.extend(self._suspect_record(batch, self._witnesses[batch]))
            else:
                steps.append(self._run(batch))
        self._witnesses.clear()
        return steps

    def _hold(self, batch: BatchId) -> None:
        self._batches[batch].state = _State.HELD
        self._held.append(batch)

    def _run(self, batch: BatchId, *, urgent: bool = False) -> Run:
        item = self._batches[batch]
        item.attempt += 1
        item.state = _State.RUNNING
        return Run(batch, item.attempt, urgent, alone=item.starved >= MOST_CROWDED)
