"""The slots of this machine."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from millrace import _core
from millrace.core.tasks import (
    CompareTask,
    PoolWoken,
    SearchTask,
    SlotEvent,
    SlotTask,
    TaskEnded,
    TaskEnding,
    TaskId,
    TaskStarted,
    WholeTask,
    convert_pool_event,
    encode_task_kind,
)
from millrace.core.tool_use import ArgumentToken, FragmentPlan, OutputUse, RemoteFileView, StorageRead, ToolUse
from millrace.core.wait_loop import wait_until
from millrace.host import memory_limits
from millrace.node import mirror_layout
from millrace.node.batch_files import SpooledBatch
from millrace.node.execution_builder import ExecutionBuilder, ToolExecution
from millrace.node.slot_view import choose_view
from millrace.node.task_slots import FAREWELL_SECONDS, SlotLender, SlotLimits
from millrace.node.work_dir import WorkDir
from millrace.planning import dependency_files, kept_files

#: Interval between checks while programs end, in seconds.
POLL_INTERVAL_SECONDS = 0.1

if TYPE_CHECKING:
    from millrace.node.database_preparer import DatabasePreparer
    from millrace.node.fragment_searcher import FragmentSearcher


class LocalSlots:
    """Slots that run batches and commit their output to the journal.

    Args:
        use: The tool, its arguments, inputs and outputs.
        work: The work directory.
        journal: The journal for results.
        hidden: Real paths that the tool must not see.
        staged: (copy, file): the tool reads the copy in place of the file; see ``millrace.storage.bind_mounts``.
        names: Copies that the tool sees in the working directory, by name.
        lender: Lender of the slots; None: they are this run's own.
        view: Says which parts of a database are fetched later.
        shared: Folder that all nodes see, for files that the coordinator's node makes for all.
        profile_io: ``millrace.core.job.JobSpec.profile_io``.
        files: Files that the tools read; failures while the filesystem of one is not served are delayed.

    Raises:
        OSError: The copies cannot take the place of the files.
    """

    n_nodes = 1

    def __init__(
        self, use: ToolUse, *, cwd: Path, exe: Path, environ: Mapping[str, str], work: WorkDir, slots: int,
        journal: _core.Journal, nice: int, hidden: frozenset[Path],
        staged: Sequence[tuple[str, str]] | None = None, names: Mapping[str, str] | None = None,
        lender: SlotLender | None = None, view: RemoteFileView | None = None, files: Sequence[dependency_files.DependencyFile] = (),
        shared: Path = Path(), profile_io: str = "",
    ) -> None:  # fmt: skip
        hidden |= {cwd / output.part for output in use.outputs if output.part}
        self._use, self._profile_io = use, profile_io
        seen = names
        if names and use.fragmented and use.fragmented.volumes:
            from millrace.node.node_volumes import drop_volume_files  # few runs need it

            seen = drop_volume_files(names, use.fragmented)
        mounted = None
        if staged:
            from millrace.storage import bind_mounts  # as below

            mounted = bind_mounts.CopyMounts(staged)
        namespaces = mounted.namespaces if mounted else ()
        shown = choose_view(
            use, cwd, work.path, hidden, seen, environ.get("PWD", ""), namespaces, [file for _, file in staged or ()]
        )
        self._mirror = shown.layout
        #: ``PWD`` of a task that runs in the user's own folder.
        self._own_pwd = os.fsencode(environ["PWD"]) if "PWD" in environ else None
        self._preparer = _make_preparer(use, work, cwd, names or {})
        database = self._preparer.database if self._preparer else b""
        self._executions = ExecutionBuilder(use, self._mirror, database)
        #: The same for verification tasks, which run in the user's own folder.
        self._apart = ExecutionBuilder(use, shown.apart, database) if shown.apart else None
        self._cwd = cwd
        roots = [work.locate_slot(number) for number in range(slots)]
        for root in roots:
            self._mirror.build_skeleton(root, shown.apart)
        tool_environ = {**environ, **use.env, work.token.partition("=")[0]: work.secret}
        own = {} if self._mirror.pwd is None else {"PWD": os.fsdecode(self._mirror.pwd)}
        in_slot = {**tool_environ, **own}
        tool_environ.pop("PWD", None)  # it names the user's folder, not that of programs that make fragments
        self._searcher: FragmentSearcher | None = None
        if use.fragmented:
            self._searcher = self._make_searcher(
                use, use.fragmented, cwd, tool_environ, work, slots, names or {}, view, shared
            )
        self._pool = _core.Pool(
            journal, roots=[str(root) for root in roots], directory=self._mirror.directory,
            skeleton=[*self._mirror.skeleton, *(shown.apart.skeleton if shown.apart else ())], exe=_find_program_path(exe, use.argv[0], roots[0] / self._mirror.directory),
            environ=[os.fsencode(f"{name}={value}") for name, value in in_slot.items()],
            nice=nice, slot_mark=mirror_layout.SLOT_MARK, secret=work.secret.encode(),
            substitutions=_collect_substitutions(self._mirror, shown.apart), streams=[_describe_stream(output) for output in use.outputs],
            records_said=use.records_said, failures_said=list(use.failures_said), ok_statuses=use.ok_statuses, namespaces=shown.opened.namespaces if shown.opened else namespaces,
            kills=memory_limits.find_oom_kill_counter(),
            still_seconds=use.still_seconds, links=list(self._mirror.links), ignored=mirror_layout.list_own_paths(use, cwd, self._mirror, hidden),
            view=shown.opened.core if shown.opened else None,
            records=(use.inputs[0].format, use.served.record_start, use.served.record_end) if use.served else None,
            counts_calls=profile_io == "files",
            reread_suffix=use.reread_suffix.encode() if kept_files.list_kept_files(use, cwd, slots) else b"",
        )  # fmt: skip
        shown.close()  # the pool has copies
        if mounted:
            mounted.close()
        self.kill_all = self._pool.kill_all
        if self._preparer:
            self._preparer.start_thread(exe, tool_environ, slots, nice, self.wake_waiter)
        self._limits = SlotLimits(self._pool.allow, slots, lender, files)

    def _make_searcher(
        self, use: ToolUse, fragmented: FragmentPlan, cwd: Path, environ: Mapping[str, str], work: WorkDir, slots: int,
        names: Mapping[str, str], view: RemoteFileView | None, shared: Path,
    ) -> FragmentSearcher:  # fmt: skip
        from millrace.node.fragment_searcher import FragmentSearcher

        volumes = None
        if fragmented.volumes and (view or fragmented.kept.in_place):
            from millrace.node.node_volumes import NodeVolumes  # as above

            volumes = NodeVolumes(fragmented, view, names, work.path / "volumes", shared)
        return FragmentSearcher(
            use, fragmented, self._mirror, cwd=cwd, environ=environ, work=work, threads=slots, volumes=volumes
        )

    @property
    def has_overlays(self) -> bool:
        """Whether tasks see the folders of the command themselves, and what is put there later."""
        return self._mirror.parts is not None

    def wake_waiter(self) -> None:
        """Let ``LocalSlots.wait_for_events`` return now; the threads of feeder and output call this, and may outlive the pool."""
        with suppress(ValueError):  # closed: no thread waits any more
            self._pool.wake()

    def end_input(self) -> None:
        """Do nothing: local slots need not know; see ``Executor.end_input``."""

    def end_served_programs(self, patience_seconds: float = FAREWELL_SECONDS, look: Callable[[], object] = bool) -> str:
        """End the programs that stay alive between tasks; see ``Executor.end_served_programs``."""
        if not self._use.served:
            return ""
        from concurrent.futures import ThreadPoolExecutor, wait  # few runs need it

        with ThreadPoolExecutor(1) as threads:
            parting = threads.submit(self._pool.part, patience_seconds)
            try:
                wait_until(lambda: wait([parting], POLL_INTERVAL_SECONDS).done or look())
            except BaseException:
                self.kill_all()
                raise
        return "".join(parting.result()[:1])  # the other processes most likely end alike

    def submit_task(self, task: SlotTask, batch: SpooledBatch) -> None:
        """Queue a task for the first free slot."""

        def submit(execution: ToolExecution) -> None:
            self._pool.submit(
                task.id, execution.argv, execution.placements, execution.outputs, timeout_seconds=task.timeout_seconds, cpu_limit_seconds=task.cpu_limit_seconds,
                first=batch.first, last=batch.last, attempt=task.attempt, inputs=list(batch.digests), urgent=task.urgent,
                fragment=encode_task_kind(task.kind), exe=execution.exe,
                substitutions=execution.substitutions, patches=execution.patches, within=execution.within,
                own_folder=execution.own_folder, alone=task.alone, warm=self._use.warm and isinstance(task.kind, WholeTask),
            )  # fmt: skip

        self._limits.add_waiting_task(task.id)
        queue = self._preparer.delay_task(task.id, submit) if self._preparer else submit
        match task.kind:
            case WholeTask() | CompareTask() if self._searcher:
                self._searcher.queue_whole_search(
                    task,
                    self._executions.build_execution(batch),
                    list(batch.files),
                    batch.last - batch.first,
                    queue,
                    self.wake_waiter,
                )
            case CompareTask(over) if self._apart:
                execution = self._apart.build_execution(batch, again=True, over=over)
                queue(msgspec.structs.replace(execution, own_folder=(str(self._cwd), self._own_pwd)))
            case CompareTask(over):
                queue(self._executions.build_execution(batch, again=True, over=over))
            case WholeTask():
                queue(self._executions.build_execution(batch))
            case SearchTask(fragment):
                self._fragments.queue_fragment_search(
                    task.id, fragment, list(batch.files), self._executions.place_inputs(batch), queue, self.wake_waiter
                )
            case _:
                self._fragments.queue_finish(
                    task,
                    self._executions.build_execution(batch),
                    list(batch.files),
                    batch.last - batch.first,
                    queue,
                    self.wake_waiter,
                )

    @property
    def _fragments(self) -> FragmentSearcher:
        assert self._searcher  # such tasks exist only for a database in fragments
        return self._searcher

    def wait_for_events(self, timeout_seconds: float) -> list[SlotEvent]:
        """Wait for events, at most ``timeout_seconds``; return all that are there.

        Raises:
            MillraceError: The candidates of a batch could not be put together.
        """
        found: list[SlotEvent] = [
            self._restore_typed_input(convert_pool_event(event, with_io=bool(self._profile_io)))
            for event in self._pool.events(timeout_seconds)
        ]
        if self._searcher:
            for news in found:
                if isinstance(news, TaskEnded):
                    self._searcher.release_task(news.task)
            if self._searcher.error:
                raise self._searcher.error
        if self._preparer and self._preparer.error:
            raise self._preparer.error
        return self._limits.filter_events(found, time.monotonic())

    def _restore_typed_input(self, news: TaskStarted | TaskEnded | PoolWoken) -> TaskStarted | TaskEnded | PoolWoken:
        """Replace the name of a changed input by the path that the user typed."""
        if isinstance(news, TaskEnded) and news.ending is TaskEnding.CHANGED:
            places = zip(self._use.inputs, self._mirror.inputs, strict=True)
            typed = next(item.path for item, place in places if place.path == news.detail)
            return msgspec.structs.replace(news, detail=typed)
        return news

    @property
    def kept_fragments(self) -> list[int]:
        """Return the fragments of the database whose volumes this node has kept from earlier jobs."""
        return self._searcher.kept_fragments if self._searcher else []

    @property
    def storage_read(self) -> StorageRead:
        """Return the bytes of volumes that were read from shared storage."""
        return self._searcher.storage_read if self._searcher else StorageRead()

    def withdraw_tasks(self) -> list[TaskId]:
        """Remove the tasks that no slot has started; return their ids."""
        self._limits.stop_waiting()
        waiting = self._searcher.withdraw_tasks() if self._searcher else []
        waiting += self._preparer.withdraw_tasks() if self._preparer else []
        queued = [*map(TaskId, self._pool.withdraw())]
        if self._searcher:
            for task in queued:
                self._searcher.release_task(task)
        found = [*waiting, *queued]
        self._limits.remove_tasks(found)
        return found

    def close(self) -> None:
        """Kill and reap running tools, and free the slots."""
        self._pool.close()
        if self._searcher:
            self._searcher.close()
        if self._preparer:
            self._preparer.close()

    def build_argv(self, batch: SpooledBatch) -> list[bytes]:
        """Return the tool's arguments for ``batch``; ``mirror_layout.SLOT_MARK`` in them stands for the slot."""
        return self._executions.build_argv(batch)


def _make_preparer(use: ToolUse, work: WorkDir, cwd: Path, names: Mapping[str, str]) -> DatabasePreparer | None:
    if not use.prepared:
        return None
    from millrace.node.database_preparer import DatabasePreparer  # few runs need it

    return DatabasePreparer(use.prepared, work, cwd, names)


def _find_program_path(exe: Path, typed: ArgumentToken, place: Path) -> str:
    """Return the program's path in a slot: a relative path if the user typed one, as a script finds it in ``$0``."""
    if isinstance(typed, str) and "/" in typed and not os.path.isabs(typed):
        with suppress(OSError):
            if os.path.samefile(place / typed, exe):
                return typed
    return str(exe)


def _collect_substitutions(
    layout: mirror_layout.SlotLayout, apart: mirror_layout.SlotLayout | None
) -> list[tuple[bytes, bytes]]:
    found = {*layout.substitutions, *(apart.substitutions if apart else ())}
    return sorted(found, key=lambda pair: -len(pair[0]))


def _describe_stream(output: OutputUse) -> tuple[str, str, list[str]]:
    name = "standard output" if output.path == "-" else output.path
    # For messages: a name need not be UTF-8.
    return os.fsencode(name).decode(errors="replace"), output.join, list(output.volatile)
