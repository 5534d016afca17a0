"""The coordinator's side of an MPI job: all processes as one set of slots."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from millrace import __version__, _core
from millrace.engine import messages as say
from millrace.engine.launched import for_tools
from millrace.engine.mpi import World
from millrace.engine.remote import GROWTH, NAPS, OWN, PERIOD, SILENCE, SILENCE_AT_START, Patience, hello
from millrace.engine.stop import Interrupt
from millrace.errors import ExitCode, LostError, MillraceError, RefusedError
from millrace.job import Job
from millrace.model import ToolUse
from millrace.node.agent import Event, Slots
from millrace.node.feed import Batch
from millrace.node.workdir import WorkDir
from millrace.plan import fingerprint
from millrace.plan.plan import Plan
from millrace.report.words import count
from millrace.rundir import Manifest, RunDir
from millrace.schedule.spread import Send, Spread

if TYPE_CHECKING:
    from millrace.engine.writers import Writers

#: Seconds between looks for tasks that take too long while slots are idle.
LOOK_FOR_STRAGGLERS = 0.25

#: Seconds that the others get to end what they do and bring their results to the disk.
LONGEST_GOODBYE = 15.0


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
        return f"{self.hello.host} (rank {self.rank})"


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
    """The other processes, from the first word to the last."""

    def __init__(self, world: World, work: WorkDir) -> None:
        self.world, self.work = world, work
        self.hellos: dict[int, say.Hello] = {0: hello(for_tools(os.environ))}
        self.interrupt: Interrupt | None = None
        self._patience = {rank: Patience() for rank in range(1, world.size)}
        self._told = dict.fromkeys(self._patience, 0.0)
        self._limit = SILENCE_AT_START
        self._ready: set[int] = set()
        #: What each sees of the outputs that may be shared.
        self.sees: dict[int, frozenset[int]] = {}
        #: Who has said goodbye, and who is lost.
        self.gone: set[int] = set()
        self.lost: set[int] = set()
        #: Told of each process that is lost while the run is on.
        self.on_lost: Callable[[int, str], None] | None = None
        self._turned = 0.0
        self._dismissed: float | None = None
        #: What this process ends with if it cannot end together with the others.
        self.exit_code = int(ExitCode.STOPPED)

    # Messages

    def tell(self, rank: int, message: object) -> None:
        self._told[rank] = time.monotonic()
        self.world.send(rank, message)

    def tell_all(self, message: object) -> None:
        for rank in self._told:
            if rank not in self.lost:
                self.tell(rank, message)

    def hear(self) -> list[tuple[int, object]]:
        """What has come that is not this class's own affair.

        Raises:
            MillraceError: A process cannot go on, or is lost.
        """
        found, now = [], time.monotonic()
        for rank, message in self.world.receive():
            if rank in self.lost:
                continue  # it stood still and goes on now, but others have its tasks
            self._patience[rank].turn(now, heard=True)
            match message:
                case say.Alive():
                    pass
                case say.Hello():
                    self.hellos[rank] = message
                case say.Ready(sees):
                    self._ready.add(rank)
                    self.sees[rank] = sees
                case say.Bye():
                    self.gone.add(rank)
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
        self._turn(now)
        return found

    def _turn(self, now: float) -> None:
        self.world.push()
        if now - self._turned < PERIOD / 4:
            return
        self._turned = now
        failed = self.world.failed()
        for rank, patience in self._patience.items():
            if rank in self.gone or rank in self.lost:
                continue
            if rank in failed:
                self._lose(rank, "its process is gone")
            elif patience.turn(now, heard=False) > self._limit_of(patience):
                self._lose(rank, f"no sign of life for {self._limit_of(patience):.0f} s")
            elif now - self._told[rank] > PERIOD:
                self.tell(rank, say.Ping())

    def _limit_of(self, patience: Patience) -> float:
        """Seconds of silence after which a process is lost; one that is about to end its work may be busy with it."""
        if self._dismissed is not None and patience.heard > self._dismissed:
            return LONGEST_GOODBYE
        return self._limit

    def _lose(self, rank: int, why: str) -> None:
        self.lost.add(rank)
        self.world.broken = True
        if self.on_lost:
            self.on_lost(rank, why)
        elif self._dismissed is None:
            raise LostError(
                f"{self.name(rank)} is lost: {why}", "nothing that was done is lost: the same command resumes"
            )

    def name(self, rank: int) -> str:
        """Host and rank of a process, for messages."""
        known = self.hellos.get(rank)
        return f"{known.host} (rank {rank})" if known else f"rank {rank}"

    def _wait(self, done: Callable[[], bool], timeout_seconds: float) -> bool:
        deadline = time.monotonic() + timeout_seconds
        while not done():
            if time.monotonic() > deadline:
                return False
            if self.interrupt and self.interrupt.count > 1:
                return False
            self.hear()
            time.sleep(NAPS[1] / 2)
        return True

    # From the first word to the last

    def gather(self) -> list[say.Hello]:
        """Wait until all are there; returns what they said, by rank.

        Raises:
            MillraceError: Some do not come.
            RefusedError: They are of different releases.
        """
        if not self._wait(lambda: len(self.hellos) == self.world.size, SILENCE_AT_START):
            self.world.broken = True
            missing = sorted(set(range(self.world.size)) - set(self.hellos))
            raise LostError(f"no word from rank {', '.join(map(str, missing))}", "look at these nodes")
        self.world.all_are_here()
        found = [self.hellos[rank] for rank in range(self.world.size)]
        for rank, one in enumerate(found):
            if one.millrace != __version__:
                raise RefusedError(
                    f"{one.host} (rank {rank}) has millrace {one.millrace}, {found[0].host} has {__version__}",
                    "install the same release on all nodes",
                )
        return found

    def set_up(
        self,
        plan: Plan,
        rundir: RunDir,
        manifest: Manifest,
        members: Sequence[Member],
        start: int,
        shared: dict[int, int],
    ) -> None:
        """Let all others make their slots ready; returns at once."""
        whole = {name: value for name, value in plan.command.environ.items() if name not in OWN}
        digest = fingerprint.of_content(plan.command.exe)
        for member in members[1:]:
            self.tell(member.rank, say.Setup(
                use=plan.use, cwd=str(plan.command.cwd), program=plan.command.argv[0], fingerprint=digest, environ=whole,
                nice=plan.job.nice, run_dir=str(rundir.path), run_id=bytes.fromhex(manifest.run_id),
                journal=str(rundir.journal_of(start, member.rank)), sync=plan.job.sync, slots=member.slots, first_slot=member.first_slot,
                name=member.name, shared=shared,
            ))  # fmt: skip

    def wait_until_ready(self) -> None:
        """Wait until all slots are ready.

        Raises:
            MillraceError: Some process cannot make them.
        """
        if not self._wait(lambda: len(self._ready) == self.world.size - 1, SILENCE_AT_START):
            raise LostError("the nodes do not get ready", "look at them")
        self._limit = SILENCE

    def dismiss(self) -> None:
        """End the work of all others; when this returns, what they committed is on the disk."""
        if self._dismissed is not None:
            return
        self._dismissed, self.on_lost = time.monotonic(), None
        self._limit = SILENCE
        self.tell_all(say.Stop())
        everybody = self.world.size - 1
        while True:
            try:
                if not self._wait(lambda: len(self.gone | self.lost) == everybody, 2 * LONGEST_GOODBYE):
                    self.world.broken = True
                return
            except MillraceError:
                continue  # what is wrong with its last words does not matter any more

    def leave(self) -> None:
        """Let all processes end; to be called when there is nothing more to say."""
        self.dismiss()
        self.tell_all(say.Leave())
        if not self.world.broken and not self.world.flush(PERIOD):
            self.world.broken = True
        self.world.leave(self.exit_code)


def content_of(path: Path) -> bytes:
    """The bytes of a small file in memory."""
    with open(path, "rb", buffering=0) as file:
        return file.readall()


@dataclass
class _Out:
    """A task that was submitted and has not come to its end."""

    batch: Batch
    attempt: int
    urgent: bool
    timeout_seconds: float | None
    compare: list[_core.BlockRef] | None
    fragment: int
    found: list[_core.BlockRef]
    started: bool = False


class Cluster:
    """The slots of all processes, with the face of one node (`millrace.node.agent.Slots`)."""

    def __init__(
        self, crew: Crew, own: Slots, members: Sequence[Member], use: ToolUse, message: Callable[[str], None]
    ) -> None:
        self._crew, self._own, self._members, self._use, self._message = crew, own, members, use, message
        crew.on_lost = self._lose
        self._spread = Spread()
        self._out: dict[int, _Out] = {}
        self._nap = NAPS[0]
        self._last, self._looked = False, 0.0
        #: What is to be sent to each rank when this turn is over.
        self._work: dict[int, list[say.Task]] = defaultdict(list)
        #: Who writes what of the outputs, where that is not the coordinator alone.
        self.writers: Writers | None = None
        self.argv = own.argv
        now = time.monotonic()
        for member in members:
            self._spread.node_joined(member.rank, member.slots, now)

    def no_more(self) -> None:
        """See `Slots`: from here on, what takes too long may be run twice."""
        self._last = True

    def submit(
        self, task: int, batch: Batch, attempt: int, *, urgent: bool = False, timeout_seconds: float | None = None,
        compare: Sequence[_core.BlockRef] | None = None, fragment: int = 0, found: Sequence[_core.BlockRef] = (),
    ) -> None:  # fmt: skip
        """See `Slots`."""
        blocks = list(compare) if compare is not None else None
        self._out[task] = _Out(batch, attempt, urgent, timeout_seconds, blocks, fragment, list(found))
        units = float(batch.units or batch.n_records)
        self._send(self._spread.task_ready(task, units, time.monotonic(), urgent=urgent))

    def _send(self, sends: Sequence[Send]) -> None:
        for send in sends:
            out = self._out.get(send.task)
            if out is None:
                continue
            if send.node == 0:
                self._own.submit(
                    send.task, out.batch, out.attempt, urgent=out.urgent, timeout_seconds=out.timeout_seconds,
                    compare=out.compare, fragment=out.fragment, found=out.found,
                )  # fmt: skip
            else:
                self._work[send.node].append(self._task(send.task, out))

    def _task(self, number: int, out: _Out) -> say.Task:
        batch = out.batch
        inputs = zip(self._use.inputs, batch.spooled, strict=True)
        contents = [b"" if item.format == "files" else content_of(path) for item, path in inputs]
        return say.Task(
            number, out.attempt, batch.first, batch.last, batch.units, batch.bytes, batch.digests, contents, batch.files,
            out.timeout_seconds, out.urgent, out.compare, out.fragment, out.found,
        )  # fmt: skip

    # Events

    def events(self, timeout_seconds: float) -> list[Event]:
        """See `Slots`.

        Raises:
            MillraceError: A process is lost, or cannot go on.
        """
        deadline = time.monotonic() + timeout_seconds
        while True:
            self._flush()
            found: list[Event] = []
            for event in self._own.events(self._nap):
                found += self._happened(0, event)
            for rank, message in self._crew.hear():
                found += self._heard(rank, message)
            now = time.monotonic()
            self._look_for_stragglers(now)
            if self.writers:
                self.writers.turn(now)
            self._flush()
            if found:
                self._nap = NAPS[0]
                return found
            self._nap = min(self._nap * GROWTH, NAPS[1])
            if now >= deadline:
                return []

    def _flush(self) -> None:
        for rank, tasks in self._work.items():
            self._crew.tell(rank, say.Work(tasks))
        self._work.clear()

    def _heard(self, rank: int, message: object) -> list[Event]:
        found: list[Event] = []
        match message:
            case say.Report(events):
                for event in events:
                    found += self._happened(rank, event)  # type: ignore[arg-type] # one that started has less to say
            case say.Wrote(written) if self.writers:
                self.writers.heard(written)
                self._nap = NAPS[0]  # another part may wait for this
            case say.ReadyToWrite(stream) if self.writers:
                self.writers.waits(stream)
            case say.Withdrawn(tasks):
                for task in tasks:
                    found += self._came_back(rank, task)
        return found

    def _happened(self, rank: int, event: Event) -> list[Event]:
        """What is to be told of an event of a slot: of a task that is out twice, the first result counts."""
        if event.kind == "started":
            out = self._out.get(event.id)
            if out is None or out.started:
                return []
            out.started = True
            return [event]
        if event.kind != "ended":
            return [event]
        counts = event.status in ("done", "compared")
        self._send(self._spread.task_ended(rank, event.id, event.wall_seconds, time.monotonic(), counts=counts))
        if event.id not in self._out:
            return []
        if not counts and self._spread.holders(event.id):
            return []  # another slot may do better
        del self._out[event.id]
        return [event]

    def _came_back(self, rank: int, task: int) -> list[Event]:
        self._spread.task_ended(rank, task, 0.0, time.monotonic(), counts=False)
        if task not in self._out or self._spread.holders(task):
            return []
        del self._out[task]
        return [_Withdrawn(task)]  # type: ignore[list-item] # nothing more is asked of it

    def _look_for_stragglers(self, now: float) -> None:
        if self._last and self._out and now - self._looked > LOOK_FOR_STRAGGLERS:
            self._looked = now
            self._send(self._spread.straggling(now))

    def _lose(self, rank: int, why: str) -> None:
        """Go on without a process; a launcher that ends the whole job then leaves it to the next start to resume."""
        self._work.pop(rank, None)
        if self.writers:
            self.writers.lost(rank)
        back, sends = self._spread.node_lost(rank, time.monotonic())
        self._message(f"{self._members[rank].name} is lost: {why}; {count(len(back), 'task')} of its own go to others")
        self._send(sends)

    # The end

    def withdraw(self) -> list[int]:
        """See `Slots`."""
        back = self._spread.withdraw()
        for task in back:
            del self._out[task]
        back += [task for task in self._own.withdraw() if self._came_back(0, task)]
        self._flush()
        self._crew.tell_all(say.Withdraw())
        return back

    def kill_all(self) -> None:
        """See `Slots`."""
        self._own.kill_all()
        self._crew.tell_all(say.Kill())
