"""The life of every batch and task of a run: events in, actions out. Pure: no I/O, and ``now`` is an argument.

The engine, the simulator and the tests drive the same object. `Lives` decides which batch is run, again, in parts, or not
at all; `Cutting` what is cut; `FragmentSearch` how a batch is searched in fragments and finished; here this becomes tasks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from typing import TYPE_CHECKING

import msgspec

from millrace.ids import BatchId, TaskId
from millrace.model import CostHint, Fragmented
from millrace.schedule.cpu_limit import CpuLimit
from millrace.schedule.cutting import Cutting
from millrace.schedule.fragments import FoundBefore, FragmentSearch
from millrace.schedule.interruption import Interruption
from millrace.schedule.lives import Lives, Run, Step
from millrace.schedule.orders import Order
from millrace.schedule.protocol import (
    Action,
    Ask,
    BatchCut,
    BatchDivided,
    BatchQuarantined,
    BatchSplit,
    Begun,
    Divide,
    Failure,
    Happened,
    InputEnded,
    Interrupted,
    Looked,
    LookWanted,
    Output,
    Part,
    Quarantine,
    Release,
    Retry,
    Split,
    Stop,
    Submit,
    TaskFailed,
    Turn,
)
from millrace.schedule.quarantine_limit import QuarantineLimit
from millrace.schedule.searches import Misplaced
from millrace.tasks import Compare, Ended, Ending, Rank, Search, Slice, SlotsChanged, Task, Whole, Withdrawn

if TYPE_CHECKING:
    from millrace.schedule.sizing import CostModel

#: Batches that share a scan around a database in fragments, at least.
BATCHES_A_SCAN = 16

#: Searches that nodes may choose from.
MOST_TO_CHOOSE_FROM = 1 << 14

#: Seconds at most that the first searches of fragments wait for more batches.
GATHER_SECONDS = 0.5


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What a run is like."""

    slots: int
    cost: CostHint = CostHint()
    #: The user's batch size (records, bytes); (0, 0): as measured.
    batch_size: tuple[int, int] = (0, 0)
    #: Further attempts at a failing batch before it is split, and at a single record.
    retries: int = 1
    stop_on_failure: bool = False
    #: Seconds that a record may take; None: any time.
    record_timeout_seconds: float | None = None
    #: Whether an earlier run of the same command had results.
    is_proven: bool = False
    #: Whether the inputs are files, of which the next batches are there in a moment.
    is_file: bool = True
    #: How the database is searched in fragments; None: as a whole.
    fragmented: Fragmented | None = None
    #: Machines that have a memory of their own for fragments.
    n_nodes: int = 1
    #: What an earlier run found in fragments.
    begun: FoundBefore = {}

    @property
    def cutting(self) -> Cutting:
        n_starts = len(self.fragmented.fragments) + 1 if self.fragmented else 1
        cost = msgspec.structs.replace(self.cost, startup_seconds=self.cost.startup_seconds * n_starts)
        size = (1, 0) if cost.max_records == 1 else self.batch_size
        return Cutting(self.slots, cost, size, least_ahead=BATCHES_A_SCAN if self.fragmented else 0)


