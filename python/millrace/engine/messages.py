"""What coordinator and node agents say to each other. Values only; they travel pickled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from millrace import _core
from millrace.model import Command, ToolUse
from millrace.output.parts import Part, Written
from millrace.plan.world import File

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


class Task(NamedTuple):
    """One execution of the tool, with the bytes of its batch."""

    number: int
    attempt: int
    first: int
    last: int
    units: int
    n_bytes: int
    digests: tuple[tuple[int, int], ...]
    #: Bytes of each input; empty for those of format ``files``.
    contents: list[bytes]
    files: tuple[str, ...]
    timeout_seconds: float | None
    urgent: bool
    fragment: int
    found: list[_core.BlockRef]
    alone: bool = False


class Work(NamedTuple):
    """Do these."""

    tasks: list[Task]


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


class Ended(NamedTuple):
    """How a task ended: the fields of a `millrace._core.PoolEvent`."""

    id: int
    slot: int
    status: str
    exit_status: int | None
    signal: int | None
    detail: str
    disk_full: bool
    cpu_seconds: float
    wall_seconds: float
    peak_rss_bytes: int
    out_of_memory: bool
    side_by_side: int
    stderr: bytes
    extra: list[str]
    task: _core.TaskRef | None
    ago_seconds: float

    @property
    def kind(self) -> str:
        return "ended"


class Started(NamedTuple):
    """A slot has taken a task."""

    id: int
    slot: int
    ago_seconds: float

    @property
    def kind(self) -> str:
        return "started"


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

    tasks: list[int]


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


class Left(NamedTuple):
    """I end my process now, and so do those that I lead."""


def from_event(event: _core.PoolEvent, setup: Setup) -> Ended:
    """The end of a task as it is told: slots are numbered among all, and what failed here says where that is."""
    detail = f"{setup.name}: {event.detail}" if event.status in ("io", "spawn") else event.detail
    return Ended(
        event.id, setup.first_slot + event.slot, event.status, event.exit_status, event.signal, detail, event.disk_full,
        event.cpu_seconds, event.wall_seconds, event.peak_rss_bytes, event.out_of_memory, event.side_by_side, event.stderr, event.extra, event.task,
        event.ago_seconds,
    )  # fmt: skip
