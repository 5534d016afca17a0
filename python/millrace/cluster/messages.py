"""Messages between coordinator and node agents, as values; docs/protocol.md says which may be sent when.

A message is data: the number of its type, and its fields. Received bytes are decoded by these types alone
(``millrace.cluster.transport.message_encoding``); nothing in them can name code.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Self

import msgspec

from millrace.core import errors
from millrace.core.errors import CorruptError, ExitCode, MillraceError
from millrace.core.input_pieces import InputPieceRequest, PieceIndex
from millrace.core.tasks import SlotTask, TaskEnded, TaskEnding, TaskId, TaskStarted
from millrace.core.tool_use import RemoteFileView, StorageRead, ToolUse, UserCommand
from millrace.node.batch_files import SpooledBatch
from millrace.output.output_parts import OutputPart, PartsWritten
from millrace.planning import dependency_files
from millrace.storage import staging_choice


class TaggedMessage(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The base of all messages. The tag of each is its number on the wire, which is never reused.

    1 to 32 come from the coordinator, 33 to 63 from the node agents and Dask workers.
    """


# From the coordinator


class SetUpNode(TaggedMessage, frozen=True, tag=1):
    """A command to set up the slots of a node for a run."""

    use: ToolUse
    cwd: str
    #: The program as the user typed it, or as it is named for the node's architecture.
    program: str
    #: For a node of another architecture: the command whose release it has to report.
    command: UserCommand | None
    environ: dict[str, str]
    nice: int
    run_dir: str
    run_id: bytes
    journal: str
    sync: float
    slots: int
    #: Number of the first of these slots among all.
    first_slot: int
    #: Host and rank of the node, for messages to the user.
    name: str
    #: (copy, file): paths that tools read in place of files.
    staged: Sequence[tuple[str, str]]
    #: Outputs that the node may have to write parts of, with the inode number of each at the coordinator.
    shared: dict[int, int]
    #: Inputs, databases and program, as they are at the coordinator.
    world: Sequence[dependency_files.DependencyFile]
    #: The view that shows files behind URLs, and their copies on the node, by name.
    view: RemoteFileView | None
    copies: dict[str, str]
    #: What is measured of reads and writes: ``millrace.core.job.JobSpec.profile_io``.
    profile_io: str = ""


