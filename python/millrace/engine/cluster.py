"""The coordinator's side of an MPI job: all processes as one set of slots."""

from __future__ import annotations

import math
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from millrace import __version__, _core
from millrace.engine import messages as say
from millrace.engine.launched import for_tools
from millrace.engine.links import LONGEST_GOODBYE, PERIOD, SILENCE, SILENCE_AT_END, Links, Muster
from millrace.engine.mpi import World
from millrace.engine.programs import Programs
from millrace.engine.remote import GROWTH, NAPS, OWN, hello
from millrace.engine.stop import Interrupt
from millrace.errors import ExitCode, LostError, MillraceError, RefusedError
from millrace.job import Job
from millrace.model import ToolUse
from millrace.node.agent import Allowed, Event, Slots
from millrace.node.feed import Batch
from millrace.node.workdir import WorkDir
from millrace.plan.plan import Plan
from millrace.report.words import count
from millrace.rundir import Manifest, RunDir
from millrace.schedule.level import Level
from millrace.schedule.partition import routes

if TYPE_CHECKING:
    from millrace.engine.writers import Writers

#: Shortest nap of the coordinator, in seconds: nodes have tasks ahead, and what comes in a bunch costs less.
BUSY_NAP = 0.001


@dataclass(frozen=True)
class Member:
    """One process of the job and its part of the slots."""

    rank: int
    hello: say.Hello
    slots: int
    #: Number of its first slot among all.
    first_slot: int

    @property
    def name(self) -> str:
        return self.hello.name(self.rank)


@dataclass(frozen=True)
class _Withdrawn:
    """The event of a task that comes back as it went."""

    id: int
    kind: str = "withdrawn"


