"""One node's share of a run: its slots, its journal, and the parts of outputs that it writes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import msgspec

from millrace import _core
from millrace.cluster import messages as say
from millrace.cluster.journal_visibility import JournalVisibility, is_lazy
from millrace.cluster.mpi import World
from millrace.cluster.this_node import check_shared, own_places, same_here, version_of
from millrace.cluster.write.part_writer import PartWriter
from millrace.errors import CorruptError, RefusedError
from millrace.ids import SlotId, TaskId
from millrace.model import HdfsRead
from millrace.node import names
from millrace.node.agent import Node
from millrace.node.batch import Batch
from millrace.node.slots import SHORT_FAREWELL_SECONDS
from millrace.node.workdir import WorkDir
from millrace.output.commit import GroupCommit, commit
from millrace.output.guard import Guard
from millrace.plan import fingerprint
from millrace.plan.programs import find_program
from millrace.rundir import RunDir
from millrace.schedule.pace import Pace
from millrace.tasks import Ended, Ending, SlotsChanged, Started

Happened = TypeVar("Happened", Started, Ended)

#: Endings that are never a record's fault.
_NOT_THE_RECORDS = (Ending.DONE, Ending.KILLED, Ending.MISPLACED, Ending.IO, Ending.AWAY)


def _absent(setup: say.Setup) -> dict[str, int]:
    if not setup.use.fragmented or not setup.use.fragmented.volumes:
        return {}
    from millrace.node.volumes import absent  # few runs need it

    return absent(setup.use.fragmented, setup.copies)


class NodeRun:
    """A run on one node, from ``say.Setup`` to ``say.Stop``.

    Args:
        tell: Sends a message to the leader.

    Raises:
        MillraceError: A file that the run needs is missing here, or differs from that of the coordinator.
    """

    def __init__(self, setup: say.Setup, world: World, work: WorkDir, tell: Callable[[say.Plain], None]) -> None:
        self._setup, self._work = setup, work
        cwd, run_dir = Path(setup.cwd), Path(setup.run_dir)
        if not cwd.is_dir():
            raise RefusedError(f"{cwd}: no such folder here", "work in a folder that all nodes share")
        check_shared(run_dir, setup.run_id)
        environ = {**setup.environ, **own_places(os.environ)}
        exe = find_program(setup.program, cwd, environ)
        if setup.view:
            names.build(setup.view, cwd, setup.copies, _absent(setup))
        files = same_here(setup, exe)
        self._guard = Guard(files)
        ready = say.Ready(str(exe), fingerprint.of_content(exe), version_of(setup.command, exe, environ))
        self._journal = _core.Journal.create(setup.journal, setup.run_id)
        self._node = node = Node(
            setup.use, cwd=cwd, exe=exe, environ=environ, work=work, slots=setup.slots, journal=self._journal,
            nice=setup.nice, hidden=frozenset({run_dir}), staged=setup.staged, names=setup.copies, view=setup.view,
            files=files, shared=RunDir(run_dir).names,
        )  # fmt: skip
        self._commit = GroupCommit(self._journal, setup.sync, node.wake, self._guard)
        self._visibility = JournalVisibility[Started | Ended](self._journal, node.wake) if is_lazy(run_dir) else None
        self.parts = PartWriter(world, setup, tell, node.wake)
        self._batches: dict[TaskId, Batch] = {}
        self._pace = Pace(setup.slots)
        #: The answer to the setup.
        self.ready = msgspec.structs.replace(ready, sees=self.parts.sees)

    def submit(self, assignment: say.Assignment) -> None:
        """Spool the inputs of a task, and submit it to the slots."""
        task, batch, contents = assignment.task, assignment.batch, assignment.contents
        paths = tuple(self._work.spool / f"{task.id}.{k}" for k in range(len(contents)))
        for item, path, content in zip(self._setup.use.inputs, paths, contents, strict=True):
            if item.format != "files":
                path.write_bytes(content)
        self._batches[task.id] = batch = msgspec.structs.replace(batch, spooled=paths)
        self._pace.submitted()
        self._node.submit(task, batch)

    def withdraw(self) -> list[TaskId]:
        """Withdraw the tasks that no slot has started."""
        back = self._node.withdraw()
        for number in back:
            self._pace.ended(0.0)
            self._forget(number)
        return back

    @property
    def read(self) -> HdfsRead:
        """The bytes read from HDFS; see ``Node.read``."""
        return self._node.read

    def part(self) -> str:
        """End the programs that stay alive; return evidence against them, as text. See ``Slots.part``."""
        return self._node.part(SHORT_FAREWELL_SECONDS)

    def kill_all(self) -> None:
        """Kill all running tools."""
        self._node.kill_all()

    def events(self, nap_seconds: float, *, rests: bool) -> tuple[list[Started | Ended], list[SlotsChanged]]:
        """Wait for events of the slots, at most ``nap_seconds``; return those of tasks to report, and those of slots.

        Args:
            rests: Whether tasks that end close together may be handled together, a little later.

        Raises:
            MillraceError: A commit or a sync of the journal has failed.
        """
        if self._commit.error:
            raise self._commit.error
        if rest := self._pace.rest() if rests else 0.0:
            time.sleep(rest)  # events do not end it
        told, slots = list[Started | Ended](), list[SlotsChanged]()
        for event in self._node.events(0.0 if rest else nap_seconds):
            match event:
                case SlotsChanged():
                    slots.append(event)
                case Started():
                    told.append(self._numbered(event))
                case Ended():
                    if event.ending not in _NOT_THE_RECORDS:
                        self._guard.look()  # a failure is not the record's fault if a file is missing on this node
                    told.append(say.as_told(self._numbered(event), self._setup))
                    self._pace.ended(event.wall_seconds)
                    self._forget(event.task)
        return self._visible(told), slots

    def _visible(self, told: list[Started | Ended]) -> list[Started | Ended]:
        """Return the events that may be reported now: on a lazy filesystem, only after the journal is synced."""
        if not self._visibility:
            return told
        if self._visibility.error:
            raise self._visibility.error
        if told:
            self._visibility.put(told)
        return self._visibility.take()

    def _numbered(self, event: Happened) -> Happened:
        """Replace the number of the slot on this node by its number among all slots of the job."""
        return msgspec.structs.replace(event, slot=SlotId(self._setup.first_slot + event.slot))

    def _forget(self, task: TaskId) -> None:
        if batch := self._batches.pop(task, None):
            for path in batch.spooled:
                path.unlink(missing_ok=True)

    def close(self, *, parts: bool) -> str:
        """End the slots and sync the journal; return what changed during the run, as text.

        Args:
            parts: Whether to sync the parts of outputs, too.

        Raises:
            OSError: A sync failed.
        """
        self._node.close()
        self._commit.close()
        if parts:
            self.parts.close()
        if self._visibility:
            self._visibility.close()
        with suppress(CorruptError):  # the returned text reports it
            commit(self._journal, self._guard)
        self._journal.sync()
        return self._guard.changed
