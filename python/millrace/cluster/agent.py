"""The node agent as a process of an MPI job (rank 1 and up). It executes the coordinator's commands."""

from __future__ import annotations

import os
import time

from millrace.cluster import messages as say
from millrace.cluster.failures import SIGN_OF_LIFE_SECONDS, SILENCE_SECONDS, SilenceTimer
from millrace.cluster.keeper import Keeper
from millrace.cluster.mpi import World
from millrace.cluster.naps import naps
from millrace.cluster.node_run import NodeRun
from millrace.cluster.this_node import hello
from millrace.errors import MillraceError
from millrace.ids import TaskId
from millrace.interrupt import Interrupt
from millrace.launch.mpi_environment import for_tools
from millrace.model import HdfsRead
from millrace.node.workdir import WorkDir
from millrace.tasks import Ended, Started
from millrace.waiting import until


class Agent:
    """The node agent of one process, from its first message to its last.

    Args:
        leader: Rank that sends the commands and receives the reports.
    """

    def __init__(self, world: World, work: WorkDir, leader: int = 0) -> None:
        self._world, self._work, self._leader = world, work, leader
        self._keeper = Keeper(world.link, work.path)
        #: The run on this node, between set-up and end; then what changed during it, as text.
        self._here: NodeRun | None = None
        self._changed, self._read, self._against = "", HdfsRead(), ""
        self._naps = naps()
        self._patience = SilenceTimer()
        self._told = 0.0
        #: Whether the run is active: the coordinator's loop turns. Before and after, it may be silent for any time.
        self._on = False
        self._stopped = self._left = self._troubled = self._asked = False

    def run(self, interrupt: Interrupt) -> None:
        """Serve until the coordinator sends ``say.Leave``. End the process if the coordinator is lost."""
        self._tell(hello(for_tools(os.environ)))
        until(lambda: self._served(interrupt))

    def _served(self, interrupt: Interrupt) -> bool:
        """Run one tick of the loop; return whether this agent has left the job."""
        happened = self._look()
        if interrupt.signal and not self._asked:
            self._asked = True
            self._tell(say.Signalled(interrupt.signal))
        now = time.monotonic()
        if self._patience.turn(now, heard=happened) > SILENCE_SECONDS and self._on:
            os._exit(1)  # the watchdog ends the tools
        if now - self._told > SIGN_OF_LIFE_SECONDS:
            self._tell(say.Alive())
            if 0 in self._world.failed():  # only where MPI continues without it; its last message may be lost
                if not self._stopped:
                    os._exit(1)
                return True
        self._world.push()
        return self._left

    def _look(self) -> bool:
        """Report slot events and handle messages; return whether the leader has sent any, or this failed."""
        try:
            self._wait()
            heard = self._world.receive()
            if heard and self._here:
                self._here.parts.heard()
            for rank, message in heard:
                self._hear(rank, message)
        except Exception as error:
            self._trouble(error)
            return True
        # Slot events do not shorten the nap: they end it by themselves, and slots have tasks queued ahead.
        if heard:
            self._naps.something_came()
        else:
            self._naps.nothing_came()
        return any(rank == self._leader for rank, _ in heard)

    def _hear(self, rank: int, message: say.Message) -> None:
        if rank != self._leader:
            raise say.unexpected(f"rank {rank}", message)
        self._obey(message)

    def _wait(self) -> None:
        """Sleep until a slot event or the end of the nap, and report the events."""
        if self._troubled:  # the error would recur at each tick, before any message is received
            time.sleep(self._naps.seconds)
            return
        if self._keeper.busy:
            if ended := self._keeper.turn():
                self._tell(ended)
            return
        if not self._here:
            time.sleep(self._naps.seconds)
            return
        told, slots = self._here.events(self._naps.seconds, rests=self._rests)
        for change in slots:
            self._allow(say.Allow(self._world.rank, change.slots, change.why))
        if told:
            self._report(told)
        self._here.parts.turn()

    #: Whether tasks that end close together are reported together, a little later.
    _rests = True

    def _allow(self, news: say.Allow) -> None:
        self._tell(news)

    def _report(self, events: list[Started | Ended]) -> None:
        self._tell(say.Report(events))

    def _obey(self, message: say.Message) -> None:
        """Execute a command of the leader.

        Raises:
            MillraceError: The command is not allowed in this state.
        """
        self._on = self._here is not None
        match message:
            case say.Ping():
                pass
            case say.Look():
                self._tell(say.Room(self._keeper.look(message)))
            case say.Fetch():
                self._keeper.begin(message)
            case say.Setup():
                self._world.all_are_here()
                self._tell(self._set_up(message))
            case say.Work(assignments) if self._here:
                for assignment in assignments:
                    self._here.submit(assignment)
            case say.Write() | say.WriteNow() | say.OpenTogether() | say.CloseTogether() if self._here:
                if not self._here.parts.obey(message):
                    raise say.unexpected(f"rank {self._leader}", message)
            case say.Withdraw() if self._here:
                self._tell(say.Withdrawn(self._withdraw(self._here)))
            case say.Kill() if self._here:
                self._here.kill_all()
            case say.Stop(whole):
                self._on = False
                self._tell(say.Alive())  # the next steps may take seconds
                if whole and self._here:
                    self._against = self._here.part()
                self._stop()
                self._tell(say.Bye(self._changed, self._read, self._against))
            case say.Leave():
                self._leave()
            case say.Work() | say.Write() | say.WriteNow() | say.Withdraw() | say.Kill() if self._stopped:
                pass  # it was in flight when the run ended
            case _:
                raise say.unexpected(f"rank {self._leader}", message)

    def _leave(self) -> None:
        self._tell(say.Left())
        self._world.flush(SIGN_OF_LIFE_SECONDS)
        self._left = True

    def _tell(self, message: say.Message) -> None:
        self._told = time.monotonic()
        self._world.send(self._leader, message)

    def _trouble(self, error: Exception) -> None:
        """Report an error to the leader, once; the coordinator then ends the run."""
        if self._troubled:
            return
        self._troubled = True
        if isinstance(error, MillraceError):
            told = error
        elif isinstance(error, OSError):
            told = MillraceError(str(error), "nothing is lost: the same command resumes")
        else:
            told = MillraceError(f"{type(error).__name__}: {error}", "this must not happen: please report it")
        self._tell(say.Trouble.of(told))

    # The run

    def _set_up(self, setup: say.Setup) -> say.Ready:
        self._here = NodeRun(setup, self._world, self._work, self._tell)
        return self._here.ready

    def _withdraw(self, here: NodeRun) -> list[TaskId]:
        """Withdraw the tasks that no slot has started."""
        return here.withdraw()

    def _stop(self) -> None:
        if self._stopped:
            return
        self._stopped = True
        self._keeper.close()
        self._world.broken |= self._keeper.broken
        # The coordinator is about to remove the run directory: no file in it may stay open.
        here, self._here = self._here, None
        if here:
            self._read = here.read
            self._changed = here.close(parts=not self._troubled)
