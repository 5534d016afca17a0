"""A discrete-event simulation of a job on a cluster. Every decision is made by the code of real runs.

Real: the ``BatchScheduler`` with its batch sizes (``batch_sizing``), its handling of failing records and, for a
database in fragments, its searches and finishes (in one, in parts, or in slices); ``TaskDispatcher`` with its
``TaskPlacement`` and ``FragmentAffinity`` at the root and in each partition, also when a node is lost; the rule that
forms partitions. Simulated: the clock; a coordinator and partition leaders that handle one message at a time;
messages of fixed latency; ``SimulatedNodes``; the output, written in the order of the input at a fixed rate. Not
simulated: start of the job, staging of databases, restart after a lost coordinator or leader.
"""

from __future__ import annotations

import gc
from collections.abc import Mapping

from millrace.core.tasks import TaskId
from millrace.extensions.simulate.cost_trace import CostTrace, SimulatedCluster, SimulationOutcome
from millrace.extensions.simulate.simulated_coordinator import STRAGGLER_CHECK_SECONDS, SimulatedCoordinator
from millrace.extensions.simulate.simulated_nodes import (
    ClockEvent,
    ClockHandler,
    EventClock,
    MessageQueue,
    SimulatedNodes,
)
from millrace.scheduler.placement import divide_into_partitions