def share(hellos: Sequence[say.Hello], job: Job, use: ToolUse) -> tuple[list[Member], list[str]]:
    """Give each process its slots; those on one machine share its cores.

    Returns:
        The members by rank, and what there is to say of it, in words.
    """
    at: dict[str, list[int]] = defaultdict(list)
    for rank, one in enumerate(hellos):
        at[one.host].append(rank)
    members, notes, first = [], [], 0
    for rank, one in enumerate(hellos):
        sharers = at[one.host]
        place, many = sharers.index(rank), len(sharers)
        n_cores = one.cores // many + (place < one.cores % many)
        slots = job.slots or max(1, n_cores // use.threads)
        members.append(Member(rank, one, slots, first))
        first += slots
    for host, ranks in at.items():
        if len(ranks) > 1:
            n_slots = sum(members[rank].slots for rank in ranks)
            cores = hellos[ranks[0]].cores
            notes.append(
                f"{host}: {len(ranks)} processes share its {cores} cores, {n_slots} slots in all; one is enough"
            )
    notes.insert(0, f"slots: {first} in {count(len(hellos), 'process')} on {count(len(at), 'node')}")
    return members, notes


class Crew:
    """The other processes, from the first word to the last.

    Beyond a size they form partitions: what is for a process of a partition goes by way of its leader.

    Args:
        partition_size: Nodes of a partition, as the user wants it; see `millrace.schedule.partition`.
        patience: How many times the usual time the others may take to get ready.
    """

    def __init__(
        self, world: World, work: WorkDir, partition_size: int | None = None, patience: float = math.inf
    ) -> None:
        self.world, self.work, self._patience = world, work, patience
        self.hellos: dict[int, say.Hello] = {0: hello(for_tools(os.environ))}
        self.interrupt: Interrupt | None = None
        #: With whom this process speaks to reach each of the others.
        self._route = routes(world.size, partition_size)
        #: Ranks of each partition, by its leader; those that nobody leads stand alone.
        self.partitions: dict[int, list[int]] = defaultdict(list)
        for rank, by in self._route.items():
            self.partitions[by].append(rank)
        self._links = Links(world, self.partitions)
        self._ready: dict[int, say.Ready] = {}
        self._left: set[int] = set()
        self._programs: Programs | None = None
        #: What each sees of the outputs that may be shared.
        self.sees: dict[int, frozenset[int]] = {}
        #: Told of each process that is lost while the run is on: rank, why, and how many tasks others have already.
        self.on_lost: Callable[[int, str, int], None] | None = None
        #: What there is to say of the partitions, in words.
        self.notes: list[str] = []
        #: What has changed on a node while the run was on, as it said with its last word.
        self.changed = ""
        if led := [len(ranks) for ranks in self.partitions.values() if len(ranks) > 1]:
            self.notes.append(f"partitions: {len(led) + 1} of {max(led)} processes at most")
        #: What this process ends with if it cannot end together with the others.
        self.exit_code = int(ExitCode.STOPPED)

    # Messages

    def tell(self, rank: int, message: object) -> None:
        by = self._route[rank]
        self._links.tell(by, message if by == rank else say.For(rank, message))

    def tell_all(self, message: object) -> None:
        for rank in self._links.living():
            self._links.tell(rank, message if len(self.partitions[rank]) == 1 else say.ForAll(message))

    def tell_leaders(self, message: object) -> None:
        for rank in self._links.living():
            if len(self.partitions[rank]) > 1:
                self._links.tell(rank, message)

    def hear(self) -> list[tuple[int, object]]:
        """What has come that is not this class's own affair.

        Raises:
            MillraceError: A process cannot go on, or is lost.
        """
        found, now, links = [], time.monotonic(), self._links
        for by, message in self.world.receive():
            rank = by
            if isinstance(message, say.From):
                rank, message = message.rank, message.message
            if by in links.lost or rank in links.lost:
                continue  # it stood still and goes on now, but others have its tasks
            links.heard(by, now)
            match message:
                case say.Alive():
                    pass
                case say.Hello():
                    self.hellos[rank] = message
                case say.Ready():
                    self._ready[rank] = message
                    self.sees[rank] = message.sees
                case say.Bye(changed):
                    links.gone.add(rank)
                    self.changed = self.changed or (changed and f"{self.name(rank)}: {changed}")
                case say.Left():
                    self._left.add(rank)
                case say.Lost(why, tasks):
                    self._lose(rank, why, tasks)
                case say.Signalled(number):
                    # The launcher has sent it to all of us, perhaps; a second one means "at once".
                    if self.interrupt and not self.interrupt.signal:
                        self.interrupt.note(number)
                case say.Trouble(text, hint, code):
                    error = MillraceError(f"{self.name(rank)}: {text}", hint)
                    error.exit_code = ExitCode(code)
                    raise error
                case _:
                    found.append((rank, message))
        for rank, why in links.turn(now):
            self._lose(rank, why, 0)
        return found

    def _lose(self, rank: int, why: str, tasks: int) -> None:
        """Do without a process; without a leader nothing is known of its partition, so the run ends to begin again."""
        partition = self.partitions.get(rank, [rank])
        self._links.lost.update(partition)
        self.world.broken = True
        if self.on_lost and len(partition) == 1:
            self.on_lost(rank, why, tasks)
        elif self._links.dismissed is None:
            raise LostError(
                f"{self.name(rank)} is lost: {why}", "nothing that was done is lost: the same command resumes"
            )

    @property
    def gone(self) -> set[int]:
        """Who has said goodbye: nothing of theirs changes any more."""
        return self._links.gone

    def name(self, rank: int) -> str:
        """Host and rank of a process, for people."""
        known = self.hellos.get(rank)
        return known.name(rank) if known else f"rank {rank}"

    def _wait(self, done: Callable[[], bool], timeout_seconds: float = math.inf) -> bool:
        deadline = time.monotonic() + timeout_seconds
        while not done():
            if time.monotonic() > deadline:
                return False
            if self.interrupt and self.interrupt.count > 1:
                return False
            self.hear()
            time.sleep(NAPS[1] / 2)
        return True

    def _wait_for_others(self, n_there: Callable[[], int]) -> bool:
        """Wait until all others are there; false if those that are missing are given up."""
        others = self.world.size - 1
        muster = Muster(time.monotonic(), others, self._patience)
        return (
            self._wait(lambda: n_there() == others or muster.is_late(time.monotonic(), n_there()))
            and n_there() == others
        )

    # From the first word to the last

    def gather(self) -> list[say.Hello]:
        """Wait until all are there; returns what they said, by rank.

        Raises:
            MillraceError: Some do not come.
            RefusedError: They are of different releases.
        """
        if not self._wait_for_others(lambda: len(self.hellos) - 1):
            self.world.broken = True
            missing = sorted(set(range(self.world.size)) - set(self.hellos))
            raise LostError(f"no word from rank {', '.join(map(str, missing))}", "look at these nodes")
        self.world.all_are_here()
        found = [self.hellos[rank] for rank in range(self.world.size)]
        for rank, one in enumerate(found):
            if one.millrace != __version__:
                raise RefusedError(
                    f"{one.name(rank)} has millrace {one.millrace}, {found[0].host} has {__version__}",
                    "install the same release on all nodes",
                )
        return found

    def set_up(
        self, plan: Plan, rundir: RunDir, manifest: Manifest, members: Sequence[Member], start: int,
        staged: Mapping[str, Sequence[tuple[str, str]]], shared: dict[int, int],
    ) -> None:  # fmt: skip
        """Let all others make their slots ready; returns at once. ``staged``, ``shared``: see `Setup`."""
        whole = {name: value for name, value in plan.command.environ.items() if name not in OWN}
        self._programs = programs = Programs(plan, rundir)
        names = [programs.name_on(member.name, member.hello.machine) for member in members]
        for member in members[1:]:
            self.tell(member.rank, say.Setup(
                use=plan.use, cwd=str(plan.command.cwd), program=names[member.rank],
                command=programs.command_for(member.hello.machine), environ=whole,
                nice=plan.job.nice, run_dir=str(rundir.path), run_id=bytes.fromhex(manifest.run_id),
                journal=str(rundir.journal_of(start, member.rank)), sync=plan.job.sync, slots=member.slots, first_slot=member.first_slot,
                name=member.name, staged=staged.get(member.hello.host, []), shared=shared,
                world=plan.world,
            ))  # fmt: skip

    def wait_until_ready(self) -> None:
        """Wait until all slots are ready.

        Raises:
            MillraceError: Some process cannot make them, or has another program.
        """
        if not self._wait_for_others(lambda: len(self._ready)):
            missing = sorted(set(range(1, self.world.size)) - set(self._ready))
            self.world.broken = True
            raise LostError(f"{', '.join(map(self.name, missing))} does not get ready", "look at these nodes")
        if self._programs:
            self._programs.check((self.name(rank), self.hellos[rank].machine, one) for rank, one in self._ready.items())
        self._links.limit = SILENCE

    def dismiss(self, *, whole: bool = False) -> None:
        """End the work of all others; when this returns, what they committed is on the disk.

        Args:
            whole: The outputs are written: who does not answer soon is not waited for.
        """
        links = self._links
        if links.dismissed is not None:
            return
        links.dismiss(time.monotonic(), whole=whole)
        self.on_lost = None
        self.tell_all(say.Stop(whole))
        everybody = self.world.size - 1
        while True:
            try:
                if not self._wait(lambda: len(links.gone | links.lost) == everybody, 2 * LONGEST_GOODBYE):
                    self.world.broken = True
                return
            except MillraceError:
                continue  # what is wrong with its last words does not matter any more

    def leave(self) -> None:
        """Let all processes end; to be called when there is nothing more to say."""
        self.dismiss()
        self.tell_all(say.Leave())
        # One that stands still by now would let all others wait for it in MPI.
        if not self._wait_for_the_end(PERIOD if self.world.broken else SILENCE_AT_END):
            self.world.broken = True
        # One that is lost may stand still, and is not at its end then.
        missing = self._silent({*self._links.living(), *self._links.lost})
        self.world.leave(self.exit_code, missing=bool(missing))

    def _wait_for_the_end(self, timeout_seconds: float) -> bool:
        try:
            return self._wait(lambda: not self._silent(self._links.living()), timeout_seconds)
        except MillraceError:
            return False  # as in `dismiss`

    def _silent(self, ranks: Iterable[int]) -> set[int]:
        """Those that have not said that they end, and are not known to be gone."""
        return set(ranks) - self._left - self.world.failed()


def content_of(path: Path) -> bytes:
    """The bytes of a small file in memory."""
    with open(path, "rb", buffering=0) as file:
        return file.readall()


@dataclass(frozen=True)
class _Load:
    """What a task needs to be run."""

    batch: Batch
    attempt: int
    urgent: bool
    timeout_seconds: float | None
    fragment: int
    found: list[_core.BlockRef]
    alone: bool


class Cluster:
    """The slots of all processes, with the face of one node (`millrace.node.agent.Slots`)."""

    def __init__(
        self, crew: Crew, own: Slots, members: Sequence[Member], use: ToolUse, message: Callable[[str], None]
    ) -> None:
        self._crew, self._own, self._members, self._use, self._message = crew, own, members, use, message
        crew.on_lost = self._lose
        self._level: Level[_Load] = Level(use.n_fragments)
        self._nap = BUSY_NAP
        #: What is to be sent to each rank when this turn is over.
        self._work: dict[int, list[say.Task]] = defaultdict(list)
        #: Who writes what of the outputs, where that is not the coordinator alone.
        self.writers: Writers | None = None
        self.argv, self.n_nodes = own.argv, len(members)
        #: Ranks of each node as this level sees it: a partition is one.
        self._of = {0: [0], **crew.partitions}
        #: Slots of each rank that are used.
        self._slots = [member.slots for member in members]
        for node in self._of:
            self._join(node)

    def _join(self, node: int) -> None:
        """A node is there, or has other slots than before."""
        ranks = self._of[node]
        self._level.joined(node, sum(self._slots[rank] for rank in ranks), time.monotonic(), len(ranks))

    def no_more(self) -> None:
        """See `Slots`: from here on, what takes too long may be run twice."""
        self._level.no_more()
        self._crew.tell_leaders(say.NoMore())

    def submit(
        self, task: int, batch: Batch, attempt: int, *, urgent: bool = False, timeout_seconds: float | None = None,
        fragment: int = 0, found: Sequence[_core.BlockRef] = (),
        alone: bool = False,
    ) -> None:  # fmt: skip
        """See `Slots`."""
        load = _Load(batch, attempt, urgent, timeout_seconds, fragment, list(found), alone)
        units = float(batch.units or batch.n_records)
        self._level.submit(task, load, units, time.monotonic(), urgent=urgent, fragment=fragment)
        self._send()

    def _send(self) -> None:
        for send, load in self._level.take():
            if send.node == 0:
                self._own.submit(
                    send.task, load.batch, load.attempt, urgent=load.urgent, timeout_seconds=load.timeout_seconds,
                    fragment=load.fragment, found=load.found, alone=load.alone,
                )  # fmt: skip
            else:
                self._work[send.node].append(self._task(send.task, load))

    def _task(self, number: int, load: _Load) -> say.Task:
        batch = load.batch
        inputs = zip(self._use.inputs, batch.spooled, strict=True)
        contents = [b"" if item.format == "files" else content_of(path) for item, path in inputs]
        return say.Task(
            number, load.attempt, batch.first, batch.last, batch.units, batch.bytes, batch.digests, contents, batch.files,
            load.timeout_seconds, load.urgent, load.fragment, load.found, load.alone,
        )  # fmt: skip

    # Events

    def events(self, timeout_seconds: float) -> list[Event | Allowed]:
        """See `Slots`.

        Raises:
            MillraceError: A process is lost, or cannot go on.
        """
        deadline = time.monotonic() + timeout_seconds
        while True:
            self._flush()
            found: list[Event | Allowed] = []
            for event in self._own.events(self._nap):
                found += self._happened(0, event)
            for rank, message in self._crew.hear():
                found += self._heard(rank, message)
            now = time.monotonic()
            self._level.look(now)
            if self.writers:
                self.writers.turn(now)
            self._send()
            self._flush()
            if found:
                self._nap = BUSY_NAP
                return found
            self._nap = min(self._nap * GROWTH, NAPS[1])
            if now >= deadline:
                return []

    def _flush(self) -> None:
        for rank, tasks in self._work.items():
            self._crew.tell(rank, say.Work(tasks))
        self._work.clear()

    def _heard(self, rank: int, message: object) -> list[Event | Allowed]:
        found: list[Event | Allowed] = []
        match message:
            case say.Report(events):
                for event in events:
                    found += self._happened(rank, event)  # type: ignore[arg-type] # one that started has less to say
            case say.Wrote(written) if self.writers:
                self.writers.heard(written)
                self._nap = NAPS[0]  # another part may wait for this
            case say.ReadyToWrite(stream) if self.writers:
                self.writers.waits(stream)
            case say.Allow(who, slots, why):
                found.append(self._allowed(who, slots, why))
            case say.Withdrawn(tasks):
                for task in tasks:
                    found += self._came_back(rank, task)
        return found

    def _allowed(self, rank: int, slots: int, why: str) -> Allowed:
        """A rank uses another number of slots; what that makes of all of them."""
        self._slots[rank] = slots
        self._join(next(node for node, ranks in self._of.items() if rank in ranks))
        return Allowed(sum(self._slots), f"{self._members[rank].name}: {why}")

    def _happened(self, node: int, event: Event | Allowed) -> list[Event | Allowed]:
        """What is to be told of an event of a slot: of a task that is out twice, the first result counts."""
        if isinstance(event, Allowed):
            return [self._allowed(node, event.slots, event.why)]
        if event.kind == "started":
            news = self._level.started(event.id)
        elif event.kind == "ended":
            counts = event.status == "done"
            news = self._level.ended(node, event.id, event.wall_seconds, time.monotonic(), counts=counts)
            self._send()
        else:
            news = True
        return [event] if news else []

    def _came_back(self, node: int, task: int) -> list[Event]:
        alone = self._level.came_back(node, task, time.monotonic())
        self._send()
        return [_Withdrawn(task)] if alone else []  # type: ignore[list-item] # nothing more is asked of it

    def _lose(self, rank: int, why: str, tasks: int) -> None:
        """Go on without a process; a launcher that ends the whole job then leaves it to the next start to resume."""
        if self.writers:
            self.writers.lost(rank)
        if rank in self._of:
            self._work.pop(rank, None)
            tasks = self._level.lost(rank, time.monotonic())
        else:
            leader = next(leader for leader, ranks in self._of.items() if rank in ranks)
            self._of[leader] = [other for other in self._of[leader] if other != rank]
            self._join(leader)
        self._message(f"{self._members[rank].name} is lost: {why}; {count(tasks, 'task')} of its own go to others")
        self._send()

    # The end

    def withdraw(self) -> list[int]:
        """See `Slots`."""
        back = self._level.withdraw()
        back += [task for task in self._own.withdraw() if self._came_back(0, task)]
        self._flush()
        self._crew.tell_all(say.Withdraw())
        return back

    def kill_all(self) -> None:
        """See `Slots`."""
        self._own.kill_all()
        self._crew.tell_all(say.Kill())