class TaskAssignment(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A task with the bytes of its batch."""

    task: SlotTask
    #: Without the paths of its spooled files, which are local to the coordinator.
    batch: SpooledBatch
    #: Bytes of each input; empty for those of format ``files``.
    contents: list[bytes]


class RunAssignments(TaggedMessage, frozen=True, tag=2):
    """A command to run tasks."""

    assignments: list[TaskAssignment]


class WriteOutputPart(TaggedMessage, frozen=True, tag=3):
    """A command to write a part of an output; the answer is ``OutputPartsWritten``."""

    part: OutputPart


class WriteHeldPart(TaggedMessage, frozen=True, tag=4):
    """A command to write a part that was held back."""

    stream: int
    number: int


class OpenCollectiveOutputs(TaggedMessage, frozen=True, tag=5):
    """A command to open outputs with MPI-IO; collective, so all ranks get it."""

    streams: list[int]


class CloseCollectiveOutputs(TaggedMessage, frozen=True, tag=6):
    """A command to close the outputs opened with MPI-IO; collective."""


class WithdrawFromNode(TaggedMessage, frozen=True, tag=7):
    """A command to withdraw the tasks that no slot has started; the answer is ``NodeTasksWithdrawn``."""


class KillNodeTools(TaggedMessage, frozen=True, tag=8):
    """A command to kill the running tools."""


class PingAgent(TaggedMessage, frozen=True, tag=9):
    """A heartbeat of the coordinator, or of a leader."""


class AllBatchesSubmitted(TaggedMessage, frozen=True, tag=10):
    """A note to leaders that all batches are submitted: stragglers may be run twice from now on."""


class ForwardToMember(TaggedMessage, frozen=True, tag=15):
    """A message that the leader forwards to one process of its partition."""

    rank: int
    message: Plain


class ForwardToPartition(TaggedMessage, frozen=True, tag=16):
    """A message for the leader and all processes of its partition."""

    message: Plain


class IndexInputPiece(TaggedMessage, frozen=True, tag=17):
    """A command to cut a piece of the input into records; the answer is ``InputPieceIndexed``."""

    request: InputPieceRequest


class StopNode(TaggedMessage, frozen=True, tag=11):
    """A command to end the work: end running tools, sync the journal, answer ``NodeStopped``."""

    #: Whether the outputs are written.
    whole: bool = False


class LeaveJob(TaggedMessage, frozen=True, tag=12):
    """A command to end the process; the answer is ``ProcessLeft``."""


class QueryNodeStorage(TaggedMessage, frozen=True, tag=13):
    """A question for the copies of files on a node, and its room for more; the answer is ``NodeStorageReport``."""

    files: tuple[staging_choice.DatabaseFile, ...]
    #: ``--stage``.
    way: str
    #: Whether the files are themselves copies, which the node can read nowhere else.
    are_copies: bool = False


class FetchCopies(TaggedMessage, frozen=True, tag=14):
    """A command to take part in a broadcast of files; the answer is ``NodeCopiesFetched``."""

    #: The files that are sent, in order.
    files: tuple[staging_choice.DatabaseFile, ...]
    choice: staging_choice.StagingChoice
    #: Neighbour ranks in the chain; None: this node is the first, or the last.
    before: int | None
    after: int | None


class SetUpWorker(TaggedMessage, frozen=True, tag=18):
    """A command to make the slots of a Dask worker, which shares no folder with the coordinator."""

    use: ToolUse
    cwd: str
    #: The program as the user typed it.
    program: str
    environ: dict[str, str]
    nice: int
    #: Path of the run directory, which tools must not see where the worker shares it.
    run_dir: str
    slots: int
    #: Host and address of the worker, for messages to the user.
    name: str
    #: Architecture of the coordinator.
    machine: str
    #: Fingerprints of the contents of program and databases at the coordinator, by path; the program's has none.
    contents: dict[str, str]
    #: Folders of the command that are there at the coordinator: those that are missing are made.
    folders: Sequence[str]
    #: The view that shows files behind URLs, which the worker fetches by itself.
    view: RemoteFileView | None


class RunWorkerTask(TaggedMessage, frozen=True, tag=19):
    """A command to run a task on a Dask worker; the answer is ``WorkerTaskEnded``."""

    assignment: TaskAssignment
    #: Contents of the files of the batch, where each record is a file.
    files: list[bytes]
    #: Contents of the blocks in the place of ``SlotTask.found``, which is empty.
    found: list[bytes]


# From the node agents


class ProcessJoined(TaggedMessage, frozen=True, tag=33):
    """The first message of a process: it has joined, and describes its machine."""

    host: str
    process: int
    cores: int
    #: Origin of the number of cores, as text.
    source: str
    machine: str
    millrace: str

    def format_rank_name(self, rank: int) -> str:
        """Return host and rank of the process, for messages to the user."""
        return f"{self.host} (rank {rank})"


class NodeReady(TaggedMessage, frozen=True, tag=34):
    """The answer to ``SetUpNode``: the slots are ready; with the program that they run."""

    exe: str
    #: Fingerprint of the program file.
    content: str
    #: Version line, if ``SetUpNode.command`` asks for it.
    version: str
    #: Outputs of ``SetUpNode.shared`` that are the same files on this node.
    sees: frozenset[int] = frozenset()
    #: Fragments of the database whose volumes the node has kept from earlier jobs.
    keeps: tuple[int, ...] = ()
    #: Whether the node sees the run directory; if not, its results travel as messages.
    shares_folder: bool = True


class TaskEventsReport(TaggedMessage, frozen=True, tag=35):
    """The starts and ends of tasks in the slots of a node, in order."""

    events: list[TaskStarted | TaskEnded]


class RankSlotsChanged(TaggedMessage, frozen=True, tag=36):
    """A change of the number of tools that run side by side on a rank's node."""

    rank: int
    slots: int
    #: The reason, as text.
    why: str


class OutputPartsWritten(TaggedMessage, frozen=True, tag=37):
    """A report of parts of outputs that are written, or synced to disk."""

    written: list[PartsWritten]


class CollectiveWriteReady(TaggedMessage, frozen=True, tag=38):
    """A note that the sender is ready for the collective write to an output, and waits in it."""

    stream: int


class NodeTasksWithdrawn(TaggedMessage, frozen=True, tag=39):
    """The answer to ``WithdrawFromNode``: tasks that no slot had started."""

    tasks: list[TaskId]


class AgentFailed(TaggedMessage, frozen=True, tag=40):
    """An error with which an agent cannot continue."""

    #: Errors that keep their class over the wire, by name.
    ERRORS: ClassVar[dict[str, type[MillraceError]]] = {
        kind.__name__: kind
        for kind in (
            errors.MillraceError,
            errors.RefusedError,
            errors.LostError,
            errors.ToolError,
            errors.CorruptError,
            errors.UnservedError,
            errors.MisfitError,
            errors.UnverifiedError,
            errors.LostOutputError,
            errors.TogetherError,
            errors.UnequalError,
        )
    }

    kind: str
    message: str
    hint: str
    exit_code: ExitCode

    @classmethod
    def from_error(cls, error: MillraceError) -> Self:
        """Make the message of ``rebuild_error``; a class not in ``ERRORS`` is sent as its nearest base that is."""
        kind = next(base.__name__ for base in type(error).__mro__ if cls.ERRORS.get(base.__name__) is base)
        return cls(kind, error.message, error.hint, error.exit_code)

    def rebuild_error(self, where: str) -> MillraceError:
        """Rebuild the error, with the process ``where`` in its text.

        Raises:
            CorruptError: The class is not in ``ERRORS``.
        """
        if (kind := self.ERRORS.get(self.kind)) is None:
            raise CorruptError(f"{where}: tells of an error of no known kind: {self.kind}: {self.message}")
        made = kind(f"{where}: {self.message}", self.hint)
        made.exit_code = self.exit_code
        return made


class SignalReceived(TaggedMessage, frozen=True, tag=41):
    """A signal that asked the sender to stop."""

    number: int


class ForwardedFromMember(TaggedMessage, frozen=True, tag=48):
    """A message of a process of the partition, forwarded by its leader."""

    rank: int
    message: Plain


class ProcessLost(TaggedMessage, frozen=True, tag=42):
    """The loss of a process; its tasks are reassigned within its partition."""

    why: str
    tasks: int


class AgentHeartbeat(TaggedMessage, frozen=True, tag=43):
    """A heartbeat of an agent."""


class NodeStopped(TaggedMessage, frozen=True, tag=44):
    """The answer to ``StopNode``: the journal and the parts of outputs are on disk."""

    #: Databases or program changed during the run, as text; empty: none.
    changed: str = ""
    #: Bytes that this node has read from HDFS.
    read: StorageRead = StorageRead()
    #: Evidence against programs that stayed alive on this node, as text; empty: none.
    against: str = ""


class NodeStorageReport(TaggedMessage, frozen=True, tag=46):
    """The answer to ``QueryNodeStorage``: copies and room on a node."""

    node: staging_choice.StagingNode


class NodeCopiesFetched(TaggedMessage, frozen=True, tag=47):
    """The answer to ``FetchCopies``: the node's part is done; ``why_not``: the reason why it has no copies, or empty."""

    why_not: str


class InputPieceIndexed(TaggedMessage, frozen=True, tag=49):
    """The answer to ``IndexInputPiece``: the records of the piece."""

    index: PieceIndex


class WorkerTaskEnded(TaggedMessage, frozen=True, tag=50):
    """The answer to ``RunWorkerTask``: how the task ended, with the bytes of its blocks."""

    ended: TaskEnded
    #: Number of tools that run side by side there now, and the reason in words if that has changed.
    slots: int
    why: str


class ProcessLeft(TaggedMessage, frozen=True, tag=45):
    """The last message of a process, and of those that it leads: it exits now."""


#: Messages from one process to another.
Plain = (
    SetUpNode | RunAssignments | WriteOutputPart | WriteHeldPart | OpenCollectiveOutputs | CloseCollectiveOutputs | WithdrawFromNode | KillNodeTools | PingAgent | AllBatchesSubmitted | StopNode | LeaveJob | QueryNodeStorage | FetchCopies | IndexInputPiece | SetUpWorker | RunWorkerTask
    | ProcessJoined | NodeReady | TaskEventsReport | RankSlotsChanged | OutputPartsWritten | CollectiveWriteReady | NodeTasksWithdrawn | AgentFailed | SignalReceived | ProcessLost | AgentHeartbeat | NodeStopped | ProcessLeft | NodeStorageReport | NodeCopiesFetched | InputPieceIndexed | WorkerTaskEnded
)  # fmt: skip

#: The same, and those that a leader forwards.
Message = Plain | ForwardToMember | ForwardToPartition | ForwardedFromMember


def make_unexpected_message_error(who: str, message: object) -> MillraceError:
    """Make the error of a message that is not allowed in this state."""
    name = type(message).__name__
    return MillraceError(
        f"{who}: message {name} came when none of its kind may", "this must not happen: please report it"
    )


def add_node_name_to_failure(ended: TaskEnded, setup: SetUpNode) -> TaskEnded:
    """Add the name of the node to the detail of a failure that may be the node's."""
    if ended.ending not in (TaskEnding.IO, TaskEnding.SPAWN):
        return ended
    return msgspec.structs.replace(ended, detail=f"{setup.name}: {ended.detail}")
