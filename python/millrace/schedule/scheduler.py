"""The scheduler of a run: it owns the life of every batch and task. Pure: no I/O, and ``now`` is an argument.

The engine, the simulator and the tests drive the same object: events in, actions out. ``Lives`` decides which batch
runs, is retried, split or quarantined; ``Cutting`` decides the size of the next batch; ``FragmentSearch`` decides how a
batch is searched in fragments and finished. This module turns their decisions into tasks.
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

#: Minimum number of batches that share one scan around a database in fragments.
BATCHES_A_SCAN = 16

#: Maximum number of submitted searches among which nodes choose.
MOST_TO_CHOOSE_FROM = 1 << 14

#: Maximum time that the first searches of fragments wait for more batches.
GATHER_SECONDS = 0.5


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a run that the scheduler depends on."""

    slots: int
    cost: CostHint = CostHint()
    #: Batch size set by the user, as (records, bytes); (0, 0): sized by measured cost.
    batch_size: tuple[int, int] = (0, 0)
    #: Further attempts at a failing batch before it is split, and at a single record.
    retries: int = 1
    stop_on_failure: bool = False
    #: Time limit of one record; None: no limit.
    record_timeout_seconds: float | None = None
    #: Whether an earlier run of the same command had results.
    is_proven: bool = False
    #: Whether the inputs are files, so that the next batches can be read at once.
    is_file: bool = True
    #: How the database is searched in fragments; None: it is searched as a whole.
    fragmented: Fragmented | None = None
    #: Machines with separate memory for fragments.
    n_nodes: int = 1
    #: Candidates that an earlier run found in fragments.
    begun: FoundBefore = {}

    @property
    def cutting(self) -> Cutting:
        n_starts = len(self.fragmented.fragments) + 1 if self.fragmented else 1
        cost = msgspec.structs.replace(self.cost, startup_seconds=self.cost.startup_seconds * n_starts)
        size = (1, 0) if cost.max_records == 1 else self.batch_size
        return Cutting(self.slots, cost, size, least_ahead=BATCHES_A_SCAN if self.fragmented else 0)


class Scheduler:
    """State machine of all batches and tasks: events in, actions out.

    Carry out the actions in the order given, and report their results as events. After an ``Ask``, report ``BatchCut``
    for each batch asked for, or ``InputEnded``. Report ``Turn`` after all other events.
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
        #: Tasks that run or wait for a slot.
        self._tasks: dict[TaskId, Task] = {}
        #: Batches that must run alone on their node.
        self._alone: set[BatchId] = set()
        self._cpu_limit = CpuLimit()
        self._interruption = Interruption()
        #: Number of retries.
        self.n_retries = 0

    # State

    @property
    def is_done(self) -> bool:
        """Whether all batches are done or quarantined; after an interrupt, whether no task runs any more."""
        return not self._tasks if self._interruption else self._lives.done

    @property
    def cost(self) -> CostModel:
        """The cost model, fitted to the tasks of this run."""
        return self._cutting.cost

    def task(self, number: TaskId) -> Task:
        """Return a task that has not ended."""
        return self._tasks[number]

    def share(self, batch: BatchId) -> float:
        """Return the fraction of the work on an unfinished batch that is done, from 0 to 1."""
        return self._fragments.share(batch) if self._fragments else 0.0

    # Events

    def ask(self, remaining: float | None) -> Ask | None:
        """Return how many batches to cut now, or None if enough are ready.

        Args:
            remaining: Estimated units not yet cut; None: unknown.
        """
        # From a pipe, batches are asked for one at a time.
        return None if self._interruption else self._lives.ask(remaining, several=self._settings.is_file)

    def handle(self, event: Happened, now: float) -> list[Action]:
        """Apply an event and return the actions to carry out. ``now``: seconds on any one clock."""
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
        assert self._fragments  # only a search in fragments asks for this
        if parts:
            self._lives.batch_divided(whole, parts)
            self._parts.update({part.batch: part for part in parts})
            orders = self._fragments.divided(whole, parts)
            self._forget(whole)
        else:
            orders = self._fragments.not_divided(whole)
        return [*map(self._submit, orders), *self._hand_out()]

    def _steps(self, steps: Sequence[Step]) -> list[Action]:
        """Turn the steps of ``Lives`` into actions and submitted tasks."""
        actions: list[Action] = []
        for step in steps:
            match step:
                case Run() | Split() if self._interruption:
                    pass  # an interrupted run starts nothing new
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
        # An empty batch has no candidates to find: the whole database costs no more than fragments.
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
        """Make the late decisions: the next search of a fragment, and the number of tasks that write a result."""
        if self._interruption:
            return [*self._interruption.turn(now)]
        actions = self._steps(self._lives.turn())
        if self._cutting.asked and self._settings.is_file and now < self._gather_until:
            # Wait a moment: the first batches then share each fragment; or the input ends, which shows idle slots.
            return actions
        return [*actions, *self._hand_out()]

    def _hand_out(self) -> list[Action]:
        """Submit finishes, then searches: one more than the slots work on, or all if nodes choose by what they hold."""
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
            return []  # the run is stopping
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
        """Note that one of several tasks of a batch gave no result."""
        assert self._fragments  # only a search in fragments has several tasks a batch
        self._fragments.failed(batch, setback)
        return self._settle(batch)

    def _settle(self, batch: BatchId) -> list[Action]:
        """Fail the attempt once all tasks of a batch have ended and one of them failed."""
        setback = self._fragments.settled(batch) if self._fragments else None
        return self._attempt_failed(batch, setback) if isinstance(setback, Failure) else []

    def _attempt_failed(self, batch: BatchId, failure: Failure) -> list[Action]:
        steps = self._lives.attempt_failed(batch, failure)
        if not any(isinstance(step, Run) for step in steps):
            return self._steps(steps)
        self.n_retries += 1
        return [Retry(batch, failure), *self._steps(steps)]
