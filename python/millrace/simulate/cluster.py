"""A discrete-event simulation of a job on a cluster. Every decision is made by the code of real runs.

Real: the `Scheduler` with its batch sizes (`sizing`) and, for a database in fragments, its searches and finishes; what it
does with records that fail; `Dispatcher` with its `Placement` and `Homes` at the root and in each partition, also when a
node is lost; the rule that forms `partitions`. Simulated: the clock; a coordinator and partition leaders that handle one
message after the other; messages that take a fixed time; `Nodes`. Not simulated: the start of the job, staging of
databases, writing of the output, a start again after the loss of a coordinator or leader.
"""

from __future__ import annotations

import gc
import heapq
from dataclasses import dataclass, field
from enum import IntEnum

from millrace import _core
from millrace.errors import ToolError
from millrace.ids import BatchId, SlotId, TaskId
from millrace.model import Fragment, Fragmented, OutputUse
from millrace.schedule.dispatcher import Dispatcher
from millrace.schedule.node_load import MOST_AHEAD
from millrace.schedule.partition import partitions
from millrace.schedule.placement import Placement
from millrace.schedule.protocol import (
    Action,
    Ask,
    BatchCut,
    BatchQuarantined,
    BatchSplit,
    Begun,
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
from millrace.simulate.machine import Machine, Outcome
from millrace.simulate.nodes import Nodes
from millrace.simulate.trace import Trace
from millrace.tasks import Ended, Ending, Search, Task, Whole

#: Seconds between looks for stragglers once all is cut.
LOOK_SECONDS = 1.0


@dataclass(slots=True)
class _Desk:
    """A process that handles one message after the other, and gives tasks to others."""

    dispatcher: Dispatcher[None]
    service: float
    free_at: float = 0.0
    handled: int = 0
    #: Nodes that it stands for.
    n_nodes: int = 0

    def serve(self, now: float) -> float:
        """Handle one message that is there at ``now``; return when that is done."""
        self.handled += 1
        self.free_at = max(self.free_at, now) + self.service
        return self.free_at


@dataclass(slots=True)
class _Work:
    """A task that is not done."""

    task: Task
    units: float
    seconds: float
    fails: bool


class _What(IntEnum):
    """What happens, in the words of the one to whom it happens. The number decides between events of one time."""

    TASK_ENDED = 0
    ROOT_TOLD = 1
    LEADER_TOLD = 2
    LEADER_GETS = 3
    NODE_GETS = 4
    LOOK = 5
    NODE_DIES = 6
    NODE_MISSED = 7


@dataclass
class Simulation:
    """One job on one machine; `run` it once.

    Raises:
        ValueError: There is no such machine, or a node dies without which the run would start again.
    """

    machine: Machine
    trace: Trace
    records: int
    _events: list[tuple[float, int, int, int, int]] = field(default_factory=list)
    _serial: int = 0
    _tasks: dict[int, _Work] = field(default_factory=dict)
    #: Records [first, last) of each batch.
    _batches: dict[BatchId, tuple[int, int]] = field(default_factory=dict)
    _cut_to: int = 0
    _n_batches: int = 0
    _n_tasks: int = 0
    _copies: int = 0
    _quarantined: int = 0
    #: When all was cut, and how long slots had been busy by then.
    _all_cut: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        machine = self.machine
        if self.records < 1:
            raise ValueError(f"{self.records} records")
        if machine.speeds and len(machine.speeds) != machine.nodes:
            raise ValueError(f"{machine.nodes} nodes, {len(machine.speeds)} speeds")
        self._total = self.trace.units(self.records)
        self._nodes = Nodes(machine)
        self._root = self._desk()
        self._scheduler = Scheduler(Settings(
            slots=machine.nodes * machine.cores, cost=self.trace.hint, batch_size=(machine.batch, 0),
            fragmented=_fragmented(machine.fragments) if machine.fragments else None,
            n_nodes=machine.nodes if machine.homes else 1,
        ))  # fmt: skip
        #: The desk of each partition, and whose each node is; none: all are the coordinator's.
        self._leaders: list[_Desk] = []
        self._part_of: list[int] = []
        parts = partitions(machine.nodes, machine.partition_size)
        for number, part in enumerate(parts if len(parts) > 1 else []):
            leader = self._desk(len(part))
            self._leaders.append(leader)
            self._part_of += [number] * len(part)
            self._join(leader, part)
            self._root.dispatcher.joined(number, machine.cores * len(part), 0.0, members=len(part))
        if len(parts) == 1:
            self._join(self._root, parts[0])
        for time, node in machine.deaths:
            if not 0 < node < machine.nodes or any(node == part[0] for part in parts):
                raise ValueError(f"node {node} leads others, or is not there")
            self._later(time, _What.NODE_DIES, node, 0)

    def _desk(self, n_nodes: int = 0) -> _Desk:
        machine = self.machine
        placement = Placement(2 * machine.latency_seconds, MOST_AHEAD if machine.prefetch else 0)
        dispatcher: Dispatcher[None] = Dispatcher(machine.fragments if machine.homes else 0, placement)
        return _Desk(dispatcher, machine.service_seconds, n_nodes=n_nodes)

    def _join(self, desk: _Desk, nodes: range) -> None:
        for node in nodes:
            desk.dispatcher.joined(node, self.machine.cores, 0.0)

    def run(self) -> Outcome:
        """Run the job to its end.

        Raises:
            ToolError: More records fail than a run gives up.
        """
        # Millions of small objects live for a moment, and none of them is in a cycle.
        was = gc.isenabled()
        gc.disable()
        try:
            return self._run()
        finally:
            if was:
                gc.enable()

    def _run(self) -> Outcome:
        now = 0.0
        happens = {
            _What.TASK_ENDED: self._end, _What.ROOT_TOLD: self._root_told, _What.LEADER_TOLD: self._leader_told,
            _What.LEADER_GETS: self._leader_gets, _What.NODE_GETS: self._node_gets, _What.LOOK: self._look,
            _What.NODE_DIES: self._dies, _What.NODE_MISSED: self._missed,
        }  # fmt: skip
        self._tell(Begun(), now)
        self._feed(now)
        while not self._scheduler.is_done:
            now, what, _, member, task = heapq.heappop(self._events)
            happens[what](member, task, now)  # type: ignore[index]
        return self._outcome(max(now, self._root.free_at))

    def _later(self, time: float, what: _What, member: int, task: int) -> None:
        self._serial += 1
        heapq.heappush(self._events, (time, what, self._serial, member, task))

    # The coordinator

    def _feed(self, now: float) -> None:
        """Cut as many batches as the scheduler wants."""
        while ask := self._scheduler.ask(float(self._total - self.trace.units(self._cut_to))):
            for _ in range(ask.n_batches):
                if self._cut_to == self.records:
                    self._end_input(now)
                    break
                self._cut(ask, now)
        self._tell(Turn(), now)

    def _cut(self, ask: Ask, now: float) -> None:
        first, self._cut_to = self._cut_to, self.trace.cut(self._cut_to, self.records, ask.records, ask.units)
        self._tell(BatchCut(self._part(first, self._cut_to)), now)

    def _end_input(self, now: float) -> None:
        self._all_cut = (now, self._nodes.busy_seconds(now))
        self._tell(InputEnded(), now)
        for desk in (self._root, *self._leaders):
            desk.dispatcher.no_more()
        if self.machine.copies:
            self._later(now + LOOK_SECONDS, _What.LOOK, 0, 0)

    def _part(self, first: int, last: int) -> Part:
        self._n_batches += 1
        batch = BatchId(self._n_batches)
        self._batches[batch] = (first, last)
        return Part(batch, first, last, self.trace.units(last) - self.trace.units(first))

    def _tell(self, event: Happened, now: float) -> None:
        for action in self._scheduler.handle(event, now):
            self._do(action, now)

    def _do(self, action: Action, now: float) -> None:
        match action:
            case Submit(task):
                self._submit(task, now)
            case Split(batch, records):
                first, last = self._batches.pop(batch)
                middle = first + records
                self._tell(BatchSplit(batch, [self._part(first, middle), self._part(middle, last)]), now)
            case Quarantine(batch):
                self._quarantined += 1
                self._tell(BatchQuarantined(batch), now)
            case Stop(_, why):
                raise ToolError(f"the run would end before its time: {why.value}", "let fewer records fail")
            case _:
                pass  # nobody reads the output

    def _submit(self, task: Task, now: float) -> None:
        first, last = self._batches[task.batch]
        units = float(self.trace.units(last) - self.trace.units(first))
        failing = self.machine.failing
        fails = bool(failing) and any(record in failing for record in range(first, last))
        self._tasks[task.id] = _Work(task, units, self._seconds(task, first, last), fails)
        self._n_tasks += 1
        self._root.dispatcher.submit(task, None, units, now)
        self._root_sends(now)

    def _seconds(self, task: Task, first: int, last: int) -> float:
        """What a task takes: a search its part of the database; the candidates are few."""
        work = self.trace.seconds(last) - self.trace.seconds(first)
        if isinstance(task.kind, Search):
            work /= self.machine.fragments
        elif not isinstance(task.kind, Whole):
            work = 0.0
        return self.trace.startup_seconds + work

    def _root_sends(self, now: float) -> None:
        self._send(self._root, _What.LEADER_GETS if self._leaders else _What.NODE_GETS, now)

    def _send(self, desk: _Desk, what: _What, now: float) -> None:
        for send, _ in desk.dispatcher.take():
            self._copies += send.duplicate
            self._later(desk.serve(now) + self.machine.latency_seconds, what, send.node, send.task)

    def _root_told(self, member: int, task: int, now: float) -> None:
        now = self._root.serve(now)
        work = self._tasks.get(task)
        speed = 1.0 if self._leaders else self._nodes.speeds[member]
        seconds = work.seconds / speed if work else 0.0
        counts = not (work and work.fails)
        is_news = self._root.dispatcher.ended(member, TaskId(task), seconds, now, counts=counts)
        self._root_sends(now)
        if is_news:
            self._done(task, seconds, now)
        self._feed(now)

    def _done(self, task: int, seconds: float, now: float) -> None:
        """A task came to its end."""
        if self._tasks.pop(task).fails:
            self._tell(TaskFailed(TaskId(task), Failure(Result.FAILED, f"record of {task}", "failed")), now)
            return
        self._tell(
            Ended(
                task=TaskId(task), slot=SlotId(0), ago_seconds=0.0, ending=Ending.DONE, wall_seconds=seconds,
                committed=_NOTHING,
            ),
            now,
        )  # fmt: skip

    def _look(self, _: int, __: int, now: float) -> None:
        """Look for stragglers."""
        for leader in self._leaders:
            leader.dispatcher.look(now)
            self._send(leader, _What.NODE_GETS, now)
        self._root.dispatcher.look(now)
        self._root_sends(now)
        self._later(now + LOOK_SECONDS, _What.LOOK, 0, 0)

    # Partition leaders

    def _leader_gets(self, number: int, task: int, now: float) -> None:
        leader = self._leaders[number]
        if work := self._tasks.get(task):
            now = leader.serve(now)
            leader.dispatcher.submit(work.task, None, work.units, now)
            self._send(leader, _What.NODE_GETS, now)

    def _leader_told(self, node: int, task: int, now: float) -> None:
        number = self._part_of[node]
        leader = self._leaders[number]
        now = leader.serve(now)
        work = self._tasks.get(task)
        seconds = work.seconds / self._nodes.speeds[node] if work else 0.0
        counts = not (work and work.fails)
        is_news = leader.dispatcher.ended(node, TaskId(task), seconds, now, counts=counts)
        self._send(leader, _What.NODE_GETS, now)
        if is_news:
            self._later(leader.serve(now) + self.machine.latency_seconds, _What.ROOT_TOLD, number, task)

    # Nodes

    def _node_gets(self, node: int, task: int, now: float) -> None:
        work = self._tasks.get(task)
        self._nodes.gets(node, task, urgent=work is not None and work.task.urgent)
        self._start(node, now)

    def _start(self, node: int, now: float) -> None:
        for task, end in self._nodes.starts(node, now, lambda task: self._seconds_on(node, task)):
            self._later(end, _What.TASK_ENDED, node, task)

    def _seconds_on(self, node: int, task: int) -> float:
        """What a task takes on a node; a copy that is still in the queue when the other one ends is not run."""
        work = self._tasks.get(task)
        if work is None:
            return 0.0
        return work.seconds / self._nodes.speeds[node] + self._nodes.load_seconds(node, work.task.fragment)

    def _end(self, node: int, task: int, now: float) -> None:
        if self._nodes.is_dead(node):
            return
        self._nodes.ends(node, now)
        self._start(node, now)
        what = _What.LEADER_TOLD if self._leaders else _What.ROOT_TOLD
        self._later(now + self.machine.latency_seconds, what, node, task)

    def _dies(self, node: int, _: int, now: float) -> None:
        self._nodes.dies(node, now)
        self._later(now + self.machine.silence_seconds, _What.NODE_MISSED, node, 0)

    def _missed(self, node: int, _: int, now: float) -> None:
        """Go on without a node."""
        if not self._leaders:
            self._root.dispatcher.lost(node, now)
        else:
            number = self._part_of[node]
            leader = self._leaders[number]
            leader.dispatcher.lost(node, now)
            leader.n_nodes -= 1
            self._send(leader, _What.NODE_GETS, now)
            slots = self.machine.cores * leader.n_nodes
            self._root.dispatcher.joined(number, slots, now, members=leader.n_nodes)
        self._root_sends(now)

    # The end

    def _outcome(self, seconds: float) -> Outcome:
        machine, nodes = self.machine, self._nodes
        cores = machine.nodes * machine.cores
        could = cores * seconds
        work = self.trace.seconds(self.records)
        cut_at, busy_by_then = self._all_cut or (seconds, nodes.busy_seconds(seconds))
        startup = self._n_tasks * self.trace.startup_seconds
        efficiency = work / (sum(nodes.speeds) * machine.cores * seconds)
        starved = (cores * cut_at - busy_by_then) / could
        busiest = max((leader.handled for leader in self._leaders), default=0)
        return Outcome(
            cores=cores, partitions=len(self._leaders), records=self.records, tasks=self._n_tasks, copies=self._copies,
            seconds=seconds, work_seconds=work, longest_seconds=self.trace.longest_seconds, efficiency=efficiency,
            startup_share=startup / could, starved_share=starved,
            tail_share=max(1.0 - efficiency - startup / could - starved, 0.0),
            coordinator_share=self._root.handled * machine.service_seconds / seconds,
            leader_share=busiest * machine.service_seconds / seconds, loads=nodes.loads,
            retries=self._scheduler.n_retries, quarantined=self._quarantined,
        )  # fmt: skip


def _fragmented(n: int) -> Fragmented:
    """A database in ``n`` fragments, as far as the scheduler looks at it."""
    return Fragmented(
        fragments=tuple(Fragment(first=k, last=k + 1, size=1, argv=()) for k in range(n)),
        found=OutputUse(name="found", path=""), finish=(), database="",
    )  # fmt: skip


#: What a task gives here.
_NOTHING = _core.TaskRef("", (0, 0, 0), False, [], [(0, b"", 0, 0, 0)])
