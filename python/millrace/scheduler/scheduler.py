"""The scheduler of a run: it owns the life of every batch and task. Pure: no I/O, and ``now`` is an argument.

The engine, the simulator and the tests drive the same object: events in, actions out. ``BatchLifecycle`` decides which batch
runs, is retried, split or quarantined; ``CutPlanner`` decides the size of the next batch; ``FragmentSearch`` decides how a
batch is searched in fragments and finished. This module turns their decisions into tasks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from typing import TYPE_CHECKING

import msgspec

from millrace.core.tasks import (
    BatchId,
    CompareTask,
    RankTask,
    SearchTask,
    SliceTask,
    SlotsChanged,
    SlotTask,
    TaskEnded,
    TaskEnding,
    TaskId,
    TaskWithdrawn,
    WholeTask,
)
from millrace.core.tool_use import CostHint, FragmentPlan
from millrace.scheduler.batch_lifecycle import BatchLifecycle, BatchStep, RunBatch
from millrace.scheduler.cut_planner import CutPlanner
from millrace.scheduler.fragment_search import EarlierCandidates, FragmentSearch, MisplacedSlice
from millrace.scheduler.limits import CpuLimit, QuarantineLimit
from millrace.scheduler.protocol import (
    BatchCut,
    BatchDivided,
    BatchExtent,
    BatchQuarantined,
    BatchSplit,
    CutBatches,
    DivideBatch,
    InputEnded,
    OutputBatch,
    QuarantineBatch,
    ReleaseBatch,
    ReportRetry,
    RunBegun,
    RunInterrupted,
    RunInterruption,
    SchedulerAction,
    SchedulerEvent,
    SplitBatch,
    StopRun,
    SubmitTask,
    TaskFailed,
    TaskFailure,
    TaskOrder,
    TickEnded,
    VerificationDone,
    VerificationRequested,
)

if TYPE_CHECKING:
    from millrace.scheduler.batch_sizing import CostModel

#: Minimum number of batches that share one scan around a database in fragments.
MIN_BATCHES_PER_SCAN = 16

#: Maximum number of submitted searches among which nodes choose.
MAX_SEARCHES_TO_CHOOSE = 1 << 14

#: Maximum time that the first searches of fragments wait for more batches.
MAX_GATHER_SECONDS = 0.5


class SchedulerSettings(msgspec.Struct, frozen=True, kw_only=True):
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
    fragmented: FragmentPlan | None = None
    #: Machines with separate memory for fragments.
    n_nodes: int = 1
    #: Time that running tools may go on after a signal.
    grace_seconds: float = 7.0
    #: Candidates that an earlier run found in fragments.
    begun: EarlierCandidates = {}
    #: Minimum number of batches in progress for each slot, from which nodes choose those that lie near them.
    batches_ahead: int = 0

    @property
    def cut_planner(self) -> CutPlanner:
        is_for_tail = self.fragmented is not None and self.fragmented.is_for_tail
        in_fragments = self.fragmented is not None and not is_for_tail
        n_starts = self.n_fragments + 1 if in_fragments else 1
        # Without fragments, nothing can be done about a record that takes long although it is short.
        spread = self.cost.spread if is_for_tail else 1.0
        cost = msgspec.structs.replace(
            self.cost, startup_seconds=n_starts * self.cost.startup_seconds, start_units=n_starts * self.cost.start_units, spread=spread
        )  # fmt: skip
        size = (1, 0) if cost.max_records == 1 else self.batch_size
        ahead = MIN_BATCHES_PER_SCAN if in_fragments else self.batches_ahead * self.slots
        return CutPlanner(self.slots, cost, size, least_ahead=ahead, begins_all=is_for_tail)

    @property
    def n_fragments(self) -> int:
        """Number of fragments of the database; 0: it is searched as a whole."""
        return len(self.fragmented.fragments) if self.fragmented else 0


class BatchBacklog:
    """The batches that are not done: their extents, and how much work has not started."""

    def __init__(self) -> None:
        self._parts: dict[BatchId, BatchExtent] = {}
        #: Units of each batch without an attempt, and their sum.
        self._unstarted: dict[BatchId, int] = {}
        self._unstarted_units = 0
        #: Units not yet cut; None: unknown.
        self.uncut_units: float | None = None
        #: Batches that must run alone on their node.
        self.alone: set[BatchId] = set()

    def __getitem__(self, batch: BatchId) -> BatchExtent:
        return self._parts[batch]

    @property
    def later_units(self) -> float:
        """Units without an attempt, and those not yet cut as far as they are known."""
        return (self.uncut_units or 0.0) + self._unstarted_units

    def add_batches(self, parts: Sequence[BatchExtent]) -> None:
        """Add batches without an attempt."""
        for part in parts:
            self._parts[part.batch] = part
            self._unstarted[part.batch] = part.units
            self._unstarted_units += part.units

    def add_cut_batch(self, part: BatchExtent) -> None:
        """Add a batch that was cut from the input."""
        self.add_batches([part])
        if self.uncut_units is not None:
            self.uncut_units -= part.units

    def add_started_batches(self, parts: Sequence[BatchExtent]) -> None:
        """Add batches whose work counts as started."""
        self._parts.update({part.batch: part for part in parts})

    def mark_started(self, batch: BatchId) -> None:
        """Mark that a batch has an attempt."""
        self._unstarted_units -= self._unstarted.pop(batch, 0)

    def forget_batch(self, batch: BatchId) -> None:
        """Remove a batch that is done, dropped or replaced."""
        self.mark_started(batch)
        self._parts.pop(batch, None)
        self.alone.discard(batch)


class BatchScheduler:
    """State machine of all batches and tasks: events in, actions out.

    Carry out the actions in the order given, and report their results as events. After an ``CutBatches``, report ``BatchCut``
    for each batch asked for, or ``InputEnded``. Report ``TickEnded`` after all other events.
    """

    def __init__(self, settings: SchedulerSettings, limit: QuarantineLimit | None = None) -> None:
        self._settings = settings
        self._cutting = settings.cut_planner
        self._lives = BatchLifecycle(
            self._cutting, settings.retries, stop_on_failure=settings.stop_on_failure, proven=settings.is_proven,
            limit=limit,
        )  # fmt: skip
        self._fragments = (
            FragmentSearch(settings.fragmented, settings.n_nodes, settings.begun) if settings.fragmented else None
        )
        self._gather_until = 0.0
        self._ids: Iterator[TaskId] = map(TaskId, count(1))
        self._batches = BatchBacklog()
        #: Tasks that run or wait for a slot.
        self._tasks: dict[TaskId, SlotTask] = {}
        self._cpu_limit = CpuLimit()
        self._interruption = RunInterruption(settings.grace_seconds)
        #: Number of retries.
        self.n_retries = 0

    # State

    @property
    def is_done(self) -> bool:
        """Whether all batches are done or quarantined; after an interrupt, whether no task runs any more."""
        return not self._tasks if self._interruption else self._lives.is_done

    @property
    def cost_model(self) -> CostModel:
        """The cost model, fitted to the tasks of this run."""
        return self._cutting.cost

    def get_task(self, number: TaskId) -> SlotTask:
        """Return a task that has not ended."""
        return self._tasks[number]

    def compute_done_share(self, batch: BatchId) -> float:
        """Return the fraction of the work on an unfinished batch that is done, from 0 to 1."""
        return self._fragments.compute_done_share(batch) if self._fragments else 0.0

    # Events

    def request_batches(self, remaining: float | None) -> CutBatches | None:
        """Return how many batches to cut now, or None if enough are ready.

        Args:
            remaining: Estimated units not yet cut; None: unknown.
        """
        self._batches.uncut_units = remaining
        # From a pipe, batches are asked for one at a time.
        return None if self._interruption else self._lives.request_batches(remaining, several=self._settings.is_file)

    def handle(self, event: SchedulerEvent, now: float) -> list[SchedulerAction]:
        """Apply an event and return the actions to carry out. ``now``: seconds on any one clock."""
        match event:
            case RunBegun():
                self._gather_until = now + MAX_GATHER_SECONDS
            case BatchCut(part):
                self._batches.add_cut_batch(part)
                stays_whole = (part.first, part.last) in self._settings.begun
                return self._convert_steps(self._lives.add_cut_batch(part, stays_whole=stays_whole))
            case InputEnded():
                return self._convert_steps(self._lives.end_input())
            case BatchSplit(whole, parts):
                return self._handle_split(whole, parts)
            case BatchDivided(whole, parts):
                return self._handle_division(whole, parts)
            case BatchQuarantined(batch):
                return self._convert_steps(self._lives.drop_quarantined_batch(batch))
            case TaskEnded():
                return self._handle_ended_task(event)
            case TaskFailed(task, failure):
                return self._handle_failed_task(task, failure)
            case TaskWithdrawn(task):
                self._tasks.pop(task, None)
            case SlotsChanged(slots):
                self._cutting.slots = slots
            case VerificationRequested(part, attempt, urgent, kind):
                self._batches.add_started_batches([part])
                return [self._submit_order(TaskOrder(part.batch, kind, attempt, urgent))]
            case RunInterrupted():
                return [*self._interruption.handle_signal(now)]
            case TickEnded():
                return self._end_tick(now)
        return []

    # Batches

    def _handle_split(self, whole: BatchId, parts: Sequence[BatchExtent]) -> list[SchedulerAction]:
        self._forget_batch(whole)
        self._batches.add_batches(parts)
        return self._convert_steps(self._lives.replace_split_batch(whole, parts))

    def _handle_division(self, whole: BatchId, parts: Sequence[BatchExtent]) -> list[SchedulerAction]:
        assert self._fragments  # only a search in fragments asks for this
        if parts:
            self._lives.replace_divided_batch(whole, parts)
            self._batches.add_started_batches(parts)
            orders = self._fragments.finish_divided(whole, parts)
            self._forget_batch(whole)
        else:
            orders = self._fragments.finish_undivided(whole)
        return [*map(self._submit_order, orders), *self._hand_out_tasks()]

    def _convert_steps(self, steps: Sequence[BatchStep]) -> list[SchedulerAction]:
        """Turn the steps of ``BatchLifecycle`` into actions and submitted tasks."""
        actions: list[SchedulerAction] = []
        for step in steps:
            match step:
                case RunBatch() | SplitBatch() if self._interruption:
                    pass  # an interrupted run starts nothing new
                case RunBatch():
                    actions += self._start_attempt(step)
                case ReleaseBatch(batch):
                    self._forget_batch(batch)
                    actions.append(step)
                case SplitBatch() | QuarantineBatch() | StopRun():
                    actions.append(step)
        return actions

    def _start_attempt(self, run: RunBatch) -> list[SchedulerAction]:
        part = self._batches[run.batch]
        if run.alone:
            self._batches.alone.add(run.batch)
        self._batches.mark_started(run.batch)
        if not self._fragments or self._is_searched_whole(part):
            return [self._submit_order(TaskOrder(run.batch, WholeTask(), run.attempt, run.urgent))]
        self._fragments.begin_attempt(part, run.attempt)
        return []

    def _is_searched_whole(self, part: BatchExtent) -> bool:
        """Tell whether a batch is searched in the whole database, as fragments would not end the run sooner.

        That is so if it ends before the batches that start after it can keep all slots busy.
        """
        assert self._fragments and self._settings.fragmented
        if part.first == part.last:
            return True  # there are no candidates to find
        if (
            not self._settings.fragmented.is_for_tail
            or self._fragments.has_begun(part)
            or self._batches.uncut_units is None
        ):
            return False
        # One of its records may take ``spread`` times the mean.
        longest = part.units * (1 + (self._settings.cost.spread - 1) / part.records)
        return longest * self._cutting.slots <= self._batches.later_units + part.units

    def _forget_batch(self, batch: BatchId) -> None:
        if self._fragments:
            self._fragments.forget_batch(batch)
        self._batches.forget_batch(batch)

    # Tasks

    def _submit_order(self, order: TaskOrder) -> SubmitTask:
        part, seconds = self._batches[order.batch], self._settings.record_timeout_seconds
        task = SlotTask(
            id=next(self._ids), batch=order.batch, kind=order.kind, attempt=order.attempt, urgent=order.urgent,
            alone=order.batch in self._batches.alone, found=order.found,
            timeout_seconds=seconds * max(part.last - part.first, 1) if seconds else None,
            cpu_limit_seconds=self._cpu_limit.compute_limit_seconds(part.units) if isinstance(order.kind, WholeTask) and not seconds else None,
        )  # fmt: skip
        self._tasks[task.id] = task
        return SubmitTask(task)

    def _end_tick(self, now: float) -> list[SchedulerAction]:
        """Make the late decisions: the next search of a fragment, and the number of tasks that write a result."""
        if self._interruption:
            return [*self._interruption.check_grace_time(now)]
        actions = self._convert_steps(self._lives.end_tick())
        if self._cutting.asked and self._settings.is_file and now < self._gather_until:
            # Wait a moment: the first batches then share each fragment; or the input ends, which shows idle slots.
            return actions
        return [*actions, *self._hand_out_tasks()]

    def _hand_out_tasks(self) -> list[SchedulerAction]:
        """Submit finishes, then searches: twice as many as slots, or all if nodes choose by what they hold."""
        actions: list[SchedulerAction] = []
        if not self._fragments or self._interruption:
            return actions
        slots = self._cutting.slots
        while found := self._fragments.finish_next_batch(slots, len(self._tasks), is_end=self._cutting.ended):
            if isinstance(found, DivideBatch):
                return [*actions, found]
            actions += map(self._submit_order, found)
        fragmented = self._settings.fragmented
        most = MAX_SEARCHES_TO_CHOOSE if fragmented and fragmented.volumes else 2 * slots
        later = self._batches.later_units * self._cutting.cost.per_unit
        while (n := len(self._tasks)) < most and (order := self._fragments.pop_next_task(slots, n, later)):
            actions.append(self._submit_order(order))
        return actions

    def _handle_ended_task(self, ended: TaskEnded) -> list[SchedulerAction]:
        task = self._tasks.pop(ended.task)
        if ended.ending is TaskEnding.KILLED:
            return []  # the run is stopping
        if isinstance(task.kind, CompareTask):
            self._forget_batch(task.batch)
            return [VerificationDone(task.batch, ended.committed)]
        if ended.ending is TaskEnding.MISPLACED:
            return self._record_setback(task.batch, MisplacedSlice())
        result = self._fragments.record_done(task, ended) if self._fragments else ended.committed
        if result is None:
            return self._settle_attempt(task.batch)
        seconds: float | None = ended.wall_seconds
        if self._fragments and not isinstance(task.kind, WholeTask):
            searched = self._fragments.estimate_seconds(task.batch)
            seconds = None if searched is None else ended.wall_seconds + searched
        if isinstance(task.kind, WholeTask):
            part = self._batches[task.batch]
            self._cpu_limit.observe_task(part.units, ended.cpu_seconds, part.last - part.first)
        steps = self._lives.finish_attempt(task.batch, seconds)
        return [OutputBatch(task.batch, result, ended.wall_seconds, ended.cpu_seconds), *self._convert_steps(steps)]

    def _handle_failed_task(self, number: TaskId, failure: TaskFailure) -> list[SchedulerAction]:
        task = self._tasks.pop(number)
        if isinstance(task.kind, CompareTask):
            self._forget_batch(task.batch)
            return [VerificationDone(task.batch, None)]
        if self._interruption:
            return []
        if isinstance(task.kind, SearchTask | RankTask | SliceTask) and not failure.result.is_tool_failure:
            return self._record_setback(task.batch, failure)
        return self._handle_failed_attempt(task.batch, failure)

    def _record_setback(self, batch: BatchId, setback: TaskFailure | MisplacedSlice) -> list[SchedulerAction]:
        """Note that one of several tasks of a batch gave no result."""
        assert self._fragments  # only a search in fragments has several tasks a batch
        self._fragments.record_failure(batch, setback)
        return self._settle_attempt(batch)

    def _settle_attempt(self, batch: BatchId) -> list[SchedulerAction]:
        """Fail the attempt once all tasks of a batch have ended and one of them failed."""
        setback = self._fragments.pop_setback(batch) if self._fragments else None
        return self._handle_failed_attempt(batch, setback) if isinstance(setback, TaskFailure) else []

    def _handle_failed_attempt(self, batch: BatchId, failure: TaskFailure) -> list[SchedulerAction]:
        steps = self._lives.fail_attempt(batch, failure)
        if not any(isinstance(step, RunBatch) for step in steps):
            return self._convert_steps(steps)
        self.n_retries += 1
        return [ReportRetry(batch, failure), *self._convert_steps(steps)]