class Scheduler:
    """Owns the life of every batch and task.

    Carry out the actions in the order given, and tell what each calls for. After an `Ask`, tell `BatchCut` as often as
    it says, or `InputEnded`. Tell `Turn` whenever all else was told.
    """

    def __init__(self, settings: Settings, limit: QuarantineLimit | None = None) -> None:
        self._settings = settings
        self._cutting = settings.cutting
        self._lives = Lives(
            self._cutting, settings.retries, stop_on_failure=settings.stop_on_failure, proven=settings.is_proven,
            limit=limit,
        )  # fmt: skip
        self._fragments = (
            FragmentSearch(settings.fragmented, settings.n_nodes, settings.begun) if settings.fragmented else None
        )
        self._gather_until = 0.0
        self._ids: Iterator[TaskId] = map(TaskId, count(1))
        self._parts: dict[BatchId, Part] = {}
        #: What is with the slots or waits before them.
        self._tasks: dict[TaskId, Task] = {}
        #: Batches beside which nothing is to run.
        self._alone: set[BatchId] = set()
        self._cpu_limit = CpuLimit()
        self._interruption = Interruption()
        #: Tasks that are done, and attempts after the first.
        self.n_retries = 0

    # What is known

    @property
    def is_done(self) -> bool:
        """Whether everything is done or given up, or after an interrupt, whether nothing runs any more."""
        return not self._tasks if self._interruption else self._lives.done

    @property
    def cost(self) -> CostModel:
        """What tasks have cost."""
        return self._cutting.cost

    def task(self, number: TaskId) -> Task:
        """A task that has not ended."""
        return self._tasks[number]

    def share(self, batch: BatchId) -> float:
        """How much of the work on a batch is done that is not yet."""
        return self._fragments.share(batch) if self._fragments else 0.0

    # What happens

    def ask(self, remaining: float | None) -> Ask | None:
        """Batches to cut now, if some are wanted.

        Args:
            remaining: Units not yet cut, as estimated; None: unknown.
        """
        # What a pipe has is taken as it comes.
        return None if self._interruption else self._lives.ask(remaining, several=self._settings.is_file)

    def handle(self, event: Happened, now: float) -> list[Action]:
        """Take in what has happened; what is to be done. ``now``: seconds on any clock."""
        match event:
            case Begun():
                self._gather_until = now + GATHER_SECONDS
            case BatchCut(part):
                self._parts[part.batch] = part
                stays_whole = (part.first, part.last) in self._settings.begun
                return self._steps(self._lives.batch_cut(part, stays_whole=stays_whole))
            case InputEnded():
                return self._steps(self._lives.input_ended())
            case BatchSplit(whole, parts):
                return self._batch_split(whole, parts)
            case BatchDivided(whole, parts):
                return self._batch_divided(whole, parts)
            case BatchQuarantined(batch):
                return self._steps(self._lives.batch_quarantined(batch))
            case Ended():
                return self._ended(event)
            case TaskFailed(task, failure):
                return self._failed(task, failure)
            case Withdrawn(task):
                self._tasks.pop(task, None)
            case SlotsChanged(slots):
                self._cutting.slots = slots
            case LookWanted(part, attempt, urgent, over):
                self._parts[part.batch] = part
                return [self._submit(Order(part.batch, Compare(over), attempt, urgent))]
            case Interrupted():
                return [*self._interruption.signalled(now)]
            case Turn():
                return self._turn(now)
        return []

    # Batches

    def _batch_split(self, whole: BatchId, parts: Sequence[Part]) -> list[Action]:
        self._forget(whole)
        self._parts.update({part.batch: part for part in parts})
        return self._steps(self._lives.batch_split(whole, parts))

    def _batch_divided(self, whole: BatchId, parts: Sequence[Part]) -> list[Action]:
        assert self._fragments  # else there is nothing to divide
        if parts:
            self._lives.batch_divided(whole, parts)
            self._parts.update({part.batch: part for part in parts})
            orders = self._fragments.divided(whole, parts)
            self._forget(whole)
        else:
            orders = self._fragments.not_divided(whole)
        return [*map(self._submit, orders), *self._hand_out()]

    def _steps(self, steps: Sequence[Step]) -> list[Action]:
        """What becomes of batches, as actions."""
        actions: list[Action] = []
        for step in steps:
            match step:
                case Run() | Split() if self._interruption:
                    pass  # a run that is to stop begins nothing new
                case Run():
                    actions += self._run(step)
                case Release(batch):
                    self._forget(batch)
                    actions.append(step)
                case Split() | Quarantine() | Stop():
                    actions.append(step)
        return actions

    def _run(self, run: Run) -> list[Action]:
        part = self._parts[run.batch]
        if run.alone:
            self._alone.add(run.batch)
        # Of nothing, the whole database is as good as fragments.
        if not self._fragments or part.first == part.last:
            return [self._submit(Order(run.batch, Whole(), run.attempt, run.urgent))]
        self._fragments.begin(part, run.attempt)
        return []

    def _forget(self, batch: BatchId) -> None:
        if self._fragments:
            self._fragments.forget(batch)
        self._parts.pop(batch, None)
        self._alone.discard(batch)

    # Tasks

    def _submit(self, order: Order) -> Submit:
        part, seconds = self._parts[order.batch], self._settings.record_timeout_seconds
        task = Task(
            id=next(self._ids), batch=order.batch, kind=order.kind, attempt=order.attempt, urgent=order.urgent,
            alone=order.batch in self._alone, found=order.found,
            timeout_seconds=seconds * max(part.last - part.first, 1) if seconds else None,
            cpu_limit_seconds=self._cpu_limit.seconds(part.units) if isinstance(order.kind, Whole) and not seconds else None,
        )  # fmt: skip
        self._tasks[task.id] = task
        return Submit(task)

    def _turn(self, now: float) -> list[Action]:
        """Decide what is decided late: which search of a fragment is next, and how many tasks write a result."""
        if self._interruption:
            return [*self._interruption.turn(now)]
        actions = self._steps(self._lives.turn())
        if self._cutting.asked and self._settings.is_file and now < self._gather_until:
            # The first batches are there in a moment, and then see each fragment together; or the end is, and then
            # slots without work are known.
            return actions
        return [*actions, *self._hand_out()]

    def _hand_out(self) -> list[Action]:
        """Hand out finishes, and of searches one more than the slots work at, or all from which nodes may choose by what they hold."""
        actions: list[Action] = []
        if not self._fragments or self._interruption:
            return actions
        slots = self._cutting.slots
        while found := self._fragments.finish_next(slots, len(self._tasks), is_end=self._cutting.ended):
            if isinstance(found, Divide):
                return [*actions, found]
            actions += map(self._submit, found)
        fragmented = self._settings.fragmented
        most = MOST_TO_CHOOSE_FROM if fragmented and fragmented.volumes else 2 * slots
        while len(self._tasks) < most and (search := self._fragments.next_search()):
            actions.append(self._submit(search))
        return actions

    def _ended(self, ended: Ended) -> list[Action]:
        task = self._tasks.pop(ended.task)
        if ended.ending is Ending.KILLED:
            return []  # the run is to stop
        if isinstance(task.kind, Compare):
            self._forget(task.batch)
            return [Looked(task.batch, ended.committed)]
        if ended.ending is Ending.MISPLACED:
            return self._set_back(task.batch, Misplaced())
        result = self._fragments.done(task, ended) if self._fragments else ended.committed
        if result is None:
            return self._settle(task.batch)
        seconds: float | None = ended.wall_seconds
        if self._fragments:
            searched = self._fragments.seconds(task.batch)
            seconds = None if searched is None else ended.wall_seconds + searched
        if isinstance(task.kind, Whole):
            part = self._parts[task.batch]
            self._cpu_limit.observe(part.units, ended.cpu_seconds, part.last - part.first)
        steps = self._lives.attempt_done(task.batch, seconds)
        return [Output(task.batch, result, ended.wall_seconds, ended.cpu_seconds), *self._steps(steps)]

    def _failed(self, number: TaskId, failure: Failure) -> list[Action]:
        task = self._tasks.pop(number)
        if isinstance(task.kind, Compare):
            self._forget(task.batch)
            return [Looked(task.batch, None)]
        if self._interruption:
            return []
        if isinstance(task.kind, Search | Rank | Slice) and not failure.result.is_of_the_tool:
            return self._set_back(task.batch, failure)
        return self._attempt_failed(task.batch, failure)

    def _set_back(self, batch: BatchId, setback: Failure | Misplaced) -> list[Action]:
        """A task of several did not give what it is for."""
        assert self._fragments  # else there is one
        self._fragments.failed(batch, setback)
        return self._settle(batch)

    def _settle(self, batch: BatchId) -> list[Action]:
        """Once all tasks of a batch have ended, of which one failed, the attempt has failed."""
        setback = self._fragments.settled(batch) if self._fragments else None
        return self._attempt_failed(batch, setback) if isinstance(setback, Failure) else []

    def _attempt_failed(self, batch: BatchId, failure: Failure) -> list[Action]:
        steps = self._lives.attempt_failed(batch, failure)
        if not any(isinstance(step, Run) for step in steps):
            return self._steps(steps)
        self.n_retries += 1
        return [Retry(batch, failure), *self._steps(steps)]
