"""A discrete-event simulation of a job on a cluster. Every decision is made by the code of real runs.

Real: the ``Scheduler`` with its batch sizes (``sizing``), its handling of failing records and, for a database in
fragments, its searches and finishes (in one, in parts, or in slices); ``Dispatcher`` with its ``Placement`` and
``Homes`` at the root and in each partition, also when a node is lost; the rule that forms ``partitions``. Simulated:
the clock; a coordinator and partition leaders that handle one message at a time; messages of fixed latency; ``Nodes``.
Not simulated: start of the job, staging of databases, writing of output, restart after a lost coordinator or leader.
"""

from __future__ import annotations

import gc

from millrace.ids import TaskId
from millrace.schedule.partition import partitions
from millrace.simulate.clock import Clock, What
from millrace.simulate.coordinator import LOOK_SECONDS, Coordinator
from millrace.simulate.desk import Desk
from millrace.simulate.machine import Machine, Outcome
from millrace.simulate.nodes import Nodes
from millrace.simulate.trace import Trace


class Simulation:
    """The simulation of one job on one cluster; call ``run`` once.

    Raises:
        ValueError: The figures are impossible, or a node dies whose loss restarts a run.
    """

    def __init__(self, machine: Machine, trace: Trace, records: int) -> None:
        if records < 1:
            raise ValueError(f"{records} records")
        if machine.speeds and len(machine.speeds) != machine.nodes:
            raise ValueError(f"{machine.nodes} nodes, {len(machine.speeds)} speeds")
        self._machine, self._trace, self._records = machine, trace, records
        self._clock, self._nodes = Clock(), Nodes(machine)
        parts = partitions(machine.nodes, machine.partition_size)
        #: The leader of each partition, and the partition of each node; no leaders: the coordinator serves all nodes.
        self._leaders = [Desk(machine, self._clock, What.NODE_GETS, len(part)) for part in parts if len(parts) > 1]
        self._part_of = [number for number, part in enumerate(parts) for _ in part]
        self._root = Desk(machine, self._clock, What.LEADER_GETS if self._leaders else What.NODE_GETS)
        for number, (leader, part) in enumerate(zip(self._leaders, parts, strict=False)):
            leader.join(part)
            self._root.dispatcher.joined(number, machine.cores * len(part), 0.0, members=len(part))
        if len(parts) == 1:
            self._root.join(parts[0])
        for time, node in machine.deaths:
            if not 0 < node < machine.nodes or any(node == part[0] for part in parts):
                raise ValueError(f"node {node} leads others, or is not there")
            self._clock.later(time, What.NODE_DIES, node, 0)
        self._coordinator = Coordinator(machine, trace, records, self._clock, self._nodes, self._root, self._leaders)
        self._work = self._coordinator.tasks

    def run(self) -> Outcome:
        """Run the job to its end and return its figures.

        Raises:
            ToolError: More records fail than a run may quarantine.
        """
        # Millions of small objects are short-lived, and none of them is in a cycle.
        was = gc.isenabled()
        gc.disable()
        try:
            return self._run()
        finally:
            if was:
                gc.enable()

    def _run(self) -> Outcome:
        happens = {
            What.TASK_ENDED: self._ended, What.ROOT_TOLD: self._root_told, What.LEADER_TOLD: self._leader_told,
            What.LEADER_GETS: self._leader_gets, What.NODE_GETS: self._node_gets, What.LOOK: self._look,
            What.NODE_DIES: self._dies, What.NODE_MISSED: self._missed,
        }  # fmt: skip
        now, scheduler = 0.0, self._coordinator.scheduler
        self._coordinator.begin()
        while not scheduler.is_done:
            now, what, member, task = self._clock.next()
            happens[what](member, task, now)  # type: ignore[index]
        return self._outcome(max(now, self._root.free_at))

    # The coordinator and the leaders of partitions

    def _root_told(self, member: int, task: int, now: float) -> None:
        now = self._root.serve(now)
        work = self._work.get(task)
        speed = 1.0 if self._leaders else self._nodes.speeds[member]
        self._coordinator.ended(member, task, work.seconds / speed if work else 0.0, now)

    def _leader_gets(self, number: int, task: int, now: float) -> None:
        if work := self._work.get(task):
            leader = self._leaders[number]
            leader.submit(work, leader.serve(now))

    def _leader_told(self, node: int, task: int, now: float) -> None:
        number = self._part_of[node]
        leader = self._leaders[number]
        now = leader.serve(now)
        work = self._work.get(task)
        seconds = work.seconds / self._nodes.speeds[node] if work else 0.0
        is_news = leader.dispatcher.ended(node, TaskId(task), seconds, now, counts=not (work and work.fails))
        leader.send(now)
        if is_news:
            self._clock.later(leader.serve(now) + self._machine.latency_seconds, What.ROOT_TOLD, number, task)

    def _look(self, _: int, __: int, now: float) -> None:
        """Check for stragglers, now and again after ``LOOK_SECONDS``."""
        for desk in (*self._leaders, self._root):
            desk.look(now)
        self._clock.later(now + LOOK_SECONDS, What.LOOK, 0, 0)

    # Nodes

    def _node_gets(self, node: int, task: int, now: float) -> None:
        work = self._work.get(task)
        self._nodes.gets(node, task, urgent=work is not None and work.task.urgent)
        self._start(node, now)

    def _start(self, node: int, now: float) -> None:
        for task, end in self._nodes.starts(node, now, lambda task: self._seconds_on(node, task)):
            self._clock.later(end, What.TASK_ENDED, node, task)

    def _seconds_on(self, node: int, task: int) -> float:
        """Return the seconds of a task on a node; 0 for a queued copy of a task that has ended, as it is not run."""
        work = self._work.get(task)
        if work is None:
            return 0.0
        return work.seconds / self._nodes.speeds[node] + self._nodes.load_seconds(node, work.task.fragment)

    def _ended(self, node: int, task: int, now: float) -> None:
        if self._nodes.is_dead(node):
            return
        self._nodes.ends(node, now)
        self._start(node, now)
        what = What.LEADER_TOLD if self._leaders else What.ROOT_TOLD
        self._clock.later(now + self._machine.latency_seconds, what, node, task)

    def _dies(self, node: int, _: int, now: float) -> None:
        self._nodes.dies(node, now)
        self._clock.later(now + self._machine.silence_seconds, What.NODE_MISSED, node, 0)

    def _missed(self, node: int, _: int, now: float) -> None:
        """Continue without a node that was found dead."""
        if not self._leaders:
            self._root.dispatcher.lost(node, now)
        else:
            number = self._part_of[node]
            leader = self._leaders[number]
            leader.dispatcher.lost(node, now)
            leader.n_nodes -= 1
            leader.send(now)
            slots = self._machine.cores * leader.n_nodes
            self._root.dispatcher.joined(number, slots, now, members=leader.n_nodes)
        self._root.send(now)

    # The end

    def _outcome(self, seconds: float) -> Outcome:
        machine, nodes, done = self._machine, self._nodes, self._coordinator
        cores = machine.nodes * machine.cores
        could = cores * seconds
        work = self._trace.seconds(self._records)
        cut_at, busy_by_then = done.all_cut or (seconds, nodes.busy_seconds(seconds))
        startup = done.n_tasks * self._trace.startup_seconds
        efficiency = work / (sum(nodes.speeds) * machine.cores * seconds)
        starved = (cores * cut_at - busy_by_then) / could
        busiest = max((leader.handled for leader in self._leaders), default=0)
        return Outcome(
            cores=cores, partitions=len(self._leaders), records=self._records, tasks=done.n_tasks,
            copies=sum(desk.copies for desk in (self._root, *self._leaders)), seconds=seconds, work_seconds=work,
            longest_seconds=self._trace.longest_seconds, efficiency=efficiency, startup_share=startup / could,
            starved_share=starved, tail_share=max(1.0 - efficiency - startup / could - starved, 0.0),
            coordinator_share=self._root.handled * machine.service_seconds / seconds,
            leader_share=busiest * machine.service_seconds / seconds, loads=nodes.loads,
            retries=done.scheduler.n_retries, quarantined=done.quarantined, slices=done.slices,
        )  # fmt: skip
