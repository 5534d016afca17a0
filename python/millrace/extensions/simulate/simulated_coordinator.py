"""The coordinator of a simulated job: it drives the scheduler as the engine does in a real run."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count, pairwise

import msgspec

from millrace.core.errors import ToolError
from millrace.core.tasks import (
    BatchId,
    RankTask,
    SliceTask,
    SlotId,
    SlotsChanged,
    SlotTask,
    TaskEnded,
    TaskEnding,
    TaskId,
)
from millrace.extensions.simulate.cost_trace import (
    CostTrace,
    SimulatedCluster,
    SimulatedTask,
    SimulatedWorkload,
    describe_fragments,
)
from millrace.extensions.simulate.simulated_nodes import ClockEvent, EventClock, MessageQueue, SimulatedNodes
from millrace.output.output_parts import ReorderBuffer
from millrace.scheduler.protocol import (
    AttemptResult,
    BatchCut,
    BatchDivided,
    BatchExtent,
    BatchQuarantined,
    BatchSplit,
    DivideBatch,
    InputEnded,
    OutputBatch,
    QuarantineBatch,
    RunBegun,
    SchedulerAction,
    SchedulerEvent,
    SplitBatch,
    StopRun,
    SubmitTask,
    TaskFailed,
    TaskFailure,
    TickEnded,
)
from millrace.scheduler.scheduler import BatchScheduler, SchedulerSettings

#: Seconds between checks for stragglers, once the whole input is cut.
STRAGGLER_CHECK_SECONDS = 1.0


class SimulatedCoordinator:
    """The driver of the scheduler: it cuts batches, submits tasks and reports their ends.

    Args:
        root: Its own message queue.
        others: Those of the partition leaders, notified when the whole input is cut.
    """

    def __init__(
        self, machine: SimulatedCluster, trace: CostTrace, records: int, clock: EventClock, nodes: SimulatedNodes, root: MessageQueue, others: Sequence[MessageQueue]
    ) -> None:  # fmt: skip
        self._machine, self._trace, self._records = machine, trace, records
        self._clock, self._nodes, self._root, self._others = clock, nodes, root, others
        self._workload = SimulatedWorkload(machine, trace)
        self._total = trace.count_units_before(records)
        self.scheduler = BatchScheduler(SchedulerSettings(
            slots=machine.nodes * machine.cores, cost=msgspec.structs.replace(trace.make_hint(records), spread=machine.spread), batch_size=(machine.batch, 0),
            fragmented=describe_fragments(machine), n_nodes=machine.nodes if machine.homes else 1,
        ))  # fmt: skip
        #: Unfinished tasks, by id.
        self.tasks: dict[int, SimulatedTask] = {}
        #: Records [first, last) of each batch.
        self._batches: dict[BatchId, tuple[int, int]] = {}
        self._ids = map(BatchId, count(1))
        self._cut_to = 0
        self.n_tasks = self.quarantined = 0
        #: Number of rank and slice tasks.
        self.slices = 0
        self._output: ReorderBuffer[None] = ReorderBuffer()
        #: Time at which all output so far is written.
        self.written_at = 0.0
        #: Time at which the whole input was cut, and the busy seconds of all slots by then.
        self.all_cut: tuple[float, float] | None = None

    def begin_job(self) -> None:
        """Start the scheduler and cut the first batches."""
        self._send_event(RunBegun(), 0.0)
        self.cut_wanted_batches(0.0)

    def change_slots(self, slots: int, now: float) -> None:
        """Tell the scheduler how many slots there are from now on."""
        self._send_event(SlotsChanged(slots, ""), now)
        self.cut_wanted_batches(now)

    def count_records(self, work: SimulatedTask) -> int:
        """Return the number of records of an unfinished task."""
        first, last = self._batches[work.task.batch]
        return last - first

    def cut_wanted_batches(self, now: float) -> None:
        """Cut as many batches as the scheduler asks for."""
        while ask := self.scheduler.request_batches(float(self._total - self._trace.count_units_before(self._cut_to))):
            for _ in range(ask.n_batches):
                if self._cut_to == self._records:
                    self._end_input(now)
                    break
                first = self._cut_to
                self._cut_to = self._trace.find_batch_end(first, self._records, ask.records, ask.units)
                self._send_event(BatchCut(self._make_part(first, self._cut_to)), now)
        self._send_event(TickEnded(), now)

    def _end_input(self, now: float) -> None:
        self.all_cut = (now, self._nodes.count_busy_seconds(now))
        self._send_event(InputEnded(), now)
        for desk in (self._root, *self._others):
            desk.dispatcher.end_submission()
        if self._machine.copies:
            self._clock.schedule_event(now + STRAGGLER_CHECK_SECONDS, ClockEvent.LOOK, 0, 0)

    def _make_part(self, first: int, last: int) -> BatchExtent:
        batch = next(self._ids)
        self._batches[batch] = (first, last)
        return BatchExtent(
            batch, first, last, self._trace.count_units_before(last) - self._trace.count_units_before(first)
        )

    def _send_event(self, event: SchedulerEvent, now: float) -> None:
        for action in self.scheduler.handle(event, now):
            self._execute_action(action, now)

    def _execute_action(self, action: SchedulerAction, now: float) -> None:
        match action:
            case SubmitTask(task):
                self._submit_task(task, now)
            case SplitBatch(batch, records):
                first, last = self._batches.pop(batch)
                middle = first + records
                self._send_event(
                    BatchSplit(batch, [self._make_part(first, middle), self._make_part(middle, last)]), now
                )
            case DivideBatch(batch, n):
                first, last = self._batches.pop(batch)
                bounds = [first + (last - first) * k // n for k in range(n + 1)]
                parts = [self._make_part(begin, end) for begin, end in pairwise(bounds)]
                self._send_event(BatchDivided(batch, parts), now)
            case OutputBatch(batch):
                self._write_output(batch, now)
            case QuarantineBatch(batch):
                self.quarantined += 1
                self._write_output(batch, now)
                self._send_event(BatchQuarantined(batch), now)
            case StopRun(_, why):
                raise ToolError(f"the run would end before its time: {why.value}", "let fewer records fail")
            case _:
                pass

    def _write_output(self, batch: BatchId, now: float) -> None:
        """Write the output of a batch, and of those that waited for it: the output has the order of the input."""
        machine, trace = self._machine, self._trace
        for first, last, _ in self._output.push(*self._batches[batch], None) if machine.output_bytes else ():
            records = (trace.sum_seconds_before(last) - trace.sum_seconds_before(first)) / trace.mean_seconds
            seconds = records * machine.output_bytes / machine.write_bytes_per_second
            self.written_at = max(self.written_at, now) + seconds

    def _submit_task(self, task: SlotTask, now: float) -> None:
        self.tasks[task.id] = work = self._workload.make_task(task, *self._batches[task.batch])
        self.n_tasks += 1
        self.slices += isinstance(task.kind, SliceTask | RankTask)
        self._root.submit_task(work, now)

    def handle_task_end(self, member: int, task: int, seconds: float, now: float) -> None:
        """Handle the end of a task at ``member``, a node or a partition."""
        work = self.tasks.get(task)
        is_news = self._root.dispatcher.mark_ended(member, TaskId(task), seconds, now, counts=not (work and work.fails))
        self._root.send_assignments(now)
        if is_news:
            del self.tasks[task]
            assert work  # a task ends only once
            self._send_event(self._make_end_event(work, seconds), now)
        self.cut_wanted_batches(now)

    def _make_end_event(self, work: SimulatedTask, seconds: float) -> SchedulerEvent:
        task = work.task.id
        if work.fails:
            return TaskFailed(task, TaskFailure(AttemptResult.FAILED, f"record of {task}", "failed"))
        return TaskEnded(
            task=task,
            slot=SlotId(0),
            ago_seconds=0.0,
            ending=TaskEnding.DONE,
            wall_seconds=seconds,
            committed=work.result,
        )
