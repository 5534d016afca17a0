"""What coordinator and node agents say to each other, as values; who may say what when: docs/protocol.md.

A message is data: a number that says which it is, and its fields. What arrives is taken apart by these types
(`millrace.cluster.wire`), and nothing of it can name code.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Self

import msgspec

from millrace import errors
from millrace.errors import CorruptError, ExitCode, MillraceError
from millrace.ids import TaskId
from millrace.model import Command, HdfsRead, ToolUse, View
from millrace.node.batch import Batch
from millrace.output.parts import Part, Written
from millrace.plan import staging, world
from millrace.tasks import Ended, Ending, Started, Task


class TaggedMessage(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Base of all messages. The tag of each is its number on the wire, which is never given to another.

    1 to 32 come from the coordinator, 33 to 63 from the node agents.
    """


# From the coordinator


class Setup(TaggedMessage, frozen=True, tag=1):
    """Make your slots ready for this run."""

    use: ToolUse
    cwd: str
    #: The program as the user typed it, or as it is named for your architecture.
    program: str
    #: If you are of another architecture: the command of which you are to say what release you have.
    command: Command | None
    environ: dict[str, str]
    nice: int
    run_dir: str
    run_id: bytes
    journal: str
    sync: float
    slots: int
    #: Number of the first of these slots among all.
    first_slot: int
    #: What you are called in messages: host and rank.
    name: str
    #: (copy, file): what tools are to read in the place of what.
    staged: Sequence[tuple[str, str]]
    #: Outputs that you may be told to write parts of, with the number that each file has for the coordinator.
    shared: dict[int, int]
    #: Inputs, databases and program, as they are at the coordinator.
    world: Sequence[world.File]
    #: Where files behind URLs are to be seen, and where they are on your node, by name.
    view: View | None
    copies: dict[str, str]


