"""The dispatcher: which batch runs next, again, in parts, or not at all. Pure: no clock, no file, no process."""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from millrace.model import CostHint
from millrace.schedule.quarantine_limit import QuarantineLimit
from millrace.schedule.sizing import MOST_READY, CostModel, is_tail, next_units


@dataclass(frozen=True)
class Run:
    """Start an attempt at a batch; ``urgent``: before those that wait."""

    batch: int
    attempt: int
    urgent: bool = False
    #: Nothing is to run beside it on its node.
    alone: bool = False


@dataclass(frozen=True)
class Split:
    """Cut a batch in two after its first ``records``, then tell `Dispatcher.batch_split`."""

    batch: int
    records: int


@dataclass(frozen=True)
class Quarantine:
    """Give up a batch of one record, and keep it aside with its error."""

    batch: int


@dataclass(frozen=True)
class Release:
    """A batch is done: its bytes are no longer needed."""

    batch: int


class Why(Enum):
    """Why a run ends before its time."""

    #: The tool cannot work at all.
    TOOL = "tool"
    #: Nor with the memory that there is.
    MEMORY = "memory"
    #: A record failed, and the user wants no failures.
    RECORD = "record"
    #: More records failed than may be given up.
    MANY = "many"


@dataclass(frozen=True)
class Stop:
    """End the run."""

    batch: int
    why: Why


Action = Run | Split | Quarantine | Release | Stop


class Result(Enum):
    """How an attempt ended."""

    DONE = "done"
    FAILED = "failed"
    #: Took longer than the user allows: not tried again as it is.
    TIMED_OUT = "timed out"
    #: Memory ran out, while others ran beside it: says nothing of its records.
    CROWDED = "crowded"
    #: Memory ran out, though nothing ran beside it.
    STARVED = "starved"
    #: Failed in a way that has nothing to do with records.
    FATAL = "fatal"


class _State(Enum):
    #: Cut, and not yet given to a slot.
    READY = 1
    #: At a slot, or in the queue before it.
    RUNNING = 2
    #: Failed, and held back until it is known whether the tool works at all.
    HELD = 3


@dataclass
class _Batch:
    records: int
    units: int
    attempt: int = 0
    state: _State = _State.READY
    #: No more retries of the whole: on its way down to the culprit.
    suspect: bool = False
    #: How often memory ran out for it.
    starved: int = 0


#: A batch takes all that is left, if that is at most so many times its size: how much is left is an estimate, and a rest of
#: one record would cost a start of the tool.
REST = 1.05

#: A batch of so many times the units that were asked for, and that others have, ends with a record that is far longer.
FAR_LONGER = 2

#: So many different single records that fail alike, and none that succeeds, mean that the tool does not work.
WITNESSES = 3

#: The same for records that fail in different ways: a message may hold something random.
MOST_WITNESSES = 10

#: Memory runs out for a batch so often before nothing is let run beside it.
MOST_CROWDED = 2

#: So many records for each of which there is not enough memory, and more of them than are done, are no matter of records.
MOST_STARVED = 10