class ClusterSimulation:
    """The simulation of one job on one cluster; call ``run`` once.

    Raises:
        ValueError: The figures are impossible, or a node dies whose loss restarts a run.
    """

    def __init__(self, machine: SimulatedCluster, trace: CostTrace, records: int) -> None:
        if records < 1:
            raise ValueError(f"{records} records")
        if machine.speeds and len(machine.speeds) != machine.nodes:
            raise ValueError(f"{machine.nodes} nodes, {len(machine.speeds)} speeds")
        self._machine, self._trace, self._records = machine, trace, records
        self._clock, self._nodes = EventClock(), SimulatedNodes(machine)
        parts = divide_into_partitions(machine.nodes, machine.partition_size)
        #: The leader of each partition, and the partition of each node; no leaders: the coordinator serves all nodes.
        self._leaders = [
            MessageQueue(machine, self._clock, ClockEvent.NODE_GETS, len(part)) for part in parts if len(parts) > 1
        ]
        self._part_of = [number for number, part in enumerate(parts) for _ in part]
        self._root = MessageQueue(
            machine, self._clock, ClockEvent.LEADER_GETS if self._leaders else ClockEvent.NODE_GETS
        )
        for number, (leader, part) in enumerate(zip(self._leaders, parts, strict=False)):
            leader.add_nodes(part)
            self._root.dispatcher.add_node(number, machine.cores * len(part), 0.0, members=len(part))
        if len(parts) == 1:
            self._root.add_nodes(parts[0])
        for time, node in machine.deaths:
            if not 0 < node < machine.nodes or any(node == part[0] for part in parts):
                raise ValueError(f"node {node} leads others, or is not there")
            self._clock.schedule_event(time, ClockEvent.NODE_DIES, node, 0)
        self._coordinator = SimulatedCoordinator(
            machine, trace, records, self._clock, self._nodes, self._root, self._leaders
        )
        self._work = self._coordinator.tasks

    def run(self) -> SimulationOutcome:
        """Run the job to its end and return its figures.

        Raises:
            ToolError: More records fail than a run may quarantine.
        """
        # Millions of small objects are short-lived, and none of them is in a cycle.
        was = gc.isenabled()
        gc.disable()
        try:
            return self._run_events()
        finally:
            if was:
                gc.enable()

    def _run_events(self) -> SimulationOutcome:
        happens = self._list_handlers()
        now, scheduler = 0.0, self._coordinator.scheduler
        self._coordinator.begin_job()
        while not scheduler.is_done:
            now, what, member, task = self._clock.pop_event()
            happens[ClockEvent(what)](member, task, now)
        return self._make_outcome(max(now, self._root.free_at), self._coordinator.written_at)

    def _list_handlers(self) -> Mapping[ClockEvent, ClockHandler]:
        return {
            ClockEvent.TASK_ENDED: self._handle_task_end, ClockEvent.ROOT_TOLD: self._handle_root_report, ClockEvent.LEADER_TOLD: self._handle_leader_report,
            ClockEvent.LEADER_GETS: self._handle_leader_task, ClockEvent.NODE_GETS: self._handle_node_task, ClockEvent.LOOK: self._handle_straggler_check,
            ClockEvent.NODE_DIES: self._handle_node_death, ClockEvent.NODE_MISSED: self._handle_node_loss,
        }  # fmt: skip

    # The coordinator and the leaders of partitions

    def _handle_root_report(self, member: int, task: int, now: float) -> None:
        now = self._root.serve_message(now)
        work = self._work.get(task)
        speed = 1.0 if self._leaders else self._nodes.speeds[member]
        self._coordinator.handle_task_end(member, task, work.seconds / speed if work else 0.0, now)

    def _handle_leader_task(self, number: int, task: int, now: float) -> None:
        if work := self._work.get(task):
            leader = self._leaders[number]
            leader.submit_task(work, leader.serve_message(now))

    def _handle_leader_report(self, node: int, task: int, now: float) -> None:
        number = self._part_of[node]
        leader = self._leaders[number]
        now = leader.serve_message(now)
        work = self._work.get(task)
        seconds = work.seconds / self._nodes.speeds[node] if work else 0.0
        is_news = leader.dispatcher.mark_ended(node, TaskId(task), seconds, now, counts=not (work and work.fails))
        leader.send_assignments(now)
        if is_news:
            self._clock.schedule_event(
                leader.serve_message(now) + self._machine.latency_seconds, ClockEvent.ROOT_TOLD, number, task
            )

    def _handle_straggler_check(self, _: int, __: int, now: float) -> None:
        """Check for stragglers, now and again after ``LOOK_SECONDS``."""
        for desk in (*self._leaders, self._root):
            desk.check_stragglers(now)
        self._clock.schedule_event(now + STRAGGLER_CHECK_SECONDS, ClockEvent.LOOK, 0, 0)

    # Nodes

    def _handle_node_task(self, node: int, task: int, now: float) -> None:
        work = self._work.get(task)
        self._nodes.queue_task(node, task, urgent=work is not None and work.task.urgent)
        self._start_tasks(node, now)

    def _start_tasks(self, node: int, now: float) -> None:
        for task, end in self._nodes.start_tasks(node, now, lambda task: self._compute_task_seconds(node, task)):
            self._clock.schedule_event(end, ClockEvent.TASK_ENDED, node, task)

    def _compute_task_seconds(self, node: int, task: int) -> float:
        """Return the seconds of a task on a node; 0 for a queued copy of a task that has ended, as it is not run."""
        work = self._work.get(task)
        if work is None:
            return 0.0
        return work.seconds / self._nodes.speeds[node] + self._nodes.load_fragment(node, work.task.fragment)

    def _handle_task_end(self, node: int, task: int, now: float) -> None:
        if self._nodes.is_dead(node):
            return
        self._nodes.free_slot(node, now)
        self._start_tasks(node, now)
        what = ClockEvent.LEADER_TOLD if self._leaders else ClockEvent.ROOT_TOLD
        self._clock.schedule_event(now + self._machine.latency_seconds, what, node, task)

    def _handle_node_death(self, node: int, _: int, now: float) -> None:
        self._nodes.kill_node(node, now)
        self._clock.schedule_event(now + self._machine.silence_seconds, ClockEvent.NODE_MISSED, node, 0)

    def _handle_node_loss(self, node: int, _: int, now: float) -> None:
        """Continue without a node that was found dead."""
        if not self._leaders:
            self._root.dispatcher.remove_node(node, now)
        else:
            number = self._part_of[node]
            leader = self._leaders[number]
            leader.dispatcher.remove_node(node, now)
            leader.n_nodes -= 1
            leader.send_assignments(now)
            slots = self._machine.cores * leader.n_nodes
            self._root.dispatcher.add_node(number, slots, now, members=leader.n_nodes)
        self._root.send_assignments(now)

    # The end

    def _make_outcome(self, last_end: float, written_at: float) -> SimulationOutcome:
        machine, nodes, done = self._machine, self._nodes, self._coordinator
        seconds = max(last_end, written_at)
        cores = machine.nodes * machine.cores
        could = cores * seconds
        work = self._trace.sum_seconds_before(self._records)
        cut_at, busy_by_then = done.all_cut or (seconds, nodes.count_busy_seconds(seconds))
        startup = done.n_tasks * self._trace.startup_seconds
        efficiency = work / (sum(nodes.speeds) * machine.cores * seconds)
        starved = (cores * cut_at - busy_by_then) / could
        busiest = max((leader.handled for leader in self._leaders), default=0)
        return SimulationOutcome(
            cores=cores, partitions=len(self._leaders), records=self._records, tasks=done.n_tasks,
            copies=sum(desk.copies for desk in (self._root, *self._leaders)), seconds=seconds, work_seconds=work,
            longest_seconds=self._trace.find_longest_seconds(self._records), efficiency=efficiency, startup_share=startup / could,
            starved_share=starved, tail_share=max(1.0 - efficiency - startup / could - starved, 0.0),
            coordinator_share=self._root.handled * machine.service_seconds / seconds,
            leader_share=busiest * machine.service_seconds / seconds, loads=nodes.loads,
            retries=done.scheduler.n_retries, quarantined=done.quarantined, slices=done.slices,
            write_seconds=seconds - last_end, busy_seconds=nodes.count_busy_seconds(last_end) / cores,
        )  # fmt: skip
