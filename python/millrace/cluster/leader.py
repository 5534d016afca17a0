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
from millrace.cluster.agent import Agent
from millrace.cluster.failures import SILENCE_SECONDS, FailureDetector
from millrace.cluster.mpi import World
from millrace.cluster.node_run import NodeRun
from millrace.ids import TaskId
from millrace.node.workdir import WorkDir
from millrace.schedule.dispatcher import Dispatcher
from millrace.schedule.partition import routes
from millrace.tasks import Ended, Started

#: Seconds without a message of the coordinator after which the leader sends none to its partition either: its messages
#: must not count as heartbeats of a dead coordinator.
UNHEARD_SECONDS = 4.0


def agent(world: World, work: WorkDir, partition_size: int | None) -> Agent:
    """Create the agent of this process: the leader of its partition, a member of one, or a plain node agent."""
    by = routes(world.size, partition_size)
    others = [rank for rank, leader in by.items() if leader == world.rank != rank]
    if others:
        return Leader(world, work, others)
    return Agent(world, work, leader=by[world.rank] if by[world.rank] != world.rank else 0)


class Leader(Agent):
    """A node agent that leads the partition of ``others``."""

    def __init__(self, world: World, work: WorkDir, others: Sequence[int]) -> None:
        super().__init__(world, work)
        self._links = FailureDetector(world, others)
        self._dispatcher: Dispatcher[say.Assignment] = Dispatcher()
        self._ready: set[int] = set()
        self._leaves, self._others_left = False, set[int]()
        #: Assignments for each node, and events for the coordinator, to be sent at the end of this tick.
        self._down: dict[int, list[say.Assignment]] = defaultdict(list)
        self._up: list[Started | Ended] = []

    def _look(self) -> bool:
        heard = super()._look()
        try:
            self._turn(time.monotonic())
        except Exception as error:
            self._trouble(error)
        return heard

    _rests = False  # members may wait for an answer

    def _turn(self, now: float) -> None:
        """Find lost members, dispatch tasks and send reports, after all received messages are handled."""
        if now - self._patience.heard > UNHEARD_SECONDS and self._links.dismissed is None:
            return  # after ``say.Bye`` the coordinator sends nothing more
        if self._on or self._links.dismissed is not None:
            for rank, why in self._links.turn(now):
                self._lose(rank, why, now)
        self._dispatcher.look(now)
        self._hand_out()
        for rank, assignments in self._down.items():
            self._links.tell(rank, say.Work(assignments))
        self._down.clear()
        if self._up:
            self._tell(say.Report(self._up))
            self._up = []
        if self._leaves and (self._others_left | self._world.failed()).issuperset(self._links.living()):
            self._leave()

    def _hand_out(self) -> None:
        for send, assignment in self._dispatcher.take():
            if send.node != self._world.rank:
                self._down[send.node].append(assignment)
            elif self._here:
                self._here.submit(assignment)

    # Messages from the coordinator

    def _obey(self, message: say.Message) -> None:
        match message:
            case say.For(rank, inner):
                if isinstance(inner, say.Setup):
                    self._expect(rank, inner)
                self._links.tell(rank, inner)
            case say.ForAll(inner):
                for rank in self._links.living():
                    self._links.tell(rank, inner)
                self._obey(inner)
            case say.Work(assignments) if self._here:
                self._on = True
                for assignment in assignments:
                    self._dispatcher.submit(assignment.task, assignment, assignment.batch.weight, time.monotonic())
                self._hand_out()
            case say.NoMore():
                self._dispatcher.no_more()
            case say.Stop(whole):
                self._links.dismiss(time.monotonic(), whole=whole)
                super()._obey(message)
            case say.Leave():
                self._leaves = True  # after the others
            case _:
                super()._obey(message)

    def _set_up(self, setup: say.Setup) -> say.Ready:
        self._dispatcher = Dispatcher(setup.use.n_fragments)
        ready = super()._set_up(setup)
        self._expect(self._world.rank, setup)
        return ready

    def _expect(self, rank: int, setup: say.Setup) -> None:
        self._dispatcher.joined(rank, setup.slots, time.monotonic())

    def _withdraw(self, here: NodeRun) -> list[TaskId]:
        now = time.monotonic()
        own = super()._withdraw(here)
        return self._dispatcher.withdraw() + [
            task for task in own if self._dispatcher.came_back(self._world.rank, task, now)
        ]

    # Events of the slots here, and messages from the nodes of the partition

    def _report(self, events: list[Started | Ended]) -> None:
        self._happened(self._world.rank, events)

    def _allow(self, news: say.Allow) -> None:
        self._dispatcher.joined(news.rank, news.slots, time.monotonic())
        self._tell(news)

    def _happened(self, node: int, events: Sequence[Started | Ended]) -> None:
        now = time.monotonic()
        for event in events:
            if isinstance(event, Started):
                news = self._dispatcher.started(event.task)
            else:
                news = self._dispatcher.ended(node, event.task, event.wall_seconds, now, counts=event.is_done)
            if news:
                self._up.append(event)

    def _hear(self, rank: int, message: say.Message) -> None:
        if rank == self._leader:
            self._obey(message)
            return
        if rank in self._links.lost:
            return  # it was stopped and continues now, but other nodes have its tasks
        now = time.monotonic()
        self._links.heard(rank, now)
        match message:
            case say.Report(events):
                self._happened(rank, events)
            case say.Allow():
                self._allow(message)
            case say.Withdrawn(tasks):
                back = [task for task in tasks if self._dispatcher.came_back(rank, task, now)]
                self._tell(say.Withdrawn(back))
            case say.Alive():
                pass
            case say.Ready():
                self._ready.add(rank)
                if len(self._ready) == len(self._links.living()):
                    self._links.limit = SILENCE_SECONDS
                self._tell(say.From(rank, message))
            case say.Bye():
                self._links.gone.add(rank)
                self._tell(say.From(rank, message))
            case say.Left():
                self._others_left.add(rank)
            case say.For() | say.ForAll() | say.From():
                raise say.unexpected(f"rank {rank}", message)
            case _:
                self._tell(say.From(rank, message))

    def _lose(self, rank: int, why: str, now: float) -> None:
        self._links.lost.add(rank)
        self._world.broken = True
        self._down.pop(rank, None)
        self._tell(say.From(rank, say.Lost(why, self._dispatcher.lost(rank, now))))
