"""A discrete-event simulation of a job on a cluster. Every decision is made by the code of real runs.

Real: the `Scheduler` with its batch sizes (`sizing`) and, for a database in fragments, its searches and finishes; `Dispatcher`
with its `Placement` and `Homes` at the root and in each partition; the rule that forms `partitions`. Simulated: the clock; a
coordinator and partition leaders that handle one message after the other; messages that take a fixed time; slots that take
the time that the trace says; nodes that keep the fragments that they searched last in memory. Not simulated: the start of
the job, staging of databases, writing of the output, failures.
"""

from __future__ import annotations

import gc
import heapq
import math
from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from millrace import _core
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
    BatchSplit,
    Begun,
    Happened,
    InputEnded,
    Part,
    Split,
    Submit,
    Turn,
)
from millrace.schedule.scheduler import Scheduler, Settings
from millrace.simulate.trace import Trace
from millrace.tasks import Ended, Ending, Search, Task, Whole

#: Seconds between looks for stragglers once all is cut.
TICK = 1.0


@dataclass(frozen=True)
class Machine:
    """The simulated cluster.

    Args:
        nodes: Nodes, of one agent each.
        cores: Slots of a node.
        latency_seconds: From the decision to send a message until its receiver looks at it; mostly the pause of a
            receiver that has had nothing to do.
        service_seconds: What a coordinator or partition leader needs for each task message, in or out.
        partition_size: Nodes of a partition; None: as in a real run.
        speeds: Speed of each node; empty: 1 for all.
        prefetch: Whether nodes hold tasks beyond their slots.
        copies: Whether stragglers are run a second time on idle slots.
        batch: Records of each batch; 0: sized by measurement, as in a real run.
        fragments: Fragments of the database, each of which every batch is searched against; 0: it is whole.
        resident: Fragments that the memory of a node holds.
        load_seconds: What a task takes longer whose fragment is not in its node's memory.
        homes: Whether nodes are given again what they have in memory.
    """

    nodes: int
    cores: int
    latency_seconds: float = 0.005
    service_seconds: float = 50e-6
    partition_size: int | None = None
    speeds: Sequence[float] = ()
    prefetch: bool = True
    copies: bool = True
    batch: int = 0
    fragments: int = 0
    resident: int = 1
    load_seconds: float = 0.0
    homes: bool = True


@dataclass(frozen=True)
class Outcome:
    """What came out; times in seconds."""

    cores: int
    partitions: int
    records: int
    tasks: int
    #: Tasks that were run a second time.
    copies: int
    #: From the first message to the end of the last task, as the coordinator knows it.
    seconds: float
    #: Time of the records alone on one core of speed 1, and of the longest one: no run is shorter than that.
    work_seconds: float
    longest_seconds: float
    #: Work over what all cores could have done in that time, from 0 to 1.
    efficiency: float
    #: Shares of the cores' time: start of tools, idle while there was input to cut, idle or copying after it.
    startup_share: float
    starved_share: float
    tail_share: float
    #: Share of the time that the coordinator, and the busiest partition leader, handled messages.
    coordinator_share: float
    leader_share: float
    #: Tasks that had to read their fragment.
    loads: int = 0


@dataclass(slots=True)
class _Desk:
    """A process that handles one message after the other."""

    service: float
    free_at: float = 0.0
    handled: int = 0

    def serve(self, now: float) -> float:
        """Handle one message that is there at ``now``; return when that is done."""
        self.handled += 1
        self.free_at = max(self.free_at, now) + self.service
        return self.free_at


@dataclass
class _Leader:
    """A partition: the desk of its leader, and how it spreads tasks over its nodes."""

    desk: _Desk
    dispatcher: Dispatcher[None]


# What happens, in the words of the one to whom it happens. The number decides between events of one time.
_TASK_ENDED, _ROOT_TOLD, _LEADER_TOLD, _LEADER_GETS, _NODE_GETS, _LOOK = range(6)


