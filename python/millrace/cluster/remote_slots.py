"""The slots of all processes of an MPI job, as one set of slots."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from millrace.cluster import messages as say
from millrace.cluster.block_watch import BlockWatch, Replicas
from millrace.cluster.membership import Member, Membership
from millrace.cluster.naps import NAP_SECONDS, naps
from millrace.ids import TaskId
from millrace.model import HdfsRead, ToolUse
from millrace.node.batch import Batch
from millrace.node.slots import SHORT_FAREWELL_SECONDS, Slots
from millrace.output.parts import Written
from millrace.report.events import VolumesEvent
from millrace.report.words import count
from millrace.schedule.dispatcher import Dispatcher
from millrace.tasks import Ended, News, SlotsChanged, Started, Task, Withdrawn, Woken
from millrace.waiting import until

#: Shortest nap of the coordinator, in seconds: nodes have tasks ahead, and what comes in a bunch costs less.
BUSY_NAP_SECONDS = 0.001


def content_of(path: Path) -> bytes:
    """The bytes of a small file in memory."""
    with open(path, "rb", buffering=0) as file:
        return file.readall()


class OutputMessages(Protocol):
    """What the others say of the outputs that they write; see `millrace.cluster.parallel_output`."""

    def turn(self, now: float) -> None:
        """Hand out what is to be written now."""

    def heard(self, found: Sequence[Written]) -> None:
        """Hear that another process has written something."""

    def waits(self, stream: int) -> None:
        """Hear that another process waits in a call in which all write."""

    def lost(self, rank: int) -> None:
        """Do without a process."""


class RemoteSlots:
    """The slots of all processes, with the face of one node (`millrace.node.slots.Slots`).

    Args:
        own: The slots of this process.
        output: Who writes what of the outputs.
        watch: Knows by rank where the volumes of the database are; None: they are here.
    """

    def __init__(
        self,
        crew: Membership,
        own: Slots,
        members: Sequence[Member],
        use: ToolUse,
        output: OutputMessages,
        watch: BlockWatch | None = None,
    ) -> None:
        self._crew, self._own, self._members, self._use = crew, own, members, use
        self._dispatcher: Dispatcher[tuple[Task, Batch]] = Dispatcher(use.n_fragments)
        self._naps = naps(BUSY_NAP_SECONDS)
        #: What is to be sent to each rank when this turn is over.
        self._work: dict[int, list[say.Assignment]] = defaultdict(list)
        self._output = output
        self.argv, self.n_nodes = own.argv, len(members)
        #: Ranks of each node as this process sees it: a partition is one.
        self._of = {0: [0], **crew.partitions}
        #: Slots of each rank that are used.
        self._slots = [member.slots for member in members]
        for node in self._of:
            self._join(node)
        self._watch = watch
        if watch:
            self._hold(watch.first)

    def _join(self, node: int) -> None:
        """A node is there, or has other slots than before."""
        ranks = self._of[node]
        self._dispatcher.joined(node, sum(self._slots[rank] for rank in ranks), time.monotonic(), len(ranks))

    def _hold(self, replicas: Replicas) -> None:
        """Volumes are where these ranks run, by fragment."""
        by = {rank: node for node, ranks in self._of.items() for rank in ranks}
        # A partition has what the best of its nodes has: its share comes last.
        shares = {
            each: sorted((share, by[rank]) for rank, share in ranks.items() if rank in by)
            for each, ranks in replicas.items()
        }
        self._dispatcher.hold({each: {node: share for share, node in held} for each, held in shares.items()})

    def locality(self, own_read: HdfsRead) -> VolumesEvent | None:
        """Which searches were where their volumes are, and what was read from HDFS, once all have said goodbye."""
        if not self._watch:
            return None
        searches, local = self._dispatcher.n_local
        read = own_read + self._crew.read
        return VolumesEvent(
            searches=searches, local=local, volume_bytes=read.volumes, range_bytes=read.ranges, far_bytes=read.far
        )

    def no_more(self) -> None:
        """See `Slots`: from here on, what takes too long may be run twice."""
        self._dispatcher.no_more()
        self._crew.tell_leaders(say.NoMore())

    def submit(self, task: Task, batch: Batch) -> None:
        """See `Slots`."""
        self._dispatcher.submit(task, (task, batch), batch.weight, time.monotonic())
        self._send()

    def _send(self) -> None:
        for send, (task, batch) in self._dispatcher.take():
            if send.node == 0:
                self._own.submit(task, batch)
            else:
                self._work[send.node].append(self._assignment(task, batch))

    def _assignment(self, task: Task, batch: Batch) -> say.Assignment:
        inputs = zip(self._use.inputs, batch.spooled, strict=True)
        contents = [b"" if item.format == "files" else content_of(path) for item, path in inputs]
        return say.Assignment(task, msgspec.structs.replace(batch, spooled=()), contents)

    # Events

    def events(self, timeout_seconds: float) -> list[News]:
        """See `Slots`.

        Raises:
            MillraceError: A process is lost, or cannot go on.
        """
        return until(self._look, timeout_seconds)

    def _look(self) -> list[News]:
        """Take a nap, which what happens in the slots here ends, and hear the others."""
        self._flush()
        found: list[News] = []
        for event in self._own.events(self._naps.seconds):
            found += self._happened(0, event)
        for rank, message in self._crew.hear():
            found += self._heard(rank, message)
        now = time.monotonic()
        if self._watch and (moved := self._watch.news()):
            self._hold(moved)
        self._dispatcher.look(now)
        self._output.turn(now)
        self._send()
        self._flush()
        if found:
            self._naps.something_came()
        else:
            self._naps.nothing_came()
        return found

    def _flush(self) -> None:
        for rank, assignments in self._work.items():
            self._crew.tell(rank, say.Work(assignments))
        self._work.clear()

    def _heard(self, rank: int, message: object) -> list[News]:
        found: list[News] = []
        match message:
            case say.Report(events):
                for event in events:
                    found += self._happened(rank, event)
            case say.Wrote(written):
                self._output.heard(written)
                self._naps.something_came(NAP_SECONDS[0])  # another part may wait for this
            case say.ReadyToWrite(stream):
                self._output.waits(stream)
            case say.Allow(who, slots, why):
                found.append(self._allowed(who, slots, why))
            case say.Lost(why, tasks):
                found.append(self._lose(rank, why, tasks))
            case say.Withdrawn(tasks):
                for task in tasks:
                    found += self._came_back(rank, task)
            case _:
                raise say.unexpected(self._members[rank].name, message)
        return found

    def _allowed(self, rank: int, slots: int, why: str) -> SlotsChanged:
        """A rank uses another number of slots; what that makes of all of them."""
        self._slots[rank] = slots
        self._join(next(node for node, ranks in self._of.items() if rank in ranks))
        return SlotsChanged(sum(self._slots), f"{self._members[rank].name}: {why}")

    def _happened(self, node: int, event: News) -> list[News]:
        """What is to be told of an event of a slot: of a task that is out twice, the first result counts."""
        match event:
            case SlotsChanged(slots, why):
                return [self._allowed(node, slots, why)]
            case Started(task):
                return [event] if self._dispatcher.started(task) else []
            case Withdrawn(task):
                return self._came_back(node, task)
            case Woken():
                return [event]
            case Ended():
                is_news = self._dispatcher.ended(
                    node, event.task, event.wall_seconds, time.monotonic(), counts=event.is_done
                )
                self._send()
                return [event] if is_news else []

    def _came_back(self, node: int, task: TaskId) -> list[News]:
        alone = self._dispatcher.came_back(node, task, time.monotonic())
        self._send()
        return [Withdrawn(task)] if alone else []

    def _lose(self, rank: int, why: str, tasks: int) -> SlotsChanged:
        """Go on without a process; a launcher that ends the whole job then leaves it to the next start to resume."""
        self._output.lost(rank)
        for gone in self._of.get(rank, [rank]):
            self._slots[gone] = 0
        if rank in self._of:
            self._work.pop(rank, None)
            tasks = self._dispatcher.lost(rank, time.monotonic())
        else:
            leader = next(leader for leader, ranks in self._of.items() if rank in ranks)
            self._of[leader] = [other for other in self._of[leader] if other != rank]
            self._join(leader)
        self._send()
        words = f"{self._members[rank].name} is lost: {why}; {count(tasks, 'task')} of its own go to others"
        return SlotsChanged(sum(self._slots), words)

    # The end

    def withdraw(self) -> list[TaskId]:
        """See `Slots`."""
        back = self._dispatcher.withdraw()
        back += [task for task in self._own.withdraw() if self._came_back(0, task)]
        self._flush()
        self._crew.tell_all(say.Withdraw())
        return back

    def part(self, patience_seconds: float = SHORT_FAREWELL_SECONDS, look: Callable[[], object] = bool) -> str:
        """See `Slots`; the others have told with their last words."""
        return self._own.part(patience_seconds, look) or self._crew.against

    def kill_all(self) -> None:
        """See `Slots`."""
        self._own.kill_all()
        self._crew.tell_all(say.Kill())
