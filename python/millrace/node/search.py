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

from millrace.blocks import views
from millrace.ids import TaskId
from millrace.model import Fragmented, HdfsRead, Token, ToolUse
from millrace.node.execution import Execution, Output, Placement
from millrace.node.mirror import PRIVATE, Mirror, private_text, render
from millrace.node.volumes import Volumes
from millrace.node.workdir import WorkDir
from millrace.tasks import Rank, Slice, Task
from millrace.tools.backend import DatabaseBackend, VolumeBackend, find

#: Paths in a slot: the candidates of its batch, and the output of the search of a fragment.
CANDIDATES, FOUND = f"{PRIVATE}/database", f"{PRIVATE}/found"

#: An empty range of ranks: a batch that cannot be ranked has no slices.
NO_ROWS = (1.0, 0.0)


class Searcher:
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
        self, use: ToolUse, fragmented: Fragmented, mirror: Mirror, *, cwd: Path, environ: Mapping[str, str],
        work: WorkDir, threads: int, volumes: Volumes | None = None,
    ) -> None:  # fmt: skip
        self._backend: DatabaseBackend = find(fragmented)
        self._volumes = volumes
        if volumes and isinstance(self._backend, VolumeBackend):
            fragmented = self._backend.moved(
                fragmented, volumes.whole, volumes.parts, volumes.shared, volumes.in_pieces
            )
            cwd = volumes.whole  # BLAST searches this folder first
        self._use, self._fragmented, self._mirror = use, fragmented, mirror
        self._cwd, self._environ = cwd, environ
        self._work = work.path / "candidates"
        self._work.mkdir()
        folder = work.path / "fragments"
        folder.mkdir()
        self._databases = self._backend.prepare(fragmented, folder, cwd, environ)
        self._threads = ThreadPoolExecutor(threads, "candidates")
        self._lock = threading.Lock()
        #: Tasks whose candidates or volumes are being prepared, and the folders of those that may run.
        self._waiting: set[TaskId] = set()
        self._folders: dict[TaskId, Path] = {}
        #: Callbacks that release a task's volume, by task.
        self._releases: dict[TaskId, Callable[[], None]] = {}
        #: The first error of a thread.
        self.error: BaseException | None = None

    def whole(
        self, task: Task, execution: Execution, files: list[str], n_records: int,
        queue: Callable[[Execution], None], wake: Callable[[], None],
    ) -> None:  # fmt: skip
        """Pass to ``queue`` a search of the whole database: for an empty batch, or for verification."""
        volumes = self._volumes
        if not volumes:
            queue(execution)
            return
        typed = self._fragmented.database
        database = os.fsencode((volumes.whole if n_records else volumes.others) / typed)
        argv = render(self._fragmented.finish, self._use, self._mirror, files, {}, database)
        execution = replace(execution, argv=argv, substitutions=[(database, os.fsencode(typed))])

        def fill() -> None:
            if n_records:
                volumes.fill_all()

        with self._lock:
            self._waiting.add(task.id)
        self._threads.submit(self._when_here, task.id, fill, lambda: None, execution, queue, wake)

    def search(
        self, task: TaskId, fragment: int, files: list[str], placements: Sequence[Placement],
        queue: Callable[[Execution], None], wake: Callable[[], None],
    ) -> None:  # fmt: skip
        """Pass to ``queue`` the search of ``fragment``, from 1, once its volume is fetched."""
        execution = self._search(fragment, files, placements)
        if not self._volumes:
            queue(execution)
            return
        with self._lock:
            self._waiting.add(task)
        volumes = self._volumes

        def release() -> None:
            volumes.release(fragment)

        self._threads.submit(self._when_here, task, lambda: volumes.bring(fragment), release, execution, queue, wake)

    def _when_here(
        self, task: TaskId, bring: Callable[[], None], release: Callable[[], None], execution: Execution,
        queue: Callable[[Execution], None], wake: Callable[[], None],
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

    def _search(self, fragment: int, files: list[str], placements: Sequence[Placement]) -> Execution:
        part = self._fragmented.fragments[fragment - 1]
        database = os.fsencode(self._databases[fragment - 1])
        return Execution(
            argv=render(part.argv, self._use, self._mirror, files, {0: private_text(FOUND)}, database),
            placements=placements, outputs=[self._found], exe=self._program(part.argv),
            substitutions=[(database, os.fsencode(self._fragmented.database))],
        )  # fmt: skip

    @property
    def _found(self) -> Output:
        """Return the output of a search for candidates or their ranks."""
        found = self._fragmented.found
        return (0, "stdout", "", b"", found.optional) if found.stdout else (0, "file", FOUND, b"", found.optional)

    def finish(
        self,
        task: Task,
        whole: Execution,
        files: list[str],
        queue: Callable[[Execution], None],
        wake: Callable[[], None],
    ) -> None:
        """Make the candidates in a thread, then pass their search, with the outputs of ``whole``, to ``queue``."""
        with self._lock:
            self._waiting.add(task.id)
        self._threads.submit(self._finish, task, whole, files, queue, wake)

    def _finish(
        self,
        task: Task,
        whole: Execution,
        files: list[str],
        queue: Callable[[Execution], None],
        wake: Callable[[], None],
    ) -> None:
        try:
            if task.id not in self._waiting:
                return
            folder = self._work / str(task.id)
            folder.mkdir()
            with views(task.found) as texts:
                if self._volumes and isinstance(self._backend, VolumeBackend):
                    self._volumes.fill(self._backend.looked_up(self._fragmented, folder, texts))
                if isinstance(task.kind, Rank | Slice):
                    execution = self._slice(task.kind, folder, whole, files, texts)
                else:
                    name = self._backend.candidates(self._fragmented, folder, self._cwd, self._environ, texts)
                    execution = self._in_candidates(folder, name, whole, files, self._fragmented.finish, {})
            if self._volumes and isinstance(self._backend, VolumeBackend):
                self._volumes.fill(self._backend.ranges(folder))
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

    def _slice(
        self, part: Slice | Rank, folder: Path, whole: Execution, files: list[str], texts: Sequence[memoryview]
    ) -> Execution:
        """Build the search of a slice, or of the ranks of a share; rows outside the slice are filtered by rank."""
        ranked = self._fragmented.ranked
        assert ranked  # else there are no slices
        found = self._backend.slice(self._fragmented, folder, self._cwd, self._environ, texts, part)
        lowest, highest = (found.lowest, found.highest) if found else NO_ROWS
        within = (ranked.subject, ranked.bits, ranked.evalue, lowest, highest)
        if not found or not found.database:  # no candidates to search
            execution = Execution([b"true"], whole.placements, [], exe=shutil.which("true"))
        elif isinstance(part, Rank):
            execution = self._in_candidates(folder, found.database, whole, files, ranked.argv, {0: private_text(FOUND)})
            # Lists of hits have no rows.
            return replace(execution, outputs=[self._found], patches=())
        else:
            execution = self._in_candidates(folder, found.database, whole, files, self._fragmented.finish, {})
        return replace(execution, within=within)

    def _in_candidates(
        self, folder: Path, name: str, whole: Execution, files: list[str], argv: Sequence[Token], outputs: Mapping[int, bytes],
    ) -> Execution:  # fmt: skip
        """Build ``argv`` with the database ``name`` of ``folder``, and with ``outputs`` in place of the user's."""
        fragmented = self._fragmented
        text = private_text(f"{CANDIDATES}/{name}")
        typed = os.fsencode(fragmented.database)
        return Execution(
            argv=render(argv, self._use, self._mirror, files, outputs, text),
            placements=[*whole.placements, ("link", str(folder), CANDIDATES)], outputs=whole.outputs,
            exe=self._program(argv),
            # A tool may print the name as given, or resolve the link.
            substitutions=[(text, typed), (os.fsencode(folder / name), typed)],
            patches=self._backend.patch(fragmented, folder),
        )  # fmt: skip

    def _program(self, argv: Sequence[Token]) -> str | None:
        return None if argv[0] == self._use.argv[0] else str(argv[0])

    @property
    def read(self) -> HdfsRead:
        """Return the bytes that were read from remote volumes."""
        return self._volumes.read if self._volumes else HdfsRead()

    def ended(self, task: TaskId) -> None:
        """Release the candidates and the volume of a task that has ended."""
        if folder := self._folders.pop(task, None):
            shutil.rmtree(folder, ignore_errors=True)
        if release := self._releases.pop(task, None):
            release()

    def withdraw(self) -> list[TaskId]:
        """Remove the tasks whose candidates or volumes are not ready yet; return their ids."""
        with self._lock:
            tasks = list(self._waiting)
            self._waiting.clear()
        return tasks

    def close(self) -> None:
        """Wait for the threads, and drop their results."""
        self.withdraw()
        self._threads.shutdown(cancel_futures=True)
        if self._volumes:
            self._volumes.close()