@dataclass
class Simulation:
    """One job on one machine; `run` it once."""

    machine: Machine
    trace: Trace
    records: int
    _events: list[tuple[float, int, int, int, int]] = field(default_factory=list)
    _serial: int = 0
    #: Each task that is not done, its units and its seconds.
    _tasks: dict[int, tuple[Task, float, float]] = field(default_factory=dict)
    #: Records [first, last) of each batch.
    _batches: dict[BatchId, tuple[int, int]] = field(default_factory=dict)
    _cut_to: int = 0
    _n_batches: int = 0
    _n_tasks: int = 0
    _copies: int = 0
    _busy: int = 0
    _busy_since: float = 0.0
    _busy_seconds: float = 0.0
    _loads: int = 0
    #: When all was cut, and how long slots had been busy by then.
    _all_cut: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        machine = self.machine
        if self.records < 1:
            raise ValueError(f"{self.records} records")
        if machine.speeds and len(machine.speeds) != machine.nodes:
            raise ValueError(f"{machine.nodes} nodes, {len(machine.speeds)} speeds")
        self._total = self.trace.units(self.records)
        self._speeds = list(machine.speeds) or [1.0] * machine.nodes
        self._free = [machine.cores] * machine.nodes
        self._queues: list[deque[int]] = [deque() for _ in range(machine.nodes)]
        self._desk = _Desk(machine.service_seconds)
        self._dispatcher = self._new_dispatcher()
        self._memory: list[OrderedDict[int, None]] = [OrderedDict() for _ in range(machine.nodes)]
        self._scheduler = Scheduler(Settings(
            slots=machine.nodes * machine.cores, cost=self.trace.hint, batch_size=(machine.batch, 0),
            fragmented=_fragmented(machine.fragments) if machine.fragments else None,
            n_nodes=machine.nodes if machine.homes else 1,
        ))  # fmt: skip
        parts = partitions(machine.nodes, machine.partition_size)
        self._leaders: list[_Leader] = []
        self._part_of: list[int] = []
        if len(parts) == 1:
            for node in parts[0]:
                self._dispatcher.joined(node, machine.cores, 0.0)
            return
        for number, part in enumerate(parts):
            leader = _Leader(_Desk(machine.service_seconds), self._new_dispatcher())
            for node in part:
                leader.dispatcher.joined(node, machine.cores, 0.0)
                self._part_of.append(number)
            self._leaders.append(leader)
            self._dispatcher.joined(number, machine.cores * len(part), 0.0, members=len(part))

    def _new_dispatcher(self) -> Dispatcher[None]:
        machine = self.machine
        placement = Placement(2 * machine.latency_seconds, MOST_AHEAD if machine.prefetch else 0)
        return Dispatcher(machine.fragments if machine.homes else 0, placement)

    def run(self) -> Outcome:
        """Run the job to its end."""
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
        self._tell(Begun(), now)
        self._feed(now)
        while not self._scheduler.is_done:
            now, what, _, member, task = heapq.heappop(self._events)
            if what == _NODE_GETS:
                queue = self._queues[member]
                is_urgent = task in self._tasks and self._tasks[task][0].urgent
                (queue.appendleft if is_urgent else queue.append)(task)
                self._start(member, now)
            elif what == _TASK_ENDED:
                self._end(member, task, now)
            elif what == _ROOT_TOLD:
                self._root_told(member, task, now)
            elif what == _LEADER_GETS:
                self._leader_gets(member, task, now)
            elif what == _LEADER_TOLD:
                self._leader_told(member, task, now)
            else:
                self._look(now)
        return self._outcome(max(now, self._desk.free_at))

    def _later(self, time: float, what: int, member: int, task: int) -> None:
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
        self._count_busy(now)
        self._all_cut = (now, self._busy_seconds)
        self._tell(InputEnded(), now)
        for dispatcher in (self._dispatcher, *(leader.dispatcher for leader in self._leaders)):
            dispatcher.no_more()
        if self.machine.copies:
            self._later(now + TICK, _LOOK, 0, 0)

    def _part(self, first: int, last: int) -> Part:
        self._n_batches += 1
        batch = BatchId(self._n_batches)
        self._batches[batch] = (first, last)
        return Part(batch, first, last, self.trace.units(last) - self.trace.units(first))

    def _tell(self, event: Happened, now: float) -> None:
        self._do(self._scheduler.handle(event, now), now)

    def _do(self, actions: Sequence[Action], now: float) -> None:
        for action in actions:
            match action:
                case Submit(task):
                    self._submit(task, now)
                case Split(batch, records):
                    first, last = self._batches.pop(batch)
                    middle = first + records
                    self._tell(BatchSplit(batch, [self._part(first, middle), self._part(middle, last)]), now)
                case _:
                    pass  # nothing fails here, and nobody reads the output

    def _submit(self, task: Task, now: float) -> None:
        first, last = self._batches[task.batch]
        units = float(self.trace.units(last) - self.trace.units(first))
        self._tasks[task.id] = (task, units, self._seconds(task, first, last))
        self._n_tasks += 1
        self._dispatcher.submit(task, None, units, now)
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
        what = _LEADER_GETS if self._leaders else _NODE_GETS
        for send, _ in self._dispatcher.take():
            self._copies += send.duplicate
            self._later(self._desk.serve(now) + self.machine.latency_seconds, what, send.node, send.task)

    def _root_told(self, member: int, task: int, now: float) -> None:
        now = self._desk.serve(now)
        seconds = self._tasks[task][2] / self._speed(member) if task in self._tasks else 0.0
        ended = self._dispatcher.ended(member, TaskId(task), seconds, now, counts=True)
        self._root_sends(now)
        if ended:
            self._done(task, seconds, now)
        self._feed(now)

    def _done(self, task: int, seconds: float, now: float) -> None:
        """A task came to its end."""
        del self._tasks[task]
        self._tell(
            Ended(
                task=TaskId(task), slot=SlotId(0), ago_seconds=0.0, ending=Ending.DONE, wall_seconds=seconds,
                committed=_NOTHING,
            ),
            now,
        )  # fmt: skip

    def _speed(self, member: int) -> float:
        return 1.0 if self._leaders else self._speeds[member]

    def _look(self, now: float) -> None:
        """Look for stragglers."""
        for number, leader in enumerate(self._leaders):
            leader.dispatcher.look(now)
            self._leader_sends(number, now)
        self._dispatcher.look(now)
        self._root_sends(now)
        self._later(now + TICK, _LOOK, 0, 0)

    # Partition leaders

    def _leader_gets(self, number: int, task: int, now: float) -> None:
        leader = self._leaders[number]
        if task not in self._tasks:
            return
        now = leader.desk.serve(now)
        which, units, _ = self._tasks[task]
        leader.dispatcher.submit(which, None, units, now)
        self._leader_sends(number, now)

    def _leader_sends(self, number: int, now: float) -> None:
        desk = self._leaders[number].desk
        for send, _ in self._leaders[number].dispatcher.take():
            self._copies += send.duplicate
            self._later(desk.serve(now) + self.machine.latency_seconds, _NODE_GETS, send.node, send.task)

    def _leader_told(self, node: int, task: int, now: float) -> None:
        number = self._part_of[node]
        leader = self._leaders[number]
        now = leader.desk.serve(now)
        seconds = self._tasks[task][2] / self._speeds[node] if task in self._tasks else 0.0
        ended = leader.dispatcher.ended(node, TaskId(task), seconds, now, counts=True)
        self._leader_sends(number, now)
        if ended:
            self._later(leader.desk.serve(now) + self.machine.latency_seconds, _ROOT_TOLD, number, task)

    # Nodes

    def _start(self, node: int, now: float) -> None:
        queue = self._queues[node]
        while queue and self._free[node]:
            task = queue.popleft()
            # A copy that is still in the queue when the other one ends is not run.
            seconds = self._tasks[task][2] / self._speeds[node] + self._load(node, task) if task in self._tasks else 0.0
            self._free[node] -= 1
            self._count_busy(now)
            self._busy += 1
            self._later(now + seconds, _TASK_ENDED, node, task)

    def _load(self, node: int, task: int) -> float:
        """Seconds that a node needs to read what a task searches, unless it is in its memory."""
        fragment, memory = self._tasks[task][0].fragment, self._memory[node]
        if not fragment:
            return 0.0
        held = fragment in memory
        memory[fragment] = None
        memory.move_to_end(fragment)
        if len(memory) > self.machine.resident:
            memory.popitem(last=False)
        self._loads += not held
        return 0.0 if held else self.machine.load_seconds

    def _end(self, node: int, task: int, now: float) -> None:
        self._free[node] += 1
        self._count_busy(now)
        self._busy -= 1
        self._start(node, now)
        self._later(now + self.machine.latency_seconds, _LEADER_TOLD if self._leaders else _ROOT_TOLD, node, task)

    def _count_busy(self, now: float) -> None:
        self._busy_seconds += self._busy * (now - self._busy_since)
        self._busy_since = now

    # The end

    def _outcome(self, seconds: float) -> Outcome:
        self._count_busy(seconds)
        machine = self.machine
        cores = machine.nodes * machine.cores
        could = cores * seconds
        work = self.trace.seconds(self.records)
        cut_at, busy_by_then = self._all_cut or (seconds, self._busy_seconds)
        startup = self._n_tasks * self.trace.startup_seconds
        efficiency = work / (sum(self._speeds) * machine.cores * seconds)
        starved = (cores * cut_at - busy_by_then) / could
        return Outcome(
            cores=cores, partitions=len(self._leaders), records=self.records, tasks=self._n_tasks, copies=self._copies,
            seconds=seconds, work_seconds=work, longest_seconds=self.trace.longest_seconds, efficiency=efficiency, startup_share=startup / could,
            starved_share=starved, tail_share=max(1.0 - efficiency - startup / could - starved, 0.0),
            coordinator_share=self._desk.handled * machine.service_seconds / seconds,
            leader_share=max((leader.desk.handled for leader in self._leaders), default=0)
            * machine.service_seconds / seconds, loads=self._loads,
        )  # fmt: skip