class Assignment(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A task with the bytes of its batch."""

    task: Task
    #: Without the places of its files, which are the coordinator's.
    batch: Batch
    #: Bytes of each input; empty for those of format ``files``.
    contents: list[bytes]


class Work(TaggedMessage, frozen=True, tag=2):
    """Do these."""

    assignments: list[Assignment]


class Write(TaggedMessage, frozen=True, tag=3):
    """Write this part of an output; the answer is `Wrote`."""

    part: Part


class WriteNow(TaggedMessage, frozen=True, tag=4):
    """The turn of a part that was held has come."""

    stream: int
    number: int


class OpenTogether(TaggedMessage, frozen=True, tag=5):
    """Open these outputs with MPI-IO, as all do now."""

    streams: list[int]


class CloseTogether(TaggedMessage, frozen=True, tag=6):
    """Close them, as all do now."""


class Withdraw(TaggedMessage, frozen=True, tag=7):
    """Give back what no slot has taken; the answer is `Withdrawn`."""


class Kill(TaggedMessage, frozen=True, tag=8):
    """End the tools that run."""


class Ping(TaggedMessage, frozen=True, tag=9):
    """I am here."""


class NoMore(TaggedMessage, frozen=True, tag=10):
    """All tasks are there: what takes too long may be run twice."""


class For(TaggedMessage, frozen=True, tag=15):
    """Pass this on to a process of your partition."""

    rank: int
    message: Plain


class ForAll(TaggedMessage, frozen=True, tag=16):
    """This is for you and for all processes of your partition."""

    message: Plain


class Stop(TaggedMessage, frozen=True, tag=11):
    """The work is over: end what runs, bring your journal to the disk, say `Bye`."""

    #: Whether the outputs are written.
    whole: bool = False


class Leave(TaggedMessage, frozen=True, tag=12):
    """End your process; the answer is `Left`."""


class Look(TaggedMessage, frozen=True, tag=13):
    """What do you have of these files, and what room?"""

    files: tuple[staging.File, ...]
    way: str
    #: Whether they have no place of their own that copies would take.
    are_copies: bool = False


class Fetch(TaggedMessage, frozen=True, tag=14):
    """Take your place in the chain."""

    #: What is sent, in order.
    files: tuple[staging.File, ...]
    choice: staging.Choice
    #: Ranks; None: this is the first, or the last.
    before: int | None
    after: int | None


# From the node agents


class Hello(TaggedMessage, frozen=True, tag=33):
    """I am here, and this is my machine."""

    host: str
    process: int
    cores: int
    #: Why so many.
    source: str
    machine: str
    millrace: str

    def name(self, rank: int) -> str:
        """What its process is called for people."""
        return f"{self.host} (rank {rank})"


class Ready(TaggedMessage, frozen=True, tag=34):
    """My slots are ready, and this is what they run."""

    exe: str
    #: Fingerprint of the file.
    content: str
    #: Version line, if it was asked for.
    version: str
    #: Those of `Setup.shared` that are here the same files.
    sees: frozenset[int] = frozenset()


class Report(TaggedMessage, frozen=True, tag=35):
    """What happened in my slots, in order."""

    events: list[Started | Ended]


class Allow(TaggedMessage, frozen=True, tag=36):
    """From now on, so many tools run side by side on this rank's node."""

    rank: int
    slots: int
    #: The reason, in words.
    why: str


class Wrote(TaggedMessage, frozen=True, tag=37):
    """I have written, or brought to the disk, what you told me to write."""

    written: list[Written]


class ReadyToWrite(TaggedMessage, frozen=True, tag=38):
    """I wait in a call in which all write to this output."""

    stream: int


class Withdrawn(TaggedMessage, frozen=True, tag=39):
    """No slot had taken these."""

    tasks: list[TaskId]


class Trouble(TaggedMessage, frozen=True, tag=40):
    """I cannot go on."""

    #: Errors that arrive as what they were, by name.
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
    def of(cls, error: MillraceError) -> Self:
        """What there is to say of ``error``; one of no kind in `ERRORS` is told as the nearest that is."""
        kind = next(base.__name__ for base in type(error).__mro__ if cls.ERRORS.get(base.__name__) is base)
        return cls(kind, error.message, error.hint, error.exit_code)

    def error(self, where: str) -> MillraceError:
        """The error again, as one of the process ``where``.

        Raises:
            CorruptError: There is no such kind of error.
        """
        if (kind := self.ERRORS.get(self.kind)) is None:
            raise CorruptError(f"{where}: tells of an error of no known kind: {self.kind}: {self.message}")
        made = kind(f"{where}: {self.message}", self.hint)
        made.exit_code = self.exit_code
        return made


class Signalled(TaggedMessage, frozen=True, tag=41):
    """I was asked to stop by this signal."""

    number: int


class From(TaggedMessage, frozen=True, tag=48):
    """This was said by a process of my partition."""

    rank: int
    message: Plain


class Lost(TaggedMessage, frozen=True, tag=42):
    """This process is lost; others of its partition have its tasks."""

    why: str
    tasks: int


class Alive(TaggedMessage, frozen=True, tag=43):
    """I am here."""


class Bye(TaggedMessage, frozen=True, tag=44):
    """All that I have is on the disk."""

    #: What of databases and program has changed here while the run was on, in words; empty: nothing.
    changed: str = ""
    #: What I have read from HDFS.
    read: HdfsRead = HdfsRead()
    #: What speaks against programs that stayed alive here, in words; empty: nothing.
    against: str = ""


class Room(TaggedMessage, frozen=True, tag=46):
    """The answer."""

    node: staging.Node


class Fetched(TaggedMessage, frozen=True, tag=47):
    """My part is over; ``why_not``: why there are no copies here, or empty."""

    why_not: str


class Left(TaggedMessage, frozen=True, tag=45):
    """I end my process now, and so do those that I lead."""


#: What one process says to another.
Plain = (
    Setup | Work | Write | WriteNow | OpenTogether | CloseTogether | Withdraw | Kill | Ping | NoMore | Stop | Leave | Look | Fetch
    | Hello | Ready | Report | Allow | Wrote | ReadyToWrite | Withdrawn | Trouble | Signalled | Lost | Alive | Bye | Left | Room | Fetched
)  # fmt: skip

#: What may be passed on by a leader, too.
Message = Plain | For | ForAll | From


def unexpected(who: str, message: object) -> MillraceError:
    """The error of a message that may not come now."""
    name = type(message).__name__
    return MillraceError(
        f"{who}: message {name} came when none of its kind may", "this must not happen: please report it"
    )


def as_told(ended: Ended, setup: Setup) -> Ended:
    """The end of a task as it is told: what failed here says where that is."""
    if ended.ending not in (Ending.IO, Ending.SPAWN):
        return ended
    return msgspec.structs.replace(ended, detail=f"{setup.name}: {ended.detail}")
