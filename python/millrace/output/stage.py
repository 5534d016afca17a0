"""Writes outputs in a thread of its own, so that a slow disk or pipe does not hold up the slots."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Protocol

from millrace.committed import Committed
from millrace.output.order import Ordered
from millrace.output.streams import Streams


class Stage(Protocol):
    """Where committed tasks go: `OrderedWriter`, or the writers of several processes (`millrace.cluster.parallel_output`)."""

    @property
    def error(self) -> BaseException | None:
        """Set if writing failed; then nothing more is written."""

    def put(self, task: Committed) -> None:
        """Take a committed task; in any order."""

    def drain(self, timeout_seconds: float) -> int | None:
        """See `OrderedWriter.drain`."""

    def finish(self) -> dict[str, int]:
        """See `OrderedWriter.finish`."""

    def changed(self) -> dict[str, str]:
        """See `Streams.changed`."""


class OrderedWriter:
    """Takes committed tasks in any order; ``error`` is set if writing failed, and then nothing more is written."""

    def __init__(self, streams: Streams, wake: Callable[[], None]) -> None:
        self.error: BaseException | None = None
        self._streams, self._wake, self._drained = streams, wake, False
        self._ordered: Ordered[Committed] = Ordered()
        self._tasks: queue.SimpleQueue[Committed | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._write, name="output", daemon=True)
        self._thread.start()

    def put(self, task: Committed) -> None:
        self._tasks.put(task)

    def drain(self, timeout_seconds: float) -> int | None:
        """Wait until all that can be written is written; returns how many records the outputs then cover.

        None if that takes longer: to be called again. Nothing is `put` any more.
        """
        if not self._drained:
            self._drained = True
            self._tasks.put(None)
        self._thread.join(timeout_seconds)
        return None if self._thread.is_alive() else self._ordered.next

    def finish(self) -> dict[str, int]:
        """Write the ends and wait for the disk; returns the bytes of each stream. After `drain`."""
        return self._streams.finish()

    def changed(self) -> dict[str, str]:
        """See `Streams.changed`."""
        return self._streams.changed()

    def _write(self) -> None:
        try:
            while (task := self._tasks.get()) is not None:
                for first, last, ready in self._ordered.push(task.first, task.last, task):
                    self._streams.append(last - first, ready)
                if self._tasks.empty():
                    self._streams.flush()
            self._streams.flush()
        except BaseException as error:
            self.error = error
            self._wake()
