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
from typing import TYPE_CHECKING, BinaryIO

import msgspec

from millrace import _core
from millrace.cluster import messages as say
from millrace.cluster.dask.message_pipe import read_message, write_message
from millrace.cluster.dask.worker_files import PlacedFiles, check_same_contents, fetch_url_files
from millrace.cluster.node_info import select_machine_variables
from millrace.core.errors import MillraceError, RefusedError
from millrace.core.journal_blocks import attach_contents, save_contents
from millrace.core.tasks import SlotsChanged, TaskEnded, TaskId
from millrace.node.batch_files import SpooledBatch
from millrace.node.local_slots import LocalSlots
from millrace.node.work_dir import WorkDir, choose_work_dir
from millrace.output.commits import ChangeGuard
from millrace.planning import dependency_files, work_dir_location
from millrace.planning.program_lookup import find_program

if TYPE_CHECKING:
    from millrace.storage.cache.copy_cache import NodeCache

#: Seconds without a task after which the process ends: its coordinator may have been killed.
MAX_IDLE_SECONDS = 60.0

#: Longest wait for events of the slots, in seconds; a message ends it.
TICK_SECONDS = 5.0


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
        copies: dict[str, str] = {}
        self._cache: NodeCache | None = None
        if setup.view:
            copies, self._cache = fetch_url_files(setup.view, cwd)
        check_same_contents(setup, exe)
        files = dependency_files.stat_program_files(setup.use, exe, cwd, setup.view)
        self._guard = ChangeGuard(files)
        self._journal = _core.Journal.create(work.path / "journal.mrj", os.urandom(16))
        self._slots = LocalSlots(
            setup.use, cwd=cwd, exe=exe, environ=environ, work=work, slots=setup.slots, journal=self._journal,
            nice=setup.nice, hidden=frozenset({Path(setup.run_dir)}), names=copies, view=setup.view, files=files,
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
                case say.RunWorkerTask() as message:
                    self._submit_task(message)
                case None:
                    return False
        return True

    def _submit_task(self, message: say.RunWorkerTask) -> None:
        assignment = message.assignment
        task, batch = assignment.task, assignment.batch
        for name, content in zip(batch.files, message.files, strict=True):
            self._placed.place_file(Path(self._setup.cwd, name), content)
        paths = tuple(self._work.spool / f"{task.id}.{k}" for k in range(len(assignment.contents)))
        for path, content in zip(paths, assignment.contents, strict=True):
            path.write_bytes(content)
        self._batches[task.id] = batch = msgspec.structs.replace(batch, spooled=paths)
        if message.found:
            task = msgspec.structs.replace(task, found=save_contents(message.found, self._locate_found(task.id)))
        self._slots.submit_task(task, batch)

    def _locate_found(self, task: TaskId) -> Path:
        """Return the path of what other tasks have found for a task."""
        return self._work.spool / f"{task}.found"

    def _report_end(self, ended: TaskEnded, dest: BinaryIO) -> None:
        self._guard.check_unchanged()  # what follows a change is no result, and no failure of a record
        batch = self._batches.pop(ended.task)
        for path in batch.spooled:
            path.unlink(missing_ok=True)
        self._locate_found(ended.task).unlink(missing_ok=True)
        for name in batch.files:
            self._placed.release_file(Path(self._setup.cwd, name))
        ended = attach_contents(ended, self._journal)
        write_message(dest, say.WorkerTaskEnded(ended, self._n_slots, self._why))
        self._why = ""

    def close(self) -> None:
        """Kill the tools, and remove what was made."""
        self._slots.close()
        self._placed.close()
        if self._cache:
            self._cache.close()


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
