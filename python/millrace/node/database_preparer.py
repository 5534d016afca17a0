"""Preparation of a database on a node: the tool itself makes it, once, before the first task runs.

The tool's runs are started in a thread, so that a node answers meanwhile, and tasks wait until they are done. A failed run
of the tool is no failure of a record: it ends the job, unless it was killed, and another attempt is left.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from millrace.core.errors import MillraceError
from millrace.core.tasks import TaskId
from millrace.core.tool_use import ArgumentToken, DatabaseArg, PreparedDatabase, ScratchArg, ThreadsArg
from millrace.host import memory_limits
from millrace.host.work_places import MEMORY, is_usable_place, list_disk_places
from millrace.node.execution_builder import ToolExecution
from millrace.node.mirror_layout import DATABASE
from millrace.node.work_dir import WorkDir

#: Largest share of memory that a database may fill in a work directory there.
MAX_MEMORY_SHARE = 1 / 8

#: Attempts to make a database: a run that was killed is no fault of the target. A shell's status for that begins here.
MAX_ATTEMPTS, SIGNAL_STATUS = 3, 128

#: Bytes of the tool's messages that an error shows.
MAX_SAID_BYTES = 2000


class DatabasePreparer:
    """Maker of a ``PreparedDatabase``, which holds tasks back until it is there.

    Args:
        names: Copies of files in the working directory, by name.
    """

    def __init__(self, prepared: PreparedDatabase, work: WorkDir, cwd: Path, names: Mapping[str, str]) -> None:
        self._prepared, self._work, self._cwd, self._names = prepared, work, cwd, names
        self._root = _choose_root(work, prepared.size_bytes)
        place = self._root / DATABASE
        self._folder = place.parent
        #: Path of the database in the arguments of tasks.
        self.database = os.fsencode(place)
        self._lock = threading.Lock()
        self._waiting: dict[TaskId, Callable[[], None]] = {}
        self._is_ready = self._is_closed = False
        self._process: subprocess.Popen[bytes] | None = None
        self._thread: threading.Thread | None = None
        #: Why there is no database.
        self.error: BaseException | None = None

    def start_thread(
        self, exe: Path, environ: Mapping[str, str], threads: int, nice: int, wake: Callable[[], None]
    ) -> None:
        """Start the tool's runs; ``wake`` is called if one fails."""
        self._thread = threading.Thread(
            target=self._prepare, args=(exe, environ, threads, nice, wake), name="database", daemon=True
        )
        self._thread.start()

    def delay_task(self, task: TaskId, queue: Callable[[ToolExecution], None]) -> Callable[[ToolExecution], None]:
        """Return ``queue`` for ``task``, delayed until the database is there."""

        def queue_when_ready(execution: ToolExecution) -> None:
            with self._lock:
                if not self._is_ready:
                    self._waiting[task] = lambda: queue(execution)
                    return
            queue(execution)

        return queue_when_ready

    def withdraw_tasks(self) -> list[TaskId]:
        """Remove the tasks that still wait; return their ids."""
        with self._lock:
            tasks = [*self._waiting]
            self._waiting.clear()
        return tasks

    def close(self) -> None:
        """End the tool's run, and remove the database."""
        self.withdraw_tasks()
        with self._lock:
            self._is_closed = True
            self._kill_processes()
        if self._thread:
            self._thread.join()
        shutil.rmtree(self._folder if self._root == self._work.path else self._root, ignore_errors=True)

    def _prepare(
        self, exe: Path, environ: Mapping[str, str], threads: int, nice: int, wake: Callable[[], None]
    ) -> None:
        try:
            steps = [[self._expand_token(token, threads) for token in step] for step in self._prepared.steps]
            for n_left in reversed(range(MAX_ATTEMPTS)):
                self._folder.mkdir(exist_ok=True)
                if self._run_steps(steps, exe, environ, nice, is_last=not n_left):
                    break
                shutil.rmtree(self._folder)
            with self._lock:
                self._is_ready = True
                tasks = [*self._waiting.values()]
                self._waiting.clear()
            for queue in tasks:
                with suppress(ValueError):  # closed: no task waits any more
                    queue()
        except BaseException as error:
            if not self._is_closed:
                self.error = error
                wake()

    def _expand_token(self, token: ArgumentToken, threads: int) -> str:
        match token:
            case DatabaseArg(prefix=prefix):
                return prefix + os.fsdecode(self.database)
            case ThreadsArg():
                return str(threads)
            case ScratchArg():
                return str(self._folder / "scratch")
            case _:
                return self._names.get(str(token), str(token))

    def _run_steps(
        self, steps: Sequence[list[str]], exe: Path, environ: Mapping[str, str], nice: int, *, is_last: bool
    ) -> bool:
        """Run the tool for each step; return whether all ended well.

        Raises:
            MillraceError: One did not, by itself or at the last attempt.
        """
        for argv in steps:
            status, said = self._run_step(argv, exe, environ, nice)
            if not status:
                continue
            if is_last or 0 < status < SIGNAL_STATUS:
                raise MillraceError(
                    f"{self._prepared.typed}: no database was made of it: {' '.join(argv[:2])} ended with status {status}",
                    f"it wrote: {said[-MAX_SAID_BYTES:].decode(errors='replace').strip() or 'nothing'}",
                )
            return False
        return True

    def _run_step(self, argv: list[str], exe: Path, environ: Mapping[str, str], nice: int) -> tuple[int, bytes]:
        """Run the tool; return its status, negative for a signal, and what it wrote."""
        with tempfile.TemporaryFile() as said:
            with self._lock:
                if self._is_closed:
                    raise MillraceError("the run ends")
                self._process = subprocess.Popen(
                    argv, executable=exe, cwd=self._cwd, env=environ, stdin=subprocess.DEVNULL, stdout=said,
                    stderr=subprocess.STDOUT, start_new_session=True,
                )  # fmt: skip
            if nice:
                with suppress(OSError):
                    os.setpriority(os.PRIO_PGRP, self._process.pid, nice)
            # Not reaped yet, so that the number of its group is no other's.
            os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
            with self._lock:
                self._kill_processes()
                status = self._process.wait()
                self._process = None
            said.seek(0)
            return status, said.read()

    def _kill_processes(self) -> None:
        """Kill the tool and what it has started; the lock is held."""
        if self._process:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)


def _choose_root(work: WorkDir, size_bytes: int) -> Path:
    """Return the work directory, or, if it is in memory, of which the database would fill much, one of the same name on disk.

    Later runs remove either, if this one is killed.
    """
    limit, _ = memory_limits.read_usable_memory()
    if str(work.path.parent) in MEMORY and size_bytes > MAX_MEMORY_SHARE * limit:
        for place in list_disk_places():
            if is_usable_place(place):
                other = WorkDir(place / work.path.name, work.secret)
                other.make_folder()
                return other.path
    return work.path
