"""The node agent as a process of an MPI job: rank 1 and up. Does what the coordinator says, and tells what became of it."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import msgspec

from millrace import _core
from millrace.cluster import messages as say
from millrace.cluster.failures import SIGN_OF_LIFE_SECONDS, SILENCE_SECONDS, SilenceTimer
from millrace.cluster.journal_visibility import JournalVisibility, is_lazy
from millrace.cluster.mpi import World
from millrace.cluster.naps import naps
from millrace.cluster.staging import Fetch, Keeper, Look, Room
from millrace.cluster.this_node import check_shared, hello, own_places, same_here, version_of
from millrace.cluster.write.part_writer import PartWriter
from millrace.errors import CorruptError, ExitCode, MillraceError, RefusedError
from millrace.ids import SlotId, TaskId
from millrace.interrupt import Interrupt
from millrace.launch.mpi_environment import for_tools
from millrace.node import names
from millrace.node.agent import Node
from millrace.node.feed import Batch
from millrace.node.workdir import WorkDir
from millrace.output.commit import GroupCommit, commit
from millrace.output.guard import Guard
from millrace.plan import fingerprint
from millrace.plan.programs import find_program
from millrace.schedule.pace import Pace
from millrace.tasks import Ended, SlotsChanged, Started
from millrace.waiting import until

Happened = TypeVar("Happened", Started, Ended)


class Agent:
    """One process of the job, from its first word to its last.

    Args:
        leader: Rank that tells this process what to do, and hears what became of it.
    """

    def __init__(self, world: World, work: WorkDir, leader: int = 0) -> None:
        self._world, self._work, self._leader = world, work, leader
        self._node: Node | None = None
        self._keeper = Keeper(world.link, work.path)
        self._journal: _core.Journal | None = None
        self._commit: GroupCommit | None = None
        self._guard = Guard(())
        self._durable: JournalVisibility[Started | Ended] | None = None
        self._parts: PartWriter | None = None
        self._setup: say.Setup | None = None
        self._batches: dict[TaskId, Batch] = {}
        self._naps = naps()
        self._pace = Pace(1)
        self._patience = SilenceTimer()
        self._told = 0.0
        #: Whether the run is on: the coordinator's loop turns. Before and after it may be busy for any time.
        self._on = False
        self._stopped = self._left = self._troubled = self._asked = False

    def run(self, interrupt: Interrupt) -> None:
        """Serve until the coordinator says that it is over. If the coordinator is lost, ends the process."""
        self._tell(hello(for_tools(os.environ)))
        until(lambda: self._served(interrupt))

    def _served(self, interrupt: Interrupt) -> bool:
        """Do what is to be done now; whether there is nothing more to come."""
        happened = self._look()
        if interrupt.signal and not self._asked:
            self._asked = True
            self._tell(say.Signalled(interrupt.signal))
        now = time.monotonic()
        if self._patience.turn(now, heard=happened) > SILENCE_SECONDS and self._on:
            os._exit(1)  # the watchdog ends the tools
        if now - self._told > SIGN_OF_LIFE_SECONDS:
            self._tell(say.Alive())
            if 0 in self._world.failed():  # only where MPI goes on without it; its last word may have gone with it
                if not self._stopped:
                    os._exit(1)
                return True
        self._world.push()
        return self._left

    def _look(self) -> bool:
        """One turn: what the slots did, what the coordinator says; returns whether it said anything."""
        try:
            self._wait()
            heard = self._world.receive()
            if heard and self._parts:
                self._parts.heard()
            for rank, message in heard:
                self._hear(rank, message)
        except Exception as error:
            self._trouble(error)
            return True
        # Not after what the slots did, which ends a nap by itself: they have more to do, as tasks are sent ahead.
        if heard:
            self._naps.something_came()
        else:
            self._naps.nothing_came()
        return any(rank == self._leader for rank, _ in heard)

    def _hear(self, rank: int, message: object) -> None:
        if rank != self._leader:
            raise say.unexpected(f"rank {rank}", message)
        self._obey(message)

    def _wait(self) -> None:
        """Take a nap, which what happens in the slots ends; tell of it."""
        if self._keeper.busy:
            if ended := self._keeper.turn():
                self._tell(ended)
            return
        if not self._node or not self._setup or self._stopped:
            time.sleep(self._naps.seconds)
            return
        if self._commit and self._commit.error:
            raise self._commit.error
        if rest := self._rest():
            time.sleep(rest)  # through what happens meanwhile, which is then handled together
        events = self._node.events(0.0 if rest else self._naps.seconds)
        told: list[Started | Ended] = []
        for event in events:
            match event:
                case SlotsChanged(slots, why):
                    self._allow(say.Allow(self._world.rank, slots, why))
                case Started():
                    told.append(self._numbered(event))
                case Ended():
                    told.append(say.as_told(self._numbered(event), self._setup))
                    self._pace.ended(event.wall_seconds)
                    self._forget(event.task)
        if self._durable:
            if self._durable.error:
                raise self._durable.error
            if told:
                self._durable.put(told)
            told = self._durable.take()
        if told:
            self._report(told)
        if self._parts:
            self._parts.turn()

    def _numbered(self, event: Happened) -> Happened:
        """The same with the number of the slot among all."""
        assert self._setup
        return msgspec.structs.replace(event, slot=SlotId(self._setup.first_slot + event.slot))

    def _rest(self) -> float:
        return self._pace.rest()

    def _allow(self, news: say.Allow) -> None:
        self._tell(news)

    def _report(self, events: list[Started | Ended]) -> None:
        self._tell(say.Report(events))

    def _obey(self, message: object) -> None:
        """Do what the leader says.

        Raises:
            MillraceError: It may not say that now.
        """
        self._on = self._node is not None
        match message:
            case say.Ping():
                pass
            case Look():
                self._tell(Room(self._keeper.look(message)))
            case Fetch():
                self._keeper.begin(message)
            case say.Setup():
                self._world.all_are_here()
                self._tell(self._set_up(message))
            case say.Work(assignments) if self._node and not self._stopped:
                for assignment in assignments:
                    self._submit(self._node, assignment)
            case say.Write() | say.WriteNow() | say.OpenTogether() | say.CloseTogether() if self._parts:
                if not self._parts.obey(message):
                    raise say.unexpected(f"rank {self._leader}", message)
            case say.Withdraw() if self._node and not self._stopped:
                self._tell(say.Withdrawn(self._withdraw(self._node)))
            case say.Kill() if self._node and not self._stopped:
                self._node.kill_all()
            case say.Stop():
                self._on = False
                self._tell(say.Alive())  # what follows may take a while
                self._stop()
                self._tell(say.Bye(self._guard.changed))
            case say.Leave():
                self._leave()
            case say.Work() | say.Write() | say.WriteNow() | say.Withdraw() | say.Kill() if self._stopped:
                pass  # it was under way when the run ended
            case _:
                raise say.unexpected(f"rank {self._leader}", message)

    def _leave(self) -> None:
        self._tell(say.Left())
        self._world.flush(SIGN_OF_LIFE_SECONDS)
        self._left = True

    def _tell(self, message: object) -> None:
        self._told = time.monotonic()
        self._world.send(self._leader, message)

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

    def _set_up(self, setup: say.Setup) -> say.Ready:
        self._node, ready = self._make_node(setup)
        self._setup, self._pace = setup, Pace(setup.slots)
        self._parts = PartWriter(self._world, setup, self._tell, self._node.wake)
        return ready._replace(sees=self._parts.sees)

    def _make_node(self, setup: say.Setup) -> tuple[Node, say.Ready]:
        """Slots and journal for a run, and which program they run.

        Raises:
            MillraceError: What the run needs is not here, or is not what the coordinator has.
        """
        cwd, run_dir = Path(setup.cwd), Path(setup.run_dir)
        if not cwd.is_dir():
            raise RefusedError(f"{cwd}: no such folder here", "work in a folder that all nodes share")
        check_shared(run_dir, setup.run_id)
        environ = {**setup.environ, **own_places(os.environ)}
        exe = find_program(setup.program, cwd, environ)
        if setup.view:
            names.build(setup.view, cwd, setup.copies)
        self._guard = Guard(same_here(setup, exe))
        ready = say.Ready(str(exe), fingerprint.of_content(exe), version_of(setup.command, exe, environ))
        self._journal = _core.Journal.create(setup.journal, setup.run_id)
        node = Node(
            setup.use, cwd=cwd, exe=exe, environ=environ, work=self._work, slots=setup.slots, journal=self._journal,
            nice=setup.nice, hidden=frozenset({run_dir}), staged=setup.staged, names=setup.copies,
        )  # fmt: skip
        self._commit = GroupCommit(self._journal, setup.sync, node.wake, self._guard)
        if is_lazy(run_dir):
            self._durable = JournalVisibility(self._journal, node.wake)
        return node, ready

    def _submit(self, node: Node, assignment: say.Assignment) -> None:
        task, batch, contents = assignment
        paths = tuple(self._work.spool / f"{task.id}.{k}" for k in range(len(contents)))
        assert self._setup
        for item, path, content in zip(self._setup.use.inputs, paths, contents, strict=True):
            if item.format != "files":
                path.write_bytes(content)
        self._batches[task.id] = batch = msgspec.structs.replace(batch, spooled=paths)
        self._pace.submitted()
        node.submit(task, batch)

    def _withdraw(self, node: Node) -> list[TaskId]:
        """Take back what no slot has taken."""
        back = node.withdraw()
        for number in back:
            self._pace.ended(0.0)
            self._forget(number)
        return back

    def _forget(self, task: TaskId) -> None:
        if batch := self._batches.pop(task, None):
            for path in batch.spooled:
                path.unlink(missing_ok=True)

    def _stop(self) -> None:
        if self._stopped:
            return
        self._stopped = True
        self._keeper.close()
        self._world.broken |= self._keeper.broken
        if self._node:
            self._node.close()
        if self._commit:
            self._commit.close()
        if self._parts and not self._troubled:
            self._parts.close()
        if self._durable:
            self._durable.close()
        if self._journal:
            with suppress(CorruptError):  # the last word tells
                commit(self._journal, self._guard)
            self._journal.sync()
        # Nothing stays open in the run directory, which is about to be removed.
        self._node = self._commit = self._parts = self._durable = self._journal = None
