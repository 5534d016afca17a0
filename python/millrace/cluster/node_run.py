"""One node's share of a run: its slots, its journal, and the parts of outputs that it writes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from millrace import _core
from millrace.cluster import messages as say
from millrace.cluster.journal_visibility import JournalVisibility, is_lazy_filesystem
from millrace.cluster.node_info import (
    check_same_files,
    is_run_dir_shared,
    read_program_version,
    select_machine_variables,
)
from millrace.cluster.transport.mpi_transport import MpiTransport
from millrace.cluster.write.rank_strategies import AgentPartWriter
from millrace.core.errors import CorruptError, RefusedError
from millrace.core.journal_blocks import attach_contents
from millrace.core.tasks import SlotId, SlotsChanged, TaskEnded, TaskEnding, TaskId, TaskStarted
from millrace.core.tool_use import StorageRead
from millrace.node import url_view
from millrace.node.batch_files import SpooledBatch
from millrace.node.local_slots import LocalSlots
from millrace.node.task_slots import SHORT_FAREWELL_SECONDS
from millrace.node.work_dir import WorkDir
from millrace.output.commits import ChangeGuard, GroupCommit, commit_journal
from millrace.planning import result_fingerprint
from millrace.planning.program_lookup import find_program
from millrace.rundir.paths import RunDir
from millrace.scheduler.message_timing import PollInterval

if TYPE_CHECKING:
    from millrace.node.input_pieces import InputPieces

Happened = TypeVar("Happened", TaskStarted, TaskEnded)

#: Endings that are never a record's fault.
_NOT_THE_RECORDS = (TaskEnding.DONE, TaskEnding.KILLED, TaskEnding.MISPLACED, TaskEnding.IO, TaskEnding.FILESYSTEM_GONE)


def _find_absent_volumes(setup: say.SetUpNode) -> dict[str, int]:
    if not setup.use.fragmented or not setup.use.fragmented.volumes:
        return {}
    from millrace.node.node_volumes import find_absent_files  # few runs need it

    return find_absent_files(setup.use.fragmented, setup.copies)


class NodeRun:
    """A run on one node, from ``say.SetUpNode`` to ``say.StopNode``.

    Args:
        tell: Sends a message to the leader.

    Raises:
        MillraceError: A file that the run needs is missing here, or differs from that of the coordinator.
    """

    def __init__(
        self, setup: say.SetUpNode, world: MpiTransport, work: WorkDir, tell: Callable[[say.Plain], None]
    ) -> None:
        self._setup, self._work = setup, work
        cwd, run_dir = Path(setup.cwd), Path(setup.run_dir)
        if not cwd.is_dir():
            raise RefusedError(
                f"{cwd}: no such folder here",
                "work in a folder that all nodes share; where the input is in HDFS, in one of each node's own",
            )
        self._is_shared = is_run_dir_shared(setup)
        environ = {**setup.environ, **select_machine_variables(os.environ)}
        exe = find_program(setup.program, cwd, environ)
        if setup.view:
            url_view.build_view(setup.view, cwd, setup.copies, _find_absent_volumes(setup))
        files = check_same_files(setup, exe)
        self._guard = ChangeGuard(files)
        ready = say.NodeReady(
            str(exe), result_fingerprint.fingerprint_content(exe), read_program_version(setup.command, exe, environ)
        )
        path = setup.journal if self._is_shared else work.path / "journal.mrj"
        self._journal = _core.Journal.create(path, setup.run_id)
        self._node = node = LocalSlots(
            setup.use, cwd=cwd, exe=exe, environ=environ, work=work, slots=setup.slots, journal=self._journal,
            nice=setup.nice, hidden=frozenset({run_dir}), staged=setup.staged, names=setup.copies, view=setup.view,
            files=files, shared=RunDir(run_dir).names, profile_io=setup.profile_io,
        )  # fmt: skip
        self._commit = GroupCommit(self._journal, setup.sync, node.wake_waiter, self._guard)
        self._visibility = (
            JournalVisibility[TaskStarted | TaskEnded](self._journal, node.wake_waiter)
            if self._is_shared and is_lazy_filesystem(run_dir)
            else None
        )
        self.parts = AgentPartWriter(world, setup, tell, node.wake_waiter)
        self._batches: dict[TaskId, SpooledBatch] = {}
        #: The pieces of an input that nodes cut; None: there is none.
        self.pieces: InputPieces | None = None
        if setup.view and setup.view.cut_by_nodes:
            from millrace.node.input_pieces import InputPieces  # few runs need it

            item, folder = setup.use.inputs[0], work.path / "pieces"
            self.pieces = InputPieces(setup.view.cut_by_nodes, item, folder, node.wake_waiter)
        self._pace = PollInterval(setup.slots)
        #: The answer to the setup.
        self.ready = msgspec.structs.replace(
            ready, sees=self.parts.sees, keeps=tuple(node.kept_fragments), shares_folder=self._is_shared
        )

    def submit_assignment(self, assignment: say.TaskAssignment) -> None:
        """Spool the inputs of a task, and submit it to the slots."""
        task, batch, contents = assignment.task, assignment.batch, assignment.contents
        paths = tuple(self._work.spool / f"{task.id}.{k}" for k in range(len(contents)))
        self._batches[task.id] = batch = msgspec.structs.replace(batch, spooled=paths)
        self._pace.add_tasks()
        if batch.source:
            assert self.pieces  # whoever cuts the input has them
            self.pieces.request_batch(task, batch)
            return
        for item, path, content in zip(self._setup.use.inputs, paths, contents, strict=True):
            if item.format != "files":
                path.write_bytes(content)
        self._node.submit_task(task, batch)

    def withdraw_tasks(self) -> list[TaskId]:
        """Withdraw the tasks that no slot has started."""
        back = self._node.withdraw_tasks()
        back += self.pieces.withdraw_tasks() if self.pieces else []
        for number in back:
            self._pace.remove_task(0.0)
            self._remove_spooled_files(number)
        return back

    @property
    def storage_read(self) -> StorageRead:
        """The bytes read from HDFS; see ``LocalSlots.storage_read``."""
        return self._node.storage_read + self.pieces.read if self.pieces else self._node.storage_read

    def end_resident_programs(self) -> str:
        """End the programs that stay alive; return evidence against them, as text. See ``Executor.end_served_programs``."""
        return self._node.end_served_programs(SHORT_FAREWELL_SECONDS)

    def kill_all_tools(self) -> None:
        """Kill all running tools."""
        self._node.kill_all()

    def collect_events(
        self, nap_seconds: float, *, rests: bool
    ) -> tuple[list[TaskStarted | TaskEnded], list[SlotsChanged]]:
        """Wait for events of the slots, at most ``nap_seconds``; return those of tasks to report, and those of slots.

        Args:
            rests: Whether tasks that end close together may be handled together, a little later.

        Raises:
            MillraceError: A commit or a sync of the journal has failed.
        """
        if self._commit.error:
            raise self._commit.error
        for task, batch in self.pieces.pop_ready() if self.pieces else ():
            self._node.submit_task(task, batch)
        if rest := self._pace.compute_interval() if rests else 0.0:
            time.sleep(rest)  # events do not end it
        told, slots = list[TaskStarted | TaskEnded](), list[SlotsChanged]()
        for event in self._node.wait_for_events(0.0 if rest else nap_seconds):
            match event:
                case SlotsChanged():
                    slots.append(event)
                case TaskStarted():
                    told.append(self._renumber_slot(event))
                case TaskEnded():
                    if event.ending not in _NOT_THE_RECORDS:
                        self._guard.check_unchanged()  # a failure is not the record's fault if a file is missing on this node
                    event = self._renumber_slot(event)
                    if not self._is_shared:
                        self._guard.check_unchanged()  # what follows a change is no result
                        event = attach_contents(event, self._journal)
                    told.append(say.add_node_name_to_failure(event, self._setup))
                    self._pace.remove_task(event.wall_seconds)
                    self._remove_spooled_files(event.task)
        return self._delay_until_visible(told), slots

    def _delay_until_visible(self, told: list[TaskStarted | TaskEnded]) -> list[TaskStarted | TaskEnded]:
        """Return the events that may be reported now: on a lazy filesystem, only after the journal is synced."""
        if not self._visibility:
            return told
        if self._visibility.error:
            raise self._visibility.error
        if told:
            self._visibility.queue_items(told)
        return self._visibility.pop_visible_items()

    def _renumber_slot(self, event: Happened) -> Happened:
        """Replace the number of the slot on this node by its number among all slots of the job."""
        return msgspec.structs.replace(event, slot=SlotId(self._setup.first_slot + event.slot))

    def _remove_spooled_files(self, task: TaskId) -> None:
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
        if self.pieces:
            self.pieces.close()
        self._commit.close()
        if parts:
            self.parts.close()
        if self._visibility:
            self._visibility.close()
        with suppress(CorruptError):  # the returned text reports it
            commit_journal(self._journal, self._guard)
        self._journal.sync()
        return self._guard.changed
