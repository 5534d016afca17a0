"""The node agent as a process of an MPI job: rank 1 and up. Does what the coordinator says, and tells what became of it."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from platform import machine
from typing import TYPE_CHECKING

from millrace import __version__, _core
from millrace.engine import messages as say
from millrace.engine.durable import Durable, is_lazy
from millrace.engine.launched import for_tools
from millrace.engine.mpi import World
from millrace.engine.stop import Interrupt
from millrace.errors import ExitCode, MillraceError, RefusedError, ToolError
from millrace.node.agent import Node
from millrace.node.feed import Batch
from millrace.node.workdir import WorkDir
from millrace.output.commit import GroupCommit
from millrace.output.parts import LEASE, PartsWriter, number_of, paths_of
from millrace.plan import cores, fingerprint
from millrace.plan.plan import find_program
from millrace.rundir import RunDir

if TYPE_CHECKING:
    from millrace.engine.collective import Together

#: Shortest and longest nap between looks for messages, in seconds; it grows while nothing comes.
NAPS = (0.0002, 0.005)

#: How much a nap is longer than the one before.
GROWTH = 2.0

#: Seconds between signs of life.
PERIOD = 1.0

#: Seconds without a sign of life after which the other is lost.
SILENCE = 10.0

#: The same while a rank gets ready: folders are made, programs are looked at.
SILENCE_AT_START = 120.0


def hello(environ: Mapping[str, str]) -> say.Hello:
    """What there is to say of this process's machine."""
    n_cores, source = cores.usable(environ)
    return say.Hello(socket.gethostname(), os.getpid(), n_cores, source, machine(), __version__)


class Patience:
    """When the other was last heard; time in which this process itself stood still does not count."""

    def __init__(self) -> None:
        self._turned = self.heard = time.monotonic()

    def turn(self, now: float, *, heard: bool) -> float:
        """A turn of the loop at ``now``; returns the seconds of silence."""
        still = now - self._turned - 1.0
        self._turned = now
        if heard:
            self.heard = now
        elif still > 0:
            self.heard += still
        return now - self.heard


