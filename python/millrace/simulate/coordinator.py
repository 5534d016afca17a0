"""The coordinator of a simulated job: it drives the scheduler as the engine does in a real run."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count, pairwise

from millrace.errors import ToolError
from millrace.ids import BatchId, SlotId, TaskId
from millrace.schedule.protocol import (
    Action,
    BatchCut,
    BatchDivided,
    BatchQuarantined,
    BatchSplit,
    Begun,
    Divide,
    Failure,
    Happened,
    InputEnded,
    Part,
    Quarantine,
    Result,
    Split,
    Stop,
    Submit,
    TaskFailed,
    Turn,
)
from millrace.schedule.scheduler import Scheduler, Settings
from millrace.simulate.clock import Clock, What
from millrace.simulate.desk import Desk
from millrace.simulate.machine import Machine
from millrace.simulate.nodes import Nodes
from millrace.simulate.trace import Trace
from millrace.simulate.work import Work, Workload, fragmented
from millrace.tasks import Ended, Ending, Rank, Slice, Task

#: Seconds between checks for stragglers, once the whole input is cut.
LOOK_SECONDS = 1.0


class Coordinator:
    """The driver of the scheduler: it cuts batches, submits tasks and reports their ends.

    Args:
        root: Its own message queue.
        others: Those of the partition leaders, notified when the whole input is cut.
    """

    def __init__(
        self, machine: Machine, trace: Trace, records: int, clock: Clock, nodes: Nodes, root: Desk, others: Sequence[Desk]
    ) -> None:  # fmt: skip
        self._machine, self._trace, self._records = machine, trace, records
        self._clock, self._nodes, self._root, self._others = clock, nodes, root, others
        self._workload = Workload(machine, trace)
        self._total = trace.units(records)
        self.scheduler = Scheduler(Settings(
            slots=machine.nodes * machine.cores, cost=trace.hint, batch_size=(machine.batch, 0),
            fragmented=fragmented(machine), n_nodes=machine.nodes if machine.homes else 1,
        ))  # fmt: skip
        #: Unfinished tasks, by id.
        self.tasks: dict[int, Work] = {}
        #: Records [first, last) of each batch.
        self._batches: dict[BatchId, tuple[int, int]] = {}
        self._ids = map(BatchId, count(1))
        self._cut_to = 0
        self.n_tasks = self.quarantined = 0
        #: Number of rank and slice tasks.
        self.slices = 0
        #: Time at which the whole input was cut, and the busy seconds of all slots by then.
        self.all_cut: tuple[float, float] | None = None

    def begin(self) -> None:
        """Start the scheduler and cut the first batches."""
        self._tell(Begun(), 0.0)
        self.feed(0.0)

    def feed(self, now: float) -> None:
        """Cut as many batches as the scheduler asks for."""
        while ask := self.scheduler.ask(float(self._total - self._trace.units(self._cut_to))):
            for _ in range(ask.n_batches):
                if self._cut_to == self._records:
                    self._end_input(now)
                    break
                first = self._cut_to
                self._cut_to = self._trace.cut(first, self._records, ask.records, ask.units)
                self._tell(BatchCut(self._part(first, self._cut_to)), now)
        self._tell(Turn(), now)

    def _end_input(self, now: float) -> None:
        self.all_cut = (now, self._nodes.busy_seconds(now))
        self._tell(InputEnded(), now)
        for desk in (self._root, *self._others):
            desk.dispatcher.no_more()
        if self._machine.copies:
            self._clock.later(now + LOOK_SECONDS, What.LOOK, 0, 0)

    def _part(self, first: int, last: int) -> Part:
        batch = next(self._ids)
        self._batches[batch] = (first, last)
        return Part(batch, first, last, self._trace.units(last) - self._trace.units(first))

    def _tell(self, event: Happened, now: float) -> None:
        for action in self.scheduler.handle(event, now):
            self._do(action, now)

    def _do(self, action: Action, now: float) -> None:
        match action:
            case Submit(task):
                self._submit(task, now)
            case Split(batch, records):
                first, last = self._batches.pop(batch)
                middle = first + records
                self._tell(BatchSplit(batch, [self._part(first, middle), self._part(middle, last)]), now)
            case Divide(batch, n):
                first, last = self._batches.pop(batch)
                bounds = [first + (last - first) * k // n for k in range(n + 1)]
                parts = [self._part(begin, end) for begin, end in pairwise(bounds)]
                self._tell(BatchDivided(batch, parts), now)
            case Quarantine(batch):
                self.quarantined += 1
                self._tell(BatchQuarantined(batch), now)
            case Stop(_, why):
                raise ToolError(f"the run would end before its time: {why.value}", "let fewer records fail")
            case _:
                pass  # there is no output

    def _submit(self, task: Task, now: float) -> None:
        self.tasks[task.id] = work = self._workload.of(task, *self._batches[task.batch])
        self.n_tasks += 1
        self.slices += isinstance(task.kind, Slice | Rank)
        self._root.submit(work, now)

    def ended(self, member: int, task: int, seconds: float, now: float) -> None:
        """Handle the end of a task at ``member``, a node or a partition."""
        work = self.tasks.get(task)
        is_news = self._root.dispatcher.ended(member, TaskId(task), seconds, now, counts=not (work and work.fails))
        self._root.send(now)
        if is_news:
            del self.tasks[task]
            assert work  # a task ends only once
            self._tell(self._news(work, seconds), now)
        self.feed(now)

    def _news(self, work: Work, seconds: float) -> Happened:
        task = work.task.id
        if work.fails:
            return TaskFailed(task, Failure(Result.FAILED, f"record of {task}", "failed"))
        return Ended(
            task=task, slot=SlotId(0), ago_seconds=0.0, ending=Ending.DONE, wall_seconds=seconds, committed=work.result
        )
