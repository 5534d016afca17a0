"""The process that holds the slots of a Dask worker: ``python -m millrace.cluster.dask.slot_process``.

The worker's plugin starts it, and talks to it through pipes (``millrace.cluster.dask.message_pipe``). A process of its own,
as a watchdog must be forked before the first thread, and so that a kill of the worker ends the tools: the pipe is then at
its end. No folder is shared with the coordinator. The journal here only carries the bytes of results to the plugin.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import msgspec

from millrace import _core
from millrace.cluster import messages as say
from millrace.cluster.dask.message_pipe import read_message, write_message
from millrace.cluster.node_info import select_machine_variables
from millrace.core.errors import MillraceError, RefusedError
from millrace.core.journal_blocks import map_blocks
from millrace.core.tasks import SlotsChanged, TaskEnded, TaskId
from millrace.node.batch_files import SpooledBatch
from millrace.node.local_slots import LocalSlots
from millrace.node.work_dir import WorkDir, choose_work_dir
from millrace.output.commits import ChangeGuard
from millrace.planning import dependency_files, result_fingerprint, work_dir_location
from millrace.planning.program_lookup import find_program

#: Seconds without a task after which the process ends: its coordinator may have been killed.
MAX_IDLE_SECONDS = 60.0

#: Longest wait for events of the slots, in seconds; a message ends it.
TICK_SECONDS = 5.0


def check_same_contents(setup: say.SetUpWorker, exe: Path) -> None:
    """Check that program and databases have the contents that they have at the coordinator.

    Raises:
        RefusedError: One is missing here, or differs.
    """
    if os.uname().machine != setup.machine:
        raise RefusedError(
            f"is of architecture {os.uname().machine}, the coordinator of {setup.machine}",
            "results may differ in their last digits: use workers of one architecture",
        )
    for path, there in setup.contents.items():
        file = Path(setup.cwd, path) if path else exe
        if not file.exists():
            raise RefusedError(
                f"{file}: is not here",
                "bring the same file to this path on all workers, or use a folder that they share",
            )
        if result_fingerprint.fingerprint_content(file) != there:
            kind = "database" if path else "program"
            raise RefusedError(
                f"{file}: is not the {kind} that the coordinator has",
                "results would not be those of one command: bring the same one to all workers",
            )


class PlacedFiles:
    """Folders and files of the command that this machine lacks: they are made for a time, and nothing else is touched."""

    def __init__(self) -> None:
        self._folders: list[Path] = []
        #: Files that are made here, with the number of tasks that read each.
        self._readers: dict[Path, int] = {}

    def make_folder(self, folder: Path) -> None:
        """Make a folder and those above it, as far as they are missing.

        Raises:
            RefusedError: It cannot be made.
        """
        missing = [each for each in (folder, *folder.parents) if not each.exists()]
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RefusedError(
                f"{folder}: is not here, and cannot be made: {error.strerror}",
                "type the command in a folder that the workers have too, or may make",
            ) from error
        self._folders = [*missing, *self._folders]

    def place_file(self, path: Path, content: bytes) -> None:
        """Make a file for a task, unless it is there.

        Raises:
            RefusedError: Another one is there.
        """
        if path in self._readers:
            self._readers[path] += 1
        elif not path.exists():
            self.make_folder(path.parent)
            with path.open("xb") as file:
                file.write(content)
            self._readers[path] = 1
        elif path.stat().st_size != len(content) or path.read_bytes() != content:
            raise RefusedError(f"{path}: is not the file that the coordinator has", "remove it from the workers")

    def release_file(self, path: Path) -> None:
        """Remove a file that was made here once no task reads it any more."""
        if path in self._readers:
            self._readers[path] -= 1
            if not self._readers[path]:
                del self._readers[path]
                path.unlink(missing_ok=True)

    def close(self) -> None:
        """Remove all that was made, folders if they are empty."""
        for path in self._readers:
            path.unlink(missing_ok=True)
        for folder in self._folders:
            with suppress(OSError):
                folder.rmdir()


class SlotProcess:
    """The slots, from ``say.SetUpWorker`` to the end of the pipe.

    Raises:
        MillraceError: A file that the run needs is missing here, or differs from that of the coordinator.
    """

    def __init__(self, setup: say.SetUpWorker, work: WorkDir) -> None:
        self._setup, self._work = setup, work
        cwd = Path(setup.cwd)
        self._placed = PlacedFiles()
        for folder in setup.folders:
            self._placed.make_folder(Path(folder))
        environ = {**setup.environ, **select_machine_variables(os.environ)}
        # A worker's environment may have the program in a folder of its own.
        environ["PATH"] = os.pathsep.join(filter(None, (setup.environ.get("PATH"), os.environ.get("PATH"))))
        exe = find_program(setup.program, cwd, environ)
        check_same_contents(setup, exe)
        files = dependency_files.stat_program_files(setup.use, exe, cwd)
        self._guard = ChangeGuard(files)
        self._journal = _core.Journal.create(work.path / "journal.mrj", os.urandom(16))
        self._slots = LocalSlots(
            setup.use, cwd=cwd, exe=exe, environ=environ, work=work, slots=setup.slots, journal=self._journal,
            nice=setup.nice, hidden=frozenset({Path(setup.run_dir)}), files=files,
        )  # fmt: skip
        if any(item.format == "files" for item in setup.use.inputs) and not self._slots.has_overlays:
            self._slots.close()
            raise RefusedError(
                "tasks cannot see files that come with them: overlays are not allowed here",
                "millrace doctor says there why; run such a command by MPI with a folder that all nodes share",
            )
        self._batches: dict[TaskId, SpooledBatch] = {}
        self._n_slots, self._why = setup.slots, ""
        #: Messages of the plugin; None: the pipe is at its end.
        self._messages: queue.SimpleQueue[say.Message | None] = queue.SimpleQueue()

    def serve(self, source: BinaryIO, dest: BinaryIO) -> None:
        """Run tasks until ``source`` is at its end, or there was nothing to do for too long.

        Raises:
            MillraceError: A file has changed.
        """
        threading.Thread(target=self._read_messages, args=(source,), name="messages", daemon=True).start()
        busy = time.monotonic()
        while self._handle_messages() and time.monotonic() - busy < MAX_IDLE_SECONDS:
            for event in self._slots.wait_for_events(TICK_SECONDS):
                if isinstance(event, SlotsChanged):
                    self._n_slots, self._why = event.slots, event.why
                elif isinstance(event, TaskEnded):
                    self._report_end(event, dest)
            if self._batches:
                busy = time.monotonic()

    def _read_messages(self, source: BinaryIO) -> None:
        with suppress(EOFError, OSError, MillraceError):
            while True:
                self._messages.put(read_message(source))
                self._slots.wake_waiter()
        self._messages.put(None)
        self._slots.wake_waiter()

    def _handle_messages(self) -> bool:
        """Handle the messages that are there; return whether the pipe is open."""
        while not self._messages.empty():
            match self._messages.get():
                case say.RunWorkerTask(assignment, files):
                    for name, content in zip(assignment.batch.files, files, strict=True):
                        self._placed.place_file(Path(self._setup.cwd, name), content)
                    self._submit_assignment(assignment)
                case say.KillNodeTools():
                    self._slots.kill_all()
                case None:
                    return False
        return True

    def _submit_assignment(self, assignment: say.TaskAssignment) -> None:
        task, batch = assignment.task, assignment.batch
        paths = tuple(self._work.spool / f"{task.id}.{k}" for k in range(len(assignment.contents)))
        for path, content in zip(paths, assignment.contents, strict=True):
            path.write_bytes(content)
        self._batches[task.id] = batch = msgspec.structs.replace(batch, spooled=paths)
        self._slots.submit_task(task, batch)

    def _report_end(self, ended: TaskEnded, dest: BinaryIO) -> None:
        self._guard.check_unchanged()  # what follows a change is no result, and no failure of a record
        batch = self._batches.pop(ended.task)
        for path in batch.spooled:
            path.unlink(missing_ok=True)
        for name in batch.files:
            self._placed.release_file(Path(self._setup.cwd, name))
        contents: list[bytes] = []
        if ended.committed:
            with map_blocks(ended.committed.blocks) as blocks:
                contents = [bytes(block) for block in blocks]
        write_message(dest, say.WorkerTaskEnded(ended, contents, self._n_slots, self._why))
        self._why = ""
        if ended.committed:
            self._journal.drop_blocks(ended.committed)

    def close(self) -> None:
        """Kill the tools, and remove what was made."""
        self._slots.close()
        self._placed.close()


def serve_worker(source: BinaryIO, dest: BinaryIO) -> None:
    """Set up the slots that the first message wants, answer it, and run tasks; report an error as the last message."""
    setup = read_message(source)
    assert isinstance(setup, say.SetUpWorker)
    work = choose_work_dir(
        work_dir_location.choose_work_place(os.environ.get("MILLRACE_WORK", ""), setup.slots, Path("/")).path
    )
    watchdog = _core.Watchdog(str(work.path), work.token)  # before any thread
    try:
        work.make_folder()
        slots = SlotProcess(setup, work)
        try:
            write_message(dest, say.AgentHeartbeat())
            slots.serve(source, dest)
        finally:
            slots.close()
    except MillraceError as error:
        write_message(dest, say.AgentFailed.from_error(error))
    except BrokenPipeError:
        pass  # the worker is gone
    except OSError as error:
        write_message(dest, say.AgentFailed.from_error(MillraceError(str(error))))
    finally:
        watchdog.close()


def main() -> None:
    """Run with the pipes on standard input and output, which nothing else in this process uses."""
    source, dest = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    with suppress(EOFError):
        serve_worker(source, dest)
    sys.stdout.flush()
    os._exit(0)  # the thread that reads may be in a read


if __name__ == "__main__":
    main()
