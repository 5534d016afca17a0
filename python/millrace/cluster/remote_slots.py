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

#: Shortest nap of the coordinator, in seconds: nodes have tasks queued ahead, and messages cost less in bulk.
BUSY_NAP_SECONDS = 0.001


def content_of(path: Path) -> bytes:
    """Read a small file in memory, unbuffered."""
    with open(path, "rb", buffering=0) as file:
        return file.readall()


class OutputMessages(Protocol):
    """The receiver of messages about outputs; see ``millrace.cluster.parallel_output``."""

    def turn(self, now: float) -> None:
        """Assign the parts that can be written now to ranks."""

    def heard(self, found: Sequence[Written]) -> None:
        """Record parts that another process has written."""

    def waits(self, stream: int) -> None:
        """Record that another process waits in a collective write."""

    def lost(self, rank: int) -> None:
        """Drop a lost process; reassign its parts."""


class RemoteSlots:
    """The slots of all processes, with the interface of one node (``millrace.node.slots.Slots``).

    Args:
        own: The slots of this process.
        output: Receives the messages about outputs.
        watch: Knows the ranks that hold the volumes of the database; None: the volumes are not in HDFS.
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
        #: Assignments for each rank, to be sent at the end of this tick.
        self._work: dict[int, list[say.Assignment]] = defaultdict(list)
        self._output = output
        self.argv, self.n_nodes = own.argv, len(members)
        #: Ranks of each node; a partition counts as one node.
        self._of = {0: [0], **crew.partitions}
        #: Number of slots in use, by rank.
        self._slots = [member.slots for member in members]
        for node in self._of:
            self._join(node)
        self._watch = watch
        if watch:
            self._hold(watch.first)

    def _join(self, node: int) -> None:
        """Tell the dispatcher the number of slots of a new or changed node."""
        ranks = self._of[node]
        self._dispatcher.joined(node, sum(self._slots[rank] for rank in ranks), time.monotonic(), len(ranks))

    def _hold(self, replicas: Replicas) -> None:
        """Tell the dispatcher the nodes that hold each volume, from the ranks by fragment."""
        by = {rank: node for node, ranks in self._of.items() for rank in ranks}
        # A partition has the largest share of its nodes: sorted, that comes last.
        shares = {
            each: sorted((share, by[rank]) for rank, share in ranks.items() if rank in by)
            for each, ranks in replicas.items()
        }
        self._dispatcher.hold({each: {node: share for share, node in held} for each, held in shares.items()})

    def locality(self, own_read: HdfsRead) -> VolumesEvent | None:
        """Count the searches on holders of their volumes and the bytes read from HDFS; final after all ``say.Bye``."""
        if not self._watch:
            return None
        searches, local = self._dispatcher.n_local
        read = own_read + self._crew.read
        return VolumesEvent(
            searches=searches, local=local, volume_bytes=read.volumes, range_bytes=read.ranges, far_bytes=read.far
        )

    def no_more(self) -> None:
        """See ``Slots``: from now on stragglers may be run twice."""
        self._dispatcher.no_more()
        self._crew.tell_leaders(say.NoMore())

    def submit(self, task: Task, batch: Batch) -> None:
        """See ``Slots``."""
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
        """See ``Slots``.

        Raises:
            MillraceError: A process is lost, or cannot go on.
        """
        return until(self._look, timeout_seconds)

    def _look(self) -> list[News]:
        """Wait for events of the slots here, at most for a nap; handle messages; return the events of all."""
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
        """Record a rank's number of slots; return the event with the new total."""
        self._slots[rank] = slots
        self._join(next(node for node, ranks in self._of.items() if rank in ranks))
        return SlotsChanged(sum(self._slots), f"{self._members[rank].name}: {why}")

    def _happened(self, node: int, event: News) -> list[News]:
        """Return the events to report for an event of a slot; of a task that runs twice, the first result counts."""
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
        """Drop a lost process and reassign its tasks. If the launcher ends the job now, the next start resumes it."""
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
        """See ``Slots``."""
        back = self._dispatcher.withdraw()
        back += [task for task in self._own.withdraw() if self._came_back(0, task)]
        self._flush()
        self._crew.tell_all(say.Withdraw())
        return back

    def part(self, patience_seconds: float = SHORT_FAREWELL_SECONDS, look: Callable[[], object] = bool) -> str:
        """See ``Slots``; the other nodes report the same in ``say.Bye``."""
        return self._own.part(patience_seconds, look) or self._crew.against

    def kill_all(self) -> None:
        """See ``Slots``."""
        self._own.kill_all()
        self._crew.tell_all(say.Kill())
