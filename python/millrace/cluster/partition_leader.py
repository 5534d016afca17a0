"""The leader of a partition: a node agent that also dispatches tasks to the other agents of its partition.

To the coordinator a partition is one node with many slots. It sends tasks by the hundred; the leader assigns them by
the load of its nodes, and reports their ends many at a time. It forwards the coordinator's messages to one node of the
partition or to all. If the leader is lost, the run ends and is started again without it.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence

from millrace.cluster import messages as say
from millrace.cluster.agent_process import AgentProcess
from millrace.cluster.failure_detection import MAX_SILENCE_SECONDS, FailureDetector
from millrace.cluster.node_run import NodeRun
from millrace.cluster.transport.mpi_transport import MpiTransport
from millrace.core.tasks import TaskEnded, TaskId, TaskStarted
from millrace.node.work_dir import WorkDir
from millrace.scheduler.dispatcher import TaskDispatcher
from millrace.scheduler.placement import choose_routes

#: Seconds without a message of the coordinator after which the leader sends none to its partition either: its messages
#: must not count as heartbeats of a dead coordinator.
MAX_COORDINATOR_SILENCE_SECONDS = 4.0


def create_agent(world: MpiTransport, work: WorkDir, partition_size: int | None) -> AgentProcess:
    """Create the agent of this process: the leader of its partition, a member of one, or a plain node agent."""
    by = choose_routes(world.size, partition_size)
    others = [rank for rank, leader in by.items() if leader == world.rank != rank]
    if others:
        return PartitionLeader(world, work, others)
    return AgentProcess(world, work, leader=by[world.rank] if by[world.rank] != world.rank else 0)


class PartitionLeader(AgentProcess):
    """A node agent that leads the partition of ``others``."""

    def __init__(self, world: MpiTransport, work: WorkDir, others: Sequence[int]) -> None:
        super().__init__(world, work)
        self._links = FailureDetector(world, others)
        self._dispatcher: TaskDispatcher[say.TaskAssignment] = TaskDispatcher()
        self._ready: set[int] = set()
        self._leaves, self._others_left = False, set[int]()
        #: Assignments for each node, and events for the coordinator, to be sent at the end of this tick.
        self._down: dict[int, list[say.TaskAssignment]] = defaultdict(list)
        self._up: list[TaskStarted | TaskEnded] = []

    def _handle_events(self) -> bool:
        heard = super()._handle_events()
        try:
            self._advance_partition(time.monotonic())
        except Exception as error:
            self._report_failure(error)
        return heard

    _rests = False  # members may wait for an answer

    def _advance_partition(self, now: float) -> None:
        """Find lost members, dispatch tasks and send reports, after all received messages are handled."""
        if now - self._patience.heard > MAX_COORDINATOR_SILENCE_SECONDS and self._links.dismissed is None:
            return  # after ``say.NodeStopped`` the coordinator sends nothing more
        if self._on or self._links.dismissed is not None:
            for rank, why in self._links.find_lost_ranks(now):
                self._drop_lost_member(rank, why, now)
        self._dispatcher.send_waiting(now)
        self._hand_out_tasks()
        for rank, assignments in self._down.items():
            self._links.send_message(rank, say.RunAssignments(assignments))
        self._down.clear()
        if self._up:
            self._send_to_leader(say.TaskEventsReport(self._up))
            self._up = []
        if self._leaves and (self._others_left | self._world.find_failed_ranks()).issuperset(
            self._links.list_living_ranks()
        ):
            self._leave_job()

    def _hand_out_tasks(self) -> None:
        for send, assignment in self._dispatcher.pop_sends():
            if send.node != self._world.rank:
                self._down[send.node].append(assignment)
            elif self._here:
                self._here.submit_assignment(assignment)

    # Messages from the coordinator

    def _execute_command(self, message: say.Message) -> None:
        match message:
            case say.ForwardToMember(rank, inner):
                if isinstance(inner, say.SetUpNode):
                    self._register_member_slots(rank, inner)
                self._links.send_message(rank, inner)
            case say.ForwardToPartition(inner):
                for rank in self._links.list_living_ranks():
                    self._links.send_message(rank, inner)
                self._execute_command(inner)
            case say.RunAssignments(assignments) if self._here:
                self._on = True
                for assignment in assignments:
                    self._dispatcher.submit_task(assignment.task, assignment, assignment.batch.weight, time.monotonic())
                self._hand_out_tasks()
            case say.AllBatchesSubmitted():
                self._dispatcher.end_submission()
            case say.StopNode(whole):
                self._links.record_dismissal(time.monotonic(), whole=whole)
                super()._execute_command(message)
            case say.LeaveJob():
                self._leaves = True  # after the others
            case _:
                super()._execute_command(message)

    def _set_up_run(self, setup: say.SetUpNode) -> say.NodeReady:
        # The coordinator bounds how many partitions fetch a fragment; in each, one node does.
        self._dispatcher = TaskDispatcher(setup.use.n_fragments, max_copies=min(setup.use.max_copies, 1))
        ready = super()._set_up_run(setup)
        self._register_member_slots(self._world.rank, setup)
        return ready

    def _register_member_slots(self, rank: int, setup: say.SetUpNode) -> None:
        self._dispatcher.add_node(rank, setup.slots, time.monotonic())

    def _withdraw_tasks(self, here: NodeRun) -> list[TaskId]:
        now = time.monotonic()
        own = super()._withdraw_tasks(here)
        return self._dispatcher.withdraw_tasks() + [
            task for task in own if self._dispatcher.mark_returned(self._world.rank, task, now)
        ]

    # Events of the slots here, and messages from the nodes of the partition

    def _report_task_events(self, events: list[TaskStarted | TaskEnded]) -> None:
        self._record_task_events(self._world.rank, events)

    def _report_slots_change(self, news: say.RankSlotsChanged) -> None:
        self._dispatcher.add_node(news.rank, news.slots, time.monotonic())
        self._send_to_leader(news)

    def _record_task_events(self, node: int, events: Sequence[TaskStarted | TaskEnded]) -> None:
        now = time.monotonic()
        for event in events:
            if isinstance(event, TaskStarted):
                news = self._dispatcher.mark_started(event.task)
            else:
                news = self._dispatcher.mark_ended(node, event.task, event.wall_seconds, now, counts=event.is_done)
            if news:
                self._up.append(event)

    def _handle_message(self, rank: int, message: say.Message) -> None:
        if rank == self._leader:
            self._execute_command(message)
            return
        if rank in self._links.lost:
            return  # it was stopped and continues now, but other nodes have its tasks
        now = time.monotonic()
        self._links.record_message(rank, now)
        match message:
            case say.TaskEventsReport(events):
                self._record_task_events(rank, events)
            case say.RankSlotsChanged():
                self._report_slots_change(message)
            case say.NodeTasksWithdrawn(tasks):
                back = [task for task in tasks if self._dispatcher.mark_returned(rank, task, now)]
                self._send_to_leader(say.NodeTasksWithdrawn(back))
            case say.AgentHeartbeat():
                pass
            case say.NodeReady():
                self._ready.add(rank)
                if len(self._ready) == len(self._links.list_living_ranks()):
                    self._links.limit = MAX_SILENCE_SECONDS
                self._send_to_leader(say.ForwardedFromMember(rank, message))
            case say.NodeStopped():
                self._links.gone.add(rank)
                self._send_to_leader(say.ForwardedFromMember(rank, message))
            case say.ProcessLeft():
                self._others_left.add(rank)
            case say.ForwardToMember() | say.ForwardToPartition() | say.ForwardedFromMember():
                raise say.make_unexpected_message_error(f"rank {rank}", message)
            case _:
                self._send_to_leader(say.ForwardedFromMember(rank, message))

    def _drop_lost_member(self, rank: int, why: str, now: float) -> None:
        self._links.lost.add(rank)
        self._world.broken = True
        self._down.pop(rank, None)
        self._send_to_leader(
            say.ForwardedFromMember(rank, say.ProcessLost(why, self._dispatcher.remove_node(rank, now)))
        )
