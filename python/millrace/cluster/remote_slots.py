"""The slots of all processes of an MPI job, as one set of slots."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec

from millrace import _core
from millrace.cluster import messages as say
from millrace.cluster.membership import JobMember, JobMembership
from millrace.cluster.node_staging import Replicas, VolumeLocationWatch
from millrace.cluster.transport.mpi_start import NAP_SECONDS, create_message_naps
from millrace.core.journal_blocks import append_contents
from millrace.core.tasks import (
    PoolWoken,
    SlotEvent,
    SlotsChanged,
    SlotTask,
    TaskEnded,
    TaskId,
    TaskStarted,
    TaskWithdrawn,
)
from millrace.core.text_format import format_count
from millrace.core.tool_use import InputRange, StorageRead, ToolUse
from millrace.core.wait_loop import wait_until
from millrace.node.batch_files import SpooledBatch
from millrace.node.task_slots import SHORT_FAREWELL_SECONDS, Executor
from millrace.output.output_parts import PartsWritten
from millrace.report.events import VolumesEvent
from millrace.scheduler.dispatcher import TaskDispatcher

if TYPE_CHECKING:
    from millrace.cluster.piece_input import PieceInput
    from millrace.core.input_pieces import PieceIndex
    from millrace.node.input_pieces import InputPieces

#: Shortest nap of the coordinator, in seconds: nodes have tasks queued ahead, and messages cost less in bulk.
BUSY_NAP_SECONDS = 0.001


#: Share of a piece that counts for the holders that have not cut it.
OTHERS_SHARE = 0.5


class SharedPieces(NamedTuple):
    """An input that nodes cut: as the feeder reads it, and the pieces of this node."""

    source: PieceInput
    own: InputPieces


def read_spooled_content(path: Path) -> bytes:
    """Read a small file in memory, unbuffered."""
    with open(path, "rb", buffering=0) as file:
        return file.readall()


def find_source(batch: SpooledBatch) -> InputRange | None:
    """Return where the bytes of a batch are in the input, if they were not fetched from there."""
    return batch.source if batch.source and not batch.spooled[0].exists() else None


def make_assignment(use: ToolUse, task: SlotTask, batch: SpooledBatch) -> say.TaskAssignment:
    """Return the message that gives a task to another process, with the bytes of its records unless that fetches them."""
    if find_source(batch):
        return say.TaskAssignment(task, msgspec.structs.replace(batch, spooled=()), [b""])
    inputs = zip(use.inputs, batch.spooled, strict=True)
    contents = [b"" if item.format == "files" else read_spooled_content(path) for item, path in inputs]
    return say.TaskAssignment(task, msgspec.structs.replace(batch, source=None, spooled=()), contents)


class JobNodes:
    """The nodes of a job as the coordinator places tasks on them, and the slots in use of each rank.

    Args:
        partitions: Ranks of each node but the coordinator's; a partition counts as one node.
        slots: Number of slots, by rank.
    """

    def __init__(self, partitions: Mapping[int, Sequence[int]], slots: list[int]) -> None:
        self.slots = slots
        self.ranks: dict[int, Sequence[int]] = {0: [0], **partitions}

    @property
    def n_slots(self) -> int:
        """Number of slots of all ranks."""
        return sum(self.slots)

    def count_slots(self, node: int) -> int:
        """Return the number of slots of a node."""
        return sum(self.slots[rank] for rank in self.ranks[node])

    def find_node(self, rank: int) -> int:
        """Return the node to which a rank belongs; for a rank that was dropped, itself."""
        return next((node for node, ranks in self.ranks.items() if rank in ranks), rank)

    def drop_rank(self, rank: int) -> int | None:
        """Drop a lost rank, and those that it leads; return the node that it leaves smaller, or None if it leads one."""
        for gone in self.ranks.get(rank, [rank]):
            self.slots[gone] = 0
        if rank in self.ranks:
            return None
        leader = next(node for node, ranks in self.ranks.items() if rank in ranks)
        self.ranks[leader] = [other for other in self.ranks[leader] if other != rank]
        return leader


class DataHolders:
    """The ranks and nodes that hold each volume of a database or piece of an input, as far as they are known.

    Args:
        kept: Fragments whose volumes each rank has kept from earlier jobs.
    """

    def __init__(self, kept: Mapping[int, Sequence[int]]) -> None:
        self._kept: dict[int, dict[int, float]] = defaultdict(dict)
        for rank, fragments in kept.items():
            for fragment in fragments:
                self._kept[fragment][rank] = 1.0
        #: Share that each rank and each node holds, by volume or piece.
        self.by_rank: Replicas = {}
        self.by_node: dict[int, dict[int, float]] = {}
        #: Tasks of pieces that were sent, and of these those sent to a holder.
        self.n_sent = self.n_near = 0

    def set_replicas(self, replicas: Replicas, nodes: Mapping[int, Sequence[int]]) -> None:
        """Set the ranks that hold each volume or piece; ``nodes`` has the ranks of each node."""
        self.by_rank = {
            each: {**replicas.get(each, {}), **self._kept.get(each, {})}
            for each in dict.fromkeys([*replicas, *self._kept])
        }
        by = {rank: node for node, ranks in nodes.items() for rank in ranks}
        # A partition has the largest share of its nodes: sorted, that comes last.
        shares = {
            each: sorted((share, by[rank]) for rank, share in ranks.items() if rank in by)
            for each, ranks in self.by_rank.items()
        }
        self.by_node = {each: {node: share for share, node in held} for each, held in shares.items()}

    def record_send(self, piece: int, node: int) -> None:
        """Count a task that was sent to a node, with records of a piece."""
        self.n_sent += 1
        self.n_near += node in self.by_node.get(piece, ())


class OutputMessages(Protocol):
    """The receiver of messages about outputs; see ``millrace.cluster.write.parallel_output``."""

    def hand_out_writes(self, now: float) -> None:
        """Assign the parts that can be written now to ranks."""

    def record_written_parts(self, found: Sequence[PartsWritten]) -> None:
        """Record parts that another process has written."""

    def record_waiting_process(self, stream: int) -> None:
        """Record that another process waits in a collective write."""

    def drop_lost_rank(self, rank: int) -> None:
        """Drop a lost process; reassign its parts."""


class RemoteSlots:
    """The slots of all processes, with the interface of one node (``millrace.node.task_slots.Executor``).

    Args:
        own: The slots of this process.
        output: Receives the messages about outputs.
        watch: Knows the ranks that hold the volumes of the database, or the pieces of the input; None: they are not in HDFS.
        pieces: The input that nodes cut; None: there is none.
        kept: Fragments whose volumes each rank has kept from earlier jobs.
        journal: The coordinator's, which gets the results of nodes that share no folder with it.
    """

    def __init__(
        self, crew: JobMembership, own: Executor, members: Sequence[JobMember], use: ToolUse, output: OutputMessages,
        watch: VolumeLocationWatch | None = None, pieces: SharedPieces | None = None,
        kept: Mapping[int, Sequence[int]] = {}, journal: _core.Journal | None = None,
    ) -> None:  # fmt: skip
        self._crew, self._own, self._members, self._use, self._journal = crew, own, members, use, journal
        self._dispatcher: TaskDispatcher[tuple[SlotTask, SpooledBatch]] = TaskDispatcher(
            use.n_fragments, max_copies=use.max_copies
        )
        self._naps = create_message_naps(BUSY_NAP_SECONDS)
        #: Assignments for each rank, to be sent at the end of this tick.
        self._work: dict[int, list[say.TaskAssignment]] = defaultdict(list)
        self._output = output
        self.build_argv, self.n_nodes = own.build_argv, len(members)
        self._nodes = JobNodes(crew.partitions, [member.slots for member in members])
        for node in self._nodes.ranks:
            self._update_node_slots(node)
        self._watch, self._pieces, self._holders = watch, pieces, DataHolders(kept)
        if pieces:
            self._dispatcher.set_pieces()
        if watch or use.max_copies:
            self._update_volume_locations(watch.first if watch else {})

    def _update_node_slots(self, node: int) -> None:
        """Tell the dispatcher the number of slots of a new or changed node."""
        n_ranks = len(self._nodes.ranks[node])
        self._dispatcher.add_node(node, self._nodes.count_slots(node), time.monotonic(), n_ranks)

    def _update_volume_locations(self, replicas: Replicas) -> None:
        """Tell the dispatcher the nodes that hold each volume, from the ranks by fragment."""
        self._holders.set_replicas(replicas, self._nodes.ranks)
        if self._pieces:
            self._pieces.source.set_holders({each: [*ranks] for each, ranks in self._holders.by_rank.items()})
        else:
            self._dispatcher.set_replicas(self._holders.by_node)

    def _advance_pieces(self, pieces: SharedPieces) -> None:
        """Have the next pieces of the input cut, and submit the own tasks whose bytes are here."""
        for index in pieces.own.pop_indexes():
            self._add_index(0, index)
        if pieces.source.has_requests:
            living = [rank for rank, slots in enumerate(self._nodes.slots) if slots]
            for rank, request in pieces.source.pop_requests(living):
                if rank:
                    self._crew.send_to_rank(rank, say.IndexInputPiece(request))
                else:
                    pieces.own.request_index(request)
        busy = pieces.source.busy_ranks
        self._dispatcher.reserve_nodes(
            {node for node, ranks in self._nodes.ranks.items() if busy.intersection(ranks)} if busy else ()
        )
        for task, batch in pieces.own.pop_ready():
            self._own.submit_task(task, batch)

    def _add_index(self, rank: int, index: PieceIndex) -> None:
        """Add a piece that a rank has cut; its tasks are for this rank first, and then for other holders."""
        assert self._pieces
        self._pieces.source.add_index(rank, index)
        node = self._nodes.find_node(rank)
        held = dict.fromkeys(self._holders.by_node.get(index.number, ()), OTHERS_SHARE)
        self._dispatcher.set_replicas({index.number: {**held, node: 1.0}})

    def summarize_locality(self, own_read: StorageRead) -> VolumesEvent | None:
        """Count the searches on holders of their volumes and the bytes read of these; final after all ``say.NodeStopped``."""
        if not self._watch and not self._use.max_copies:
            return None
        read = own_read + self._crew.final_reports.read
        if self._pieces:
            read += self._pieces.own.read + self._pieces.source.read
            return VolumesEvent(
                searches=self._holders.n_sent, local=self._holders.n_near,
                volume_bytes=read.volumes, far_bytes=read.far, is_input=True,
            )  # fmt: skip
        searches, local = self._dispatcher.n_local
        return VolumesEvent(
            searches=searches, local=local, volume_bytes=read.volumes, range_bytes=read.ranges, far_bytes=read.far,
            max_copies=0 if self._watch else self._use.max_copies,
        )  # fmt: skip

    def end_input(self) -> None:
        """See ``Executor``: from now on stragglers may be run twice."""
        self._dispatcher.end_submission()
        self._crew.send_to_leaders(say.AllBatchesSubmitted())

    def submit_task(self, task: SlotTask, batch: SpooledBatch) -> None:
        """See ``Executor``."""
        source = find_source(batch)
        piece = source.piece if source else 0
        self._dispatcher.submit_task(task, (task, batch), batch.weight, time.monotonic(), piece)
        self._send_dispatched_tasks()

    def _send_dispatched_tasks(self) -> None:
        for send, (task, batch) in self._dispatcher.pop_sends():
            if source := find_source(batch):
                self._holders.record_send(source.piece, send.node)
            if send.node == 0:
                self._submit_own_task(task, batch)
            else:
                self._work[send.node].append(make_assignment(self._use, task, batch))

    def _submit_own_task(self, task: SlotTask, batch: SpooledBatch) -> None:
        if self._pieces and find_source(batch):
            self._pieces.own.request_batch(task, batch)
        else:
            self._own.submit_task(task, batch)

    # Events

    def wait_for_events(self, timeout_seconds: float) -> list[SlotEvent]:
        """See ``Executor``.

        Raises:
            MillraceError: A process is lost, or cannot go on.
        """
        return wait_until(self._collect_events, timeout_seconds)

    def _collect_events(self) -> list[SlotEvent]:
        """Wait for events of the slots here, at most for a nap; handle messages; return the events of all."""
        self._flush_assignments()
        found: list[SlotEvent] = []
        for event in self._own.wait_for_events(self._naps.seconds):
            found += self._handle_slot_event(0, event)
        for rank, message in self._crew.receive_messages():
            found += self._handle_message(rank, message)
        now = time.monotonic()
        if self._pieces:
            self._advance_pieces(self._pieces)
        if self._watch and (moved := self._watch.pop_changed_locations()):
            self._update_volume_locations(moved)
        self._dispatcher.send_waiting(now)
        self._output.hand_out_writes(now)
        self._send_dispatched_tasks()
        self._flush_assignments()
        if found:
            self._naps.reset_pause()
        else:
            self._naps.lengthen_pause()
        return found

    def _flush_assignments(self) -> None:
        for rank, assignments in self._work.items():
            self._crew.send_to_rank(rank, say.RunAssignments(assignments))
        self._work.clear()

    def _handle_message(self, rank: int, message: object) -> list[SlotEvent]:
        found: list[SlotEvent] = []
        match message:
            case say.TaskEventsReport(events):
                for event in events:
                    found += self._handle_slot_event(rank, event)
            case say.OutputPartsWritten(written):
                self._output.record_written_parts(written)
                self._naps.reset_pause(NAP_SECONDS[0])  # another part may wait for this
            case say.CollectiveWriteReady(stream):
                self._output.record_waiting_process(stream)
            case say.RankSlotsChanged(who, slots, why):
                found.append(self._change_rank_slots(who, slots, why))
            case say.ProcessLost(why, tasks):
                found.append(self._drop_lost_rank(rank, why, tasks))
            case say.InputPieceIndexed(index) if self._pieces:
                self._add_index(rank, index)
            case say.NodeTasksWithdrawn(tasks):
                for task in tasks:
                    found += self._record_withdrawn_task(rank, task)
            case _:
                raise say.make_unexpected_message_error(self._members[rank].name, message)
        return found

    def _change_rank_slots(self, rank: int, slots: int, why: str) -> SlotsChanged:
        """Record a rank's number of slots; return the event with the new total."""
        self._nodes.slots[rank] = slots
        self._update_node_slots(self._nodes.find_node(rank))
        return SlotsChanged(self._nodes.n_slots, f"{self._members[rank].name}: {why}")

    def _handle_slot_event(self, node: int, event: SlotEvent) -> list[SlotEvent]:
        """Return the events to report for an event of a slot; of a task that runs twice, the first result counts."""
        match event:
            case SlotsChanged(slots, why):
                return [self._change_rank_slots(node, slots, why)]
            case TaskStarted(task):
                return [event] if self._dispatcher.mark_started(task) else []
            case TaskWithdrawn(task):
                return self._record_withdrawn_task(node, task)
            case PoolWoken():
                return [event]
            case TaskEnded():
                load = self._dispatcher.get_load(event.task)
                is_news = self._dispatcher.mark_ended(
                    node, event.task, event.wall_seconds, time.monotonic(), counts=event.is_done
                )
                self._send_dispatched_tasks()
                if not is_news or load is None:
                    return []
                if event.contents is None or not self._journal:
                    return [event]
                return [append_contents(event, self._journal, load[0].attempt, self._members[node].name)]

    def _record_withdrawn_task(self, node: int, task: TaskId) -> list[SlotEvent]:
        alone = self._dispatcher.mark_returned(node, task, time.monotonic())
        self._send_dispatched_tasks()
        return [TaskWithdrawn(task)] if alone else []

    def _drop_lost_rank(self, rank: int, why: str, tasks: int) -> SlotsChanged:
        """Drop a lost process and reassign its tasks. If the launcher ends the job now, the next start resumes it."""
        self._output.drop_lost_rank(rank)
        if self._pieces:
            self._pieces.source.drop_rank(rank)
        if (leader := self._nodes.drop_rank(rank)) is None:
            self._work.pop(rank, None)
            tasks = self._dispatcher.remove_node(rank, time.monotonic())
        else:
            self._update_node_slots(leader)
        self._send_dispatched_tasks()
        words = f"{self._members[rank].name} is lost: {why}; {format_count(tasks, 'task')} of its own go to others"
        return SlotsChanged(self._nodes.n_slots, words)

    # The end

    def withdraw_tasks(self) -> list[TaskId]:
        """See ``Executor``."""
        back = self._dispatcher.withdraw_tasks()
        own = self._own.withdraw_tasks()
        own += self._pieces.own.withdraw_tasks() if self._pieces else []
        back += [task for task in own if self._record_withdrawn_task(0, task)]
        self._flush_assignments()
        self._crew.send_to_all(say.WithdrawFromNode())
        return back

    def end_served_programs(
        self, patience_seconds: float = SHORT_FAREWELL_SECONDS, look: Callable[[], object] = bool
    ) -> str:
        """See ``Executor``; the other nodes report the same in ``say.NodeStopped``."""
        return self._own.end_served_programs(patience_seconds, look) or self._crew.final_reports.against

    def kill_all(self) -> None:
        """See ``Executor``."""
        self._own.kill_all()
        self._crew.send_to_all(say.KillNodeTools())