def _fragmented(n: int) -> Fragmented:
    """A database in ``n`` fragments, as far as the scheduler looks at it."""
    return Fragmented(
        kind="simulated", fragments=tuple(Fragment(first=k, last=k + 1, size=1, argv=()) for k in range(n)),
        found=OutputUse(name="found", path=""), finish=(), database="",
    )  # fmt: skip


#: What a task gives here.
_NOTHING = _core.TaskRef("", (0, 0, 0), False, [], [(0, b"", 0, 0, 0)])


def static_seconds(trace: Trace, records: int, cores: int) -> float:
    """Seconds of the same job, were the records divided beforehand into equal numbers for the cores, in order."""
    bounds = [core * records // cores for core in range(cores + 1)]
    return trace.startup_seconds + max(trace.seconds(last) - trace.seconds(first) for first, last in pairwise(bounds))


def in_order_seconds(trace: Trace, records: int, cores: int) -> float:
    """Seconds of the same job if each core took one record after the other in their order, and nothing else cost time.

    No dispatcher does better that learns what a record takes by running it, except by luck: one that is long and comes
    last ends last.
    """
    begun = max(records - math.ceil(4 * trace.longest_seconds / trace.mean_seconds) * cores, 0)
    last = begin = trace.seconds(begun) / cores
    free = [begin] * cores
    for record in range(begun, records):
        end = free[0] + trace.seconds(record + 1) - trace.seconds(record)
        heapq.heapreplace(free, end)
        last = max(last, end)
    return last