@dataclass
class Dispatcher:
    """Decides for one level: a node's slots here, nodes or partitions elsewhere.

    Near the end all that is left is cut, and the largest batch goes first: a long record that starts last ends last.
    Source: R. L. Graham, Bounds on multiprocessing timing anomalies, SIAM J. Appl. Math. 17(2), 1969 (largest
    processing time first).

    Args:
        slots: How many tasks run side by side.
        hint: First guess of the cost.
        retries: Further attempts at a failing batch before it is split, and at a single record.
        fixed: The user's batch size (records, bytes) instead of measured ones; (0, 0): measure.
        stop_on_failure: End the run at the first record that is given up.
        proven: The tool is known to work: some record was done before.
        least_ahead: Batches at work at once, at least, as soon as their size is measured: where they share what is
            read of a database, more of them read it less often.
        limit: How many records may be given up.
    """

    slots: int
    hint: CostHint
    retries: int = 1
    fixed: tuple[int, int] = (0, 0)
    stop_on_failure: bool = False
    proven: bool = False
    least_ahead: int = 0
    limit: QuarantineLimit = field(default_factory=QuarantineLimit)
    ended: bool = False
    cost: CostModel = field(init=False)
    _batches: dict[int, _Batch] = field(default_factory=dict)
    _held: deque[int] = field(default_factory=deque)
    #: Batches that wait for a place in the queues of the slots: (-units, batch), a heap.
    _ready: list[tuple[int, int]] = field(default_factory=list)
    #: Single records that failed while nothing had succeeded, and how.
    _witnesses: dict[int, tuple[Result, str]] = field(default_factory=dict)
    #: Single records for which there is not enough memory.
    _starved: int = 0
    #: Batches that were asked for and have not come.
    _asked: int = 0
    #: Units of the batch that was asked for; 0: its size is the user's.
    _asked_units: int = 0
    #: Units of each batch in the last round; 0 before it.
    _last_round: int = 0
    #: Whether batches are still small beside the start, and grow: one that waits would be as small as those at work.
    _grows: bool = False

    def __post_init__(self) -> None:
        self.cost = CostModel(self.hint)

    # Feeding

    def wanted(self, remaining: float | None) -> tuple[int, int, int] | None:
        """Limits (records, units, bytes) of one more batch to cut, or None if enough are ready.

        Batches are kept ready beyond those that run, so that no slot ever waits for its input: one a slot, or more if
        they are short and their size is fixed; but none while nothing is measured, as its size would be a guess. As
        soon as little is left, all of it.

        Args:
            remaining: Units not yet cut, as estimated; None: unknown.
        """
        if self.ended or self._asked or (self._lacking <= 0 and not self._cuts_tail(remaining)):
            return None
        if self._held and any(batch not in self._witnesses for batch in self._batches):
            return None
        self._asked, self._asked_units = 1, 0
        if self._held:
            return (1, 0, 0)  # all that there is has failed: one more record may tell whether anything works
        if self.fixed != (0, 0):
            return (self.fixed[0], 0, self.fixed[1])
        units = self._next_units(remaining)
        if self.hint.unit == "records":
            return (min(units, self.hint.max_records or units), 0, self.cost.most_bytes(self.slots))
        self._asked_units = units
        return (self.hint.max_records, units, self.cost.most_bytes(self.slots))

    @property
    def _most(self) -> int:
        """Batches in the hands of the slots and their queues, at most."""
        if self.fixed != (0, 0):
            most = self.slots * (1 + self.cost.ready)
        else:
            most = self.slots * (2 if self.cost.per_unit and not self._grows else 1)
        if self.cost.per_unit or self.fixed != (0, 0):
            most = max(most, self.least_ahead)
        return most + len(self._held)

    @property
    def _lacking(self) -> int:
        """Batches that could be cut now for the slots and their queues, beyond those that were asked for."""
        return self._most - len(self._batches) - self._asked

    def _cuts_tail(self, remaining: float | None) -> bool:
        """Whether what is left is so little that all of it is cut now."""
        if remaining is None or self._held or len(self._batches) >= self.slots * (1 + MOST_READY):
            return False
        return is_tail(self.cost, self.slots, remaining, fixed=self.fixed != (0, 0))

    def more(self) -> int:
        """How many batches to cut along with the one that was just `wanted`, of the same size.

        Those whose size is no decision are asked for together, which costs less than one after another.
        """
        if self.fixed == (0, 0) or self._held:
            return 0
        found = max(self._lacking, 0)
        self._asked += found
        return found

    def _next_units(self, remaining: float | None) -> int:
        units = next_units(self.cost, self.slots, remaining)
        self._grows = self.cost.is_mostly_start(units)
        if remaining is None or not self.cost.per_unit:
            return units
        units = self._within_round(units, remaining)
        return math.ceil(REST * max(units, remaining)) if remaining <= REST * units else units

    def _within_round(self, units: int, remaining: float) -> int:
        """``units``, or in the last round, in which each slot gets an equal part, that part."""
        if (units + 1) * self.slots < remaining:  # units are whole
            self._last_round = 0
            return units
        # None is mostly the tool's start.
        if not self._last_round:
            self._last_round = min(units, max(math.ceil(remaining / self.slots), self.cost.start_units))
        return self._last_round

    def batch_cut(self, batch: int, records: int, units: int, *, whole: bool = False) -> list[Action]:
        """A batch that was asked for is ready.

        Args:
            whole: It is not to be cut again.
        """
        self._asked -= 1
        self._batches[batch] = _Batch(records, units)
        if self._held:
            self._hold(batch)
            return self._verdict()
        if records > 1 and self._is_far_longer(units) and not whole:
            return [Split(batch, records - 1)]  # the last one is the long one
        return self._add([batch])

    def _is_far_longer(self, units: int) -> bool:
        return self._asked_units > 0 and FAR_LONGER * max(self._asked_units, self.cost.batch_units) < units

    def _add(self, batches: Iterable[int]) -> list[Action]:
        """Batches may be run."""
        actions: list[Action] = []
        for batch in batches:
            item = self._batches[batch]
            if item.records == 1 and self._is_far_longer(item.units):
                actions.append(self._run(batch, urgent=True))
            else:
                heapq.heappush(self._ready, (-item.units, batch))
        return actions + self._hand_out()

    def _hand_out(self) -> list[Action]:
        """Give batches that are ready to the slots and their queues, the largest first."""
        actions: list[Action] = []
        while self._ready and len(self._batches) - len(self._ready) < self._most:
            actions.append(self._run(heapq.heappop(self._ready)[1]))
        return actions

    def input_ended(self) -> list[Action]:
        """There is nothing more to cut."""
        self._asked, self.ended = 0, True
        return self._verdict()

    def batch_split(self, whole: int, parts: list[tuple[int, int, int]]) -> list[Action]:
        """``whole`` is now ``parts``: (batch, records, units)."""
        fresh = self._batches.pop(whole).state is _State.READY
        for batch, records, units in parts:
            self._batches[batch] = _Batch(records, units, suspect=not fresh)
        if fresh:
            return self._add(batch for batch, _, _ in parts)
        if self.proven:
            return [self._run(batch, urgent=True) for batch, _, _ in parts]
        # The first record alone bears witness; the rest waits for the verdict.
        for batch, _, _ in parts[1:]:
            self._hold(batch)
        return [self._run(parts[0][0], urgent=True)]

    def batch_divided(self, whole: int, parts: list[tuple[int, int, int]]) -> None:
        """``whole``, which is at work, goes on as ``parts``: (batch, records, units)."""
        item = self._batches.pop(whole)
        for batch, records, units in parts:
            self._batches[batch] = _Batch(records, units, item.attempt, item.state, item.suspect)

    @property
    def asked(self) -> bool:
        """Whether a batch that was asked for is still to come."""
        return self._asked > 0

    @property
    def done(self) -> bool:
        """Everything was cut and came to its end."""
        return self.ended and not self._batches and not self._asked

    # Results

    def attempt_ended(
        self, batch: int, result: Result, signature: str = "", seconds: float | None = None
    ) -> list[Action]:
        """An attempt came to its end.

        Args:
            signature: What makes two failures alike: status and message without names and numbers.
            seconds: Wall time of the attempt, for the cost model; None if it is not known.
        """
        item = self._batches[batch]
        if result is Result.DONE:
            del self._batches[batch]
            self._witnesses.pop(batch, None)
            self.limit.done(item.records)
            if seconds is not None:
                self.cost.observe(item.units, seconds, item.records)
            return [Release(batch), *self._prove(), *self._hand_out()]
        if result is Result.FATAL:
            return [Stop(batch, Why.TOOL)]
        if result is Result.CROWDED:
            item.starved += 1
            item.attempt -= 1
            return [self._run(batch, urgent=True)]
        if result is Result.STARVED:
            item.starved = MOST_CROWDED
        if not self.proven:
            return self._suspect_tool(batch, result, signature)
        return self._suspect_record(batch, result, signature)

    def _suspect_record(self, batch: int, result: Result, signature: str) -> list[Action]:
        item = self._batches[batch]
        again = result in (Result.FAILED, Result.STARVED) and item.attempt <= self.retries
        if again and (item.records == 1 or not item.suspect):
            return [self._run(batch, urgent=True)]
        if item.records > 1:
            return [Split(batch, item.records // 2)]
        if result is Result.STARVED:
            self._starved += 1
            if self._starved >= MOST_STARVED and self._starved > self.limit.n_done:
                return [Stop(batch, Why.MEMORY)]
        if self.stop_on_failure:
            return [Stop(batch, Why.RECORD)]
        if self.limit.give_up(signature):
            return [Stop(batch, Why.MANY)]
        return [Quarantine(batch)]

    def batch_quarantined(self, batch: int) -> list[Action]:
        """The quarantine of ``batch`` is committed."""
        del self._batches[batch]
        return [Release(batch), *self._verdict(), *self._hand_out()]

    def _suspect_tool(self, batch: int, result: Result, signature: str) -> list[Action]:
        """Nothing has succeeded yet: find out with single records whether anything can."""
        item = self._batches[batch]
        self._hold(batch)
        if item.records <= 1:
            self._witnesses[batch] = (result, signature)
        return self._verdict()

    def _verdict(self) -> list[Action]:
        if self.proven or not self._held:
            return []
        alike = len(set(self._witnesses.values())) == 1
        if len(self._witnesses) >= (WITNESSES if alike else MOST_WITNESSES):
            return [self._stop()]
        running = any(item.state is _State.RUNNING for item in self._batches.values())
        more = [batch for batch in self._held if batch not in self._witnesses]
        if running:
            return []
        for batch in more:
            if self._batches[batch].records > 1:
                self._held.remove(batch)
                return [Split(batch, 1)]
        if more:
            self._held.remove(more[0])
            return [self._run(more[0], urgent=True)]
        if not self.ended:
            return []
        if not alike:
            return self._prove()  # few records, each bad in its own way
        # Every record there is has failed alike. They are few, and perhaps what failed was the machine, for once.
        for batch, (result, _) in self._witnesses.items():
            if result in (Result.FAILED, Result.STARVED) and self._batches[batch].attempt <= self.retries:
                del self._witnesses[batch]
                self._held.remove(batch)
                return [self._run(batch, urgent=True)]
        return [self._stop()]

    def _stop(self) -> Stop:
        """No witness was done."""
        batch, (result, _) = next(iter(self._witnesses.items()))
        return Stop(batch, Why.MEMORY if result is Result.STARVED else Why.TOOL)

    def _prove(self) -> list[Action]:
        """The tool works: failures are the records' own from now on."""
        self.proven = True
        held, self._held = list(self._held), deque()
        actions: list[Action] = []
        for batch in held:
            if batch in self._witnesses:
                actions.extend(self._suspect_record(batch, *self._witnesses[batch]))
            else:
                actions.append(self._run(batch))
        self._witnesses.clear()
        return actions

    def _hold(self, batch: int) -> None:
        self._batches[batch].state = _State.HELD
        self._held.append(batch)

    def _run(self, batch: int, *, urgent: bool = False) -> Run:
        item = self._batches[batch]
        item.attempt += 1
        item.state = _State.RUNNING
        return Run(batch, item.attempt, urgent, alone=item.starved >= MOST_CROWDED)
