"""The node's part in a search in fragments: fragments, databases of candidates, and their executions."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

from millrace._core import OutputPlace, Placement
from millrace.adapters.database_backend import DatabaseBackend, VolumeBackend, find_backend
from millrace.core.journal_blocks import map_blocks
from millrace.core.tasks import RankTask, SliceTask, SlotTask, TaskId
from millrace.core.tool_use import ArgumentToken, FragmentPlan, StorageRead, ToolUse
from millrace.node.execution_builder import ExecutionOutput, ToolExecution
from millrace.node.mirror_layout import PRIVATE, SlotLayout, mark_private_path, render_argv
from millrace.node.node_volumes import NodeVolumes
from millrace.node.work_dir import WorkDir

#: Paths in a slot: the candidates of its batch, and the output of the search of a fragment.
CANDIDATES, FOUND = f"{PRIVATE}/database", f"{PRIVATE}/found"

#: An empty range of ranks: a batch that cannot be ranked has no slices.
NO_ROWS = (1.0, 0.0)


class FragmentSearcher:
    """Builder of the executions of a search in fragments.

    Args:
        fragmented: The database and its fragments.
        environ: Environment of the programs that make fragments and candidates.
        threads: Number of databases of candidates that are made side by side.
        volumes: Volumes of the database, if they are fetched on demand.

    Raises:
        MillraceError: The fragments cannot be made.
    """

    def __init__(
        self, use: ToolUse, fragmented: FragmentPlan, mirror: SlotLayout, *, cwd: Path, environ: Mapping[str, str],
        work: WorkDir, threads: int, volumes: NodeVolumes | None = None,
    ) -> None:  # fmt: skip
        self._backend: DatabaseBackend = find_backend(fragmented)
        self._volumes = volumes
        if volumes and isinstance(self._backend, VolumeBackend):
            fragmented = self._backend.relocate_files(
                fragmented, volumes.whole, volumes.parts, volumes.shared, volumes.in_pieces
            )
            cwd = volumes.whole  # BLAST searches this folder first
        self._use, self._fragmented, self._mirror = use, fragmented, mirror
        self._cwd, self._environ = cwd, environ
        self._work = work.path / "candidates"
        self._work.mkdir()
        folder = work.path / "fragments"
        folder.mkdir()
        self._databases = self._backend.prepare_fragments(fragmented, folder, cwd, environ)
        self._threads = ThreadPoolExecutor(threads, "candidates")
        self._lock = threading.Lock()
        #: Tasks whose candidates or volumes are being prepared, and the folders of those that may run.
        self._waiting: set[TaskId] = set()
        self._folders: dict[TaskId, Path] = {}
        #: Callbacks that release a task's volume, by task.
        self._releases: dict[TaskId, Callable[[], None]] = {}
        #: The first error of a thread.
        self.error: BaseException | None = None

    def queue_whole_search(
        self, task: SlotTask, execution: ToolExecution, files: list[str], n_records: int,
        queue: Callable[[ToolExecution], None], wake: Callable[[], None],
    ) -> None:  # fmt: skip
        """Pass to ``queue`` a search of the whole database: for an empty batch, or for verification."""
        volumes = self._volumes
        if not volumes or volumes.is_in_place:
            queue(execution)
            return
        typed = self._fragmented.database
        database = os.fsencode((volumes.whole if n_records else volumes.others) / typed)
        argv = render_argv(self._fragmented.finish, self._use, self._mirror, files, {}, database)
        execution = replace(execution, argv=argv, substitutions=[(database, os.fsencode(typed))])

        def fill() -> None:
            if n_records:
                volumes.fill_all_files()

        with self._lock:
            self._waiting.add(task.id)
        self._threads.submit(self._queue_when_fetched, task.id, fill, lambda: None, execution, queue, wake)

    def queue_fragment_search(
        self, task: TaskId, fragment: int, files: list[str], placements: Sequence[Placement],
        queue: Callable[[ToolExecution], None], wake: Callable[[], None],
    ) -> None:  # fmt: skip
        """Pass to ``queue`` the search of ``fragment``, from 1, once its volume is fetched."""
        execution = self._build_fragment_search(fragment, files, placements)
        if not self._volumes:
            queue(execution)
            return
        with self._lock:
            self._waiting.add(task)
        volumes = self._volumes

        def release() -> None:
            volumes.release_volume(fragment)

        self._threads.submit(
            self._queue_when_fetched, task, lambda: volumes.acquire_volume(fragment), release, execution, queue, wake
        )

    def _queue_when_fetched(
        self, task: TaskId, bring: Callable[[], None], release: Callable[[], None], execution: ToolExecution,
        queue: Callable[[ToolExecution], None], wake: Callable[[], None],
    ) -> None:  # fmt: skip
        """Pass an execution to ``queue`` once its volume is fetched; call ``release`` when it has ended."""
        try:
            if task not in self._waiting:
                return
            bring()
            with self._lock:
                if wanted := task in self._waiting:
                    self._waiting.remove(task)
                    self._releases[task] = release
            if not wanted:
                release()  # withdrawn meanwhile
                return
            with suppress(ValueError):  # closed: no task waits any more
                queue(execution)
        except BaseException as error:
            self.error = self.error or error
            wake()

    def _build_fragment_search(self, fragment: int, files: list[str], placements: Sequence[Placement]) -> ToolExecution:
        part = self._fragmented.fragments[fragment - 1]
        database = os.fsencode(self._databases[fragment - 1])
        return ToolExecution(
            argv=render_argv(part.argv, self._use, self._mirror, files, {0: mark_private_path(FOUND)}, database),
            placements=placements, outputs=[self._found_output], exe=self._choose_program(part.argv),
            substitutions=[(database, os.fsencode(self._fragmented.database))],
        )  # fmt: skip

    @property
    def _found_output(self) -> ExecutionOutput:
        """Return the output of a search for candidates or their ranks."""
        found = self._fragmented.found
        return 0, OutputPlace.Stdout() if found.stdout else OutputPlace.File(FOUND), b"", found.optional

    def queue_finish(
        self,
        task: SlotTask,
        whole: ToolExecution,
        files: list[str],
        n_records: int,
        queue: Callable[[ToolExecution], None],
        wake: Callable[[], None],
    ) -> None:
        """Make the candidates in a thread, then pass their search, with the outputs of ``whole``, to ``queue``."""
        with self._lock:
            self._waiting.add(task.id)
        self._threads.submit(self._prepare_finish, task, whole, files, n_records, queue, wake)

    def _prepare_finish(
        self,
        task: SlotTask,
        whole: ToolExecution,
        files: list[str],
        n_records: int,
        queue: Callable[[ToolExecution], None],
        wake: Callable[[], None],
    ) -> None:
        try:
            if task.id not in self._waiting:
                return
            folder = self._work / str(task.id)
            folder.mkdir()
            with map_blocks(task.found) as texts:
                if self._volumes and isinstance(self._backend, VolumeBackend):
                    self._volumes.fill_ranges(self._backend.list_lookup_ranges(self._fragmented, folder, texts))
                if isinstance(task.kind, RankTask | SliceTask):
                    execution = self._build_slice_search(task.kind, folder, whole, files, texts)
                else:
                    name = self._backend.make_candidates(
                        self._fragmented, folder, self._cwd, self._environ, texts, n_records
                    )
                    execution = self._build_candidate_search(folder, name, whole, files, self._fragmented.finish, {})
            if self._volumes and isinstance(self._backend, VolumeBackend):
                self._volumes.fill_ranges(self._backend.list_search_ranges(folder))
            with self._lock:
                if task.id not in self._waiting:
                    return  # withdrawn meanwhile
                self._waiting.remove(task.id)
                self._folders[task.id] = folder
            with suppress(ValueError):  # closed: no task waits any more
                queue(execution)
        except BaseException as error:
            self.error = self.error or error
            wake()

    def _build_slice_search(
        self,
        part: SliceTask | RankTask,
        folder: Path,
        whole: ToolExecution,
        files: list[str],
        texts: Sequence[memoryview],
    ) -> ToolExecution:
        """Build the search of a slice, or of the ranks of a share; rows outside the slice are filtered by rank."""
        ranked = self._fragmented.ranked
        assert ranked  # else there are no slices
        found = self._backend.make_slice(self._fragmented, folder, self._cwd, self._environ, texts, part)
        lowest, highest = (found.lowest, found.highest) if found else NO_ROWS
        within = (ranked.subject, ranked.bits, ranked.evalue, lowest, highest)
        if not found or not found.database:  # no candidates to search
            execution = ToolExecution([b"true"], whole.placements, [], exe=shutil.which("true"))
        elif isinstance(part, RankTask):
            execution = self._build_candidate_search(
                folder, found.database, whole, files, ranked.argv, {0: mark_private_path(FOUND)}
            )
            # Lists of hits have no rows.
            return replace(execution, outputs=[self._found_output], patches=())
        else:
            execution = self._build_candidate_search(folder, found.database, whole, files, self._fragmented.finish, {})
        return replace(execution, within=within)

    def _build_candidate_search(
        self, folder: Path, name: str, whole: ToolExecution, files: list[str], argv: Sequence[ArgumentToken], outputs: Mapping[int, bytes],
    ) -> ToolExecution:  # fmt: skip
        """Build ``argv`` with the database ``name`` of ``folder``, and with ``outputs`` in place of the user's."""
        fragmented = self._fragmented
        text = mark_private_path(f"{CANDIDATES}/{name}")
        typed = os.fsencode(fragmented.database)
        return ToolExecution(
            argv=render_argv(argv, self._use, self._mirror, files, outputs, text),
            placements=[*whole.placements, Placement.Link(folder, CANDIDATES)], outputs=whole.outputs,
            exe=self._choose_program(argv),
            # A tool may print the name as given, or resolve the link.
            substitutions=[(text, typed), (os.fsencode(folder / name), typed)],
            patches=self._backend.list_patches(fragmented, folder),
        )  # fmt: skip

    def _choose_program(self, argv: Sequence[ArgumentToken]) -> str | None:
        return None if argv[0] == self._use.argv[0] else str(argv[0])

    @property
    def kept_fragments(self) -> list[int]:
        """Return the fragments whose volumes this node has kept from earlier jobs."""
        return self._volumes.list_kept_fragments() if self._volumes else []

    @property
    def storage_read(self) -> StorageRead:
        """Return the bytes that were read from remote volumes."""
        return self._volumes.read if self._volumes else StorageRead()

    def release_task(self, task: TaskId) -> None:
        """Release the candidates and the volume of a task that has ended."""
        if folder := self._folders.pop(task, None):
            shutil.rmtree(folder, ignore_errors=True)
        if release := self._releases.pop(task, None):
            release()

    def withdraw_tasks(self) -> list[TaskId]:
        """Remove the tasks whose candidates or volumes are not ready yet; return their ids."""
        with self._lock:
            tasks = list(self._waiting)
            self._waiting.clear()
        return tasks

    def close(self) -> None:
        """Wait for the threads, and drop their results."""
        self.withdraw_tasks()
        self._threads.shutdown(cancel_futures=True)
        if self._volumes:
            self._volumes.close()
