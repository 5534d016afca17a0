"""What coordinator and node agents say to each other, as values; who may say what when: docs/protocol.md."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from millrace.errors import MillraceError
from millrace.ids import TaskId
from millrace.model import Command, HdfsRead, ToolUse, View
from millrace.node.batch import Batch
from millrace.output.parts import Part, Written
from millrace.plan.world import File
from millrace.tasks import Ended, Ending, Started, Task

# From the coordinator


class Setup(NamedTuple):
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
    world: Sequence[File]
    #: Where files behind URLs are to be seen, and where they are on your node, by name.
    view: View | None
    copies: dict[str, str]


class Assignment(NamedTuple):
    """A task with the bytes of its batch."""

    task: Task
    #: Without the places of its files, which are the coordinator's.
    batch: Batch
    #: Bytes of each input; empty for those of format ``files``.
    contents: list[bytes]


class Work(NamedTuple):
    """Do these."""

    assignments: list[Assignment]


class Write(NamedTuple):
    """Write this part of an output; the answer is `Wrote`."""

    part: Part


class WriteNow(NamedTuple):
    """The turn of a part that was held has come."""

    stream: int
    number: int


class OpenTogether(NamedTuple):
    """Open these outputs with MPI-IO, as all do now."""

    streams: list[int]


class CloseTogether(NamedTuple):
    """Close them, as all do now."""


class Withdraw(NamedTuple):
    """Give back what no slot has taken; the answer is `Withdrawn`."""


class Kill(NamedTuple):
    """End the tools that run."""


class Ping(NamedTuple):
    """I am here."""


class NoMore(NamedTuple):
    """All tasks are there: what takes too long may be run twice."""


class For(NamedTuple):
    """Pass this on to a process of your partition."""

    rank: int
    message: object


class ForAll(NamedTuple):
    """This is for you and for all processes of your partition."""

    message: object


class Stop(NamedTuple):
    """The work is over: end what runs, bring your journal to the disk, say `Bye`."""

    #: Whether the outputs are written.
    whole: bool = False


class Leave(NamedTuple):
    """End your process; the answer is `Left`."""


# From the node agents


class Hello(NamedTuple):
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


class Ready(NamedTuple):
    """My slots are ready, and this is what they run."""

    exe: str
    #: Fingerprint of the file.
    content: str
    #: Version line, if it was asked for.
    version: str
    #: Those of `Setup.shared` that are here the same files.
    sees: frozenset[int] = frozenset()


class Report(NamedTuple):
    """What happened in my slots, in order."""

    events: list[Started | Ended]


class Allow(NamedTuple):
    """From now on, so many tools run side by side on this rank's node."""

    rank: int
    slots: int
    #: The reason, in words.
    why: str


class Wrote(NamedTuple):
    """I have written, or brought to the disk, what you told me to write."""

    written: list[Written]


class ReadyToWrite(NamedTuple):
    """I wait in a call in which all write to this output."""

    stream: int


class Withdrawn(NamedTuple):
    """No slot had taken these."""

    tasks: list[TaskId]


class Trouble(NamedTuple):
    """I cannot go on."""

    message: str
    hint: str
    exit_code: int


class Signalled(NamedTuple):
    """I was asked to stop by this signal."""

    number: int


class From(NamedTuple):
    """This was said by a process of my partition."""

    rank: int
    message: object


class Lost(NamedTuple):
    """This process is lost; others of its partition have its tasks."""

    why: str
    tasks: int


class Alive(NamedTuple):
    """I am here."""


class Bye(NamedTuple):
    """All that I have is on the disk."""

    #: What of databases and program has changed here while the run was on, in words; empty: nothing.
    changed: str = ""
    #: What I have read from HDFS.
    read: HdfsRead = HdfsRead()
    #: What speaks against programs that stayed alive here, in words; empty: nothing.
    against: str = ""


class Left(NamedTuple):
    """I end my process now, and so do those that I lead."""


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
