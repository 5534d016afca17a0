"""Writing of outputs in a separate thread, so that a slow disk or pipe does not delay the slots."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Protocol

from millrace.committed import CommittedRecords
from millrace.output.order import ReorderBuffer
from millrace.output.streams import OutputStreams


class OutputWriter(Protocol):
    """Interface for writers of committed tasks: ``OrderedWriter``, or ``millrace.cluster.parallel_output``."""

    @property
    def error(self) -> BaseException | None:
        """Return the error of writing, after which nothing more is written; None: no error."""

    def add_task(self, task: CommittedRecords) -> None:
        """Add a committed task; in any order."""

    def drain_tasks(self, timeout_seconds: float) -> int | None:
        """Wait until all is written; see ``OrderedWriter.drain_tasks``."""

    def finish_outputs(self) -> dict[str, int]:
        """Close the outputs; see ``OrderedWriter.finish_outputs``."""

    def find_changed_outputs(self) -> dict[str, str]:
        """Return changes of the output files; see ``OutputStreams.find_changed_outputs``."""


class OrderedWriter:
    """A writer of committed tasks in input order; ``error`` is set on failure, and then nothing more is written."""

    def __init__(self, streams: OutputStreams, wake: Callable[[], None]) -> None:
        self.error: BaseException | None = None
        self._streams, self._wake, self._drained = streams, wake, False
        self._ordered: ReorderBuffer[CommittedRecords] = ReorderBuffer()
        self._tasks: queue.SimpleQueue[CommittedRecords | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._write_tasks, name="output", daemon=True)
        self._thread.start()

    def add_task(self, task: CommittedRecords) -> None:
        self._tasks.put(task)

    def drain_tasks(self, timeout_seconds: float) -> int | None:
        """Wait until all tasks are written; return the number of records that the outputs then cover.

        Returns None after ``timeout_seconds``: call it again. No task may be added after the first call.
        """
        if not self._drained:
            self._drained = True
            self._tasks.put(None)
        self._thread.join(timeout_seconds)
        return None if self._thread.is_alive() else self._ordered.next

    def finish_outputs(self) -> dict[str, int]:
        """Write the ends of the outputs after ``OrderedWriter.drain_tasks``, and sync; return the bytes of each stream."""
        return self._streams.finish_outputs()

    def find_changed_outputs(self) -> dict[str, str]:
        """Return changes of the output files; see ``OutputStreams.find_changed_outputs``."""
        return self._streams.find_changed_outputs()

    def _write_tasks(self) -> None:
        try:
            while (task := self._tasks.get()) is not None:
                for first, last, ready in self._ordered.push(task.first, task.last, task):
                    self._streams.append_task(last - first, ready)
                if self._tasks.empty():
                    self._streams.flush()
            self._streams.flush()
        except BaseException as error:
            self.error = error
            self._wake()