class Agent:
    """One process of the job, from its first word to its last."""

    def __init__(self, world: World, work: WorkDir) -> None:
        self._world, self._work = world, work
        self._node: Node | None = None
        self._journal: _core.Journal | None = None
        self._commit: GroupCommit | None = None
        self._durable: Durable[say.Started | say.Ended] | None = None
        self._parts: PartsWriter | None = None
        self._together: Together | None = None
        self._setup: say.Setup | None = None
        self._batches: dict[int, Batch] = {}
        self._nap = NAPS[0]
        self._patience = Patience()
        self._told = 0.0
        #: Whether the run is on: the coordinator's loop turns. Before and after it may be busy for any time.
        self._on = False
        self._stopped = self._left = self._troubled = False

    def run(self, interrupt: Interrupt) -> None:
        """Serve until the coordinator says that it is over. If the coordinator is lost, ends the process."""
        self._tell(hello(for_tools(os.environ)))
        asked = False
        while not self._left:
            happened = self._look()
            if interrupt.signal and not asked:
                asked = True
                self._tell(say.Signalled(interrupt.signal))
            now = time.monotonic()
            if self._patience.turn(now, heard=happened) > SILENCE and self._on:
                os._exit(1)  # the watchdog ends the tools
            if now - self._told > PERIOD:
                self._tell(say.Alive())
            self._world.push()

    def _look(self) -> bool:
        """One turn: what the slots did, what the coordinator says; returns whether it said anything."""
        try:
            self._wait()
            heard = self._world.receive()
            if heard and self._parts:
                self._parts.allow(LEASE)
            for _, message in heard:
                self._obey(message)
        except Exception as error:
            self._trouble(error)
            return True
        # Not after what the slots did, which ends a nap by itself: they have more to do, as tasks are sent ahead.
        self._nap = NAPS[0] if heard else min(self._nap * GROWTH, NAPS[1])
        return bool(heard)

    def _wait(self) -> None:
        """Take a nap, which what happens in the slots ends; tell of it."""
        if not self._node or not self._setup or self._stopped:
            time.sleep(self._nap)
            return
        if self._commit and self._commit.error:
            raise self._commit.error
        events = self._node.events(self._nap)
        told: list[say.Started | say.Ended] = []
        for event in events:
            if event.kind == "started":
                slot = self._setup.first_slot + event.slot
                told.append(say.Started(event.id, slot, event.ago_seconds))
            elif event.kind == "ended":
                told.append(say.from_event(event, self._setup))
                self._forget(event.id)
        if self._durable:
            if self._durable.error:
                raise self._durable.error
            if told:
                self._durable.put(told)
            told = self._durable.take()
        if told:
            self._tell(say.Report(told))
        if self._parts:
            if self._parts.error:
                raise self._parts.error
            if written := self._parts.take():
                self._tell(say.Wrote(written))
        if self._together:
            for prepared in self._together.prepared():
                self._tell(say.ReadyToWrite(prepared.stream))
                self._world.flush(SILENCE)  # nothing leaves this process during the call
                self._together.write(prepared)

    def _obey(self, message: object) -> None:
        self._on = self._node is not None
        match message:
            case say.Setup():
                self._world.all_are_here()
                self._set_up(message)
                self._tell(say.Ready(self._share(message)))
            case say.Work(tasks) if self._node and not self._stopped:
                for task in tasks:
                    self._submit(self._node, task)
            case say.Write(part) if self._parts and not self._stopped:
                self._parts.put(part)
            case say.OpenTogether(streams) if self._parts and self._setup:
                from millrace.engine.collective import Together  # few jobs write so

                paths = paths_of(self._setup.use.outputs, streams, Path(self._setup.cwd))
                self._together = Together(self._world, paths, self._parts)
            case say.CloseTogether() if self._together:
                self._together.close()
                self._together = None
            case say.Withdraw() if self._node and not self._stopped:
                back = self._node.withdraw()
                for number in back:
                    self._forget(number)
                self._tell(say.Withdrawn(back))
            case say.Kill() if self._node and not self._stopped:
                self._node.kill_all()
            case say.Stop():
                self._on = False
                self._tell(say.Alive())  # what follows may take a while
                self._stop()
                self._tell(say.Bye())
            case say.Leave():
                self._left = True

    def _tell(self, message: object) -> None:
        self._told = time.monotonic()
        self._world.send(0, message)

    def _trouble(self, error: Exception) -> None:
        """Say what went wrong, once; then the coordinator ends the run."""
        if self._troubled:
            return
        self._troubled = True
        if isinstance(error, MillraceError):
            self._tell(say.Trouble(error.message, error.hint, error.exit_code))
        elif isinstance(error, OSError):
            self._tell(say.Trouble(str(error), "nothing is lost: the same command resumes", ExitCode.STOPPED))
        else:
            text = f"{type(error).__name__}: {error}"
            self._tell(say.Trouble(text, "this must not happen: please report it", ExitCode.STOPPED))

    # The run

    def _set_up(self, setup: say.Setup) -> None:
        cwd, run_dir = Path(setup.cwd), Path(setup.run_dir)
        if not cwd.is_dir():
            raise RefusedError(f"{cwd}: no such folder here", "work in a folder that all nodes share")
        check_shared(run_dir, setup.run_id)
        environ = {**setup.environ, **own_places(os.environ)}
        exe = find_program(setup.program, cwd, environ)
        if fingerprint.of_content(exe) != setup.fingerprint:
            raise ToolError(
                f"{exe}: is not the program that the coordinator has under this name",
                "results would not be those of one program: install the same release on all nodes",
            )
        self._journal = _core.Journal.create(setup.journal, setup.run_id)
        self._setup = setup
        self._node = Node(
            setup.use, cwd=cwd, exe=exe, environ=environ, work=self._work, slots=setup.slots, journal=self._journal,
            nice=setup.nice, hidden=frozenset({run_dir}),
        )  # fmt: skip
        self._commit = GroupCommit(self._journal, setup.sync, self._node.wake)
        if is_lazy(run_dir):
            self._durable = Durable(self._journal, self._node.wake)

    def _share(self, setup: say.Setup) -> frozenset[int]:
        """Get ready to write parts of outputs; returns those that are here the same files as at the coordinator."""
        assert self._node
        cwd, run_dir = Path(setup.cwd), Path(setup.run_dir)
        paths = paths_of(setup.use.outputs, setup.shared, cwd)
        sees = {stream for stream, path in paths.items() if number_of(path, run_dir) == setup.shared[stream]}
        if sees:
            self._parts = PartsWriter(
                setup.use.outputs, cwd, lasting=is_lazy(run_dir), seconds=setup.sync, wake=self._node.wake,
            )  # fmt: skip
            self._parts.allow(LEASE)
        return frozenset(sees)

    def _submit(self, node: Node, task: say.Task) -> None:
        paths = tuple(self._work.spool / f"{task.number}.{k}" for k in range(len(task.contents)))
        assert self._setup
        for item, path, content in zip(self._setup.use.inputs, paths, task.contents, strict=True):
            if item.format != "files":
                path.write_bytes(content)
        batch = Batch(task.first, task.last, task.units, task.n_bytes, task.digests, paths, task.files)
        self._batches[task.number] = batch
        node.submit(
            task.number, batch, task.attempt, urgent=task.urgent, timeout_seconds=task.timeout_seconds,
            compare=task.compare, fragment=task.fragment, found=task.found,
        )  # fmt: skip

    def _forget(self, task: int) -> None:
        if batch := self._batches.pop(task, None):
            for path in batch.spooled:
                path.unlink(missing_ok=True)

    def _stop(self) -> None:
        if self._stopped:
            return
        self._stopped = True
        if self._node:
            self._node.close()
        if self._commit:
            self._commit.close()
        if self._parts and not self._troubled:
            self._parts.close()
        if self._durable:
            self._durable.close()
        if self._journal:
            self._journal.sync()
        # Nothing stays open in the run directory, which is about to be removed.
        self._node = self._commit = self._parts = self._durable = self._journal = None


def check_shared(run_dir: Path, run_id: bytes) -> None:
    """See that the run directory here is the coordinator's.

    Raises:
        RefusedError: It is not.
    """
    with suppress(MillraceError):
        if RunDir(run_dir).read_manifest().run_id == run_id.hex():
            return
    raise RefusedError(
        f"{run_dir}: is not here what it is at the coordinator",
        "the run directory must be on storage that all nodes share: name one with --run-dir",
    )


#: Variables of which each machine has its own.
OWN = ("HOSTNAME", "TMPDIR")


def own_places(environ: Mapping[str, str]) -> dict[str, str]:
    """What of the environment is this machine's; the rest is the coordinator's, as a tool's output may depend on it."""
    return {name: environ[name] for name in OWN if name in environ}
