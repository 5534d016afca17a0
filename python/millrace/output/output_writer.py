"""Writer of outputs in input order, in a thread of its own.

A slow disk or pipe does not delay the slots.
"""

from __future__ import annotations

import queue
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, Protocol, TypeVar

import msgspec

from millrace import _core
from millrace.core.tasks import CommittedRecords, SliceTask, WholeTask, decode_task_kind, gather_slices
from millrace.output.output_streams import OutputStreams

Item = TypeVar("Item")


class ReorderBuffer(msgspec.Struct, Generic[Item]):
    """A buffer that delays items until all earlier ones have arrived."""

    next: int = 0
    _waiting: dict[int, tuple[int, Item]] = msgspec.field(default_factory=dict)

    def push(self, first: int, last: int, item: Item) -> Iterator[tuple[int, int, Item]]:
        """Add the extent ``[first, last)``; yield every (first, last, item) that is now in order."""
        self._waiting[first] = (last, item)
        while (found := self._waiting.pop(self.next, None)) is not None:
            begin, self.next = self.next, found[0]
            yield begin, found[0], found[1]
            if found[0] == begin:
                return  # the one batch of an empty input

    @property
    def waiting(self) -> int:
        """Return the number of delayed extents."""
        return len(self._waiting)


def select_effective_tasks(tasks: Iterable[_core.TaskRef]) -> list[CommittedRecords]:
    """Return the committed tasks that count, in input order: of each extent the first that is not quarantined.

    Tasks on fragments and ranks are not part of the output, and slices count only if all are there. An extent that
    overlaps an earlier one does not count: a node that was declared dead may have committed records that were then cut
    differently.
    """
    best: dict[int, CommittedRecords] = {}
    slices: dict[tuple[int, int, int], dict[int, _core.TaskRef]] = defaultdict(dict)
    for task in tasks:
        result: CommittedRecords = task
        match decode_task_kind(task.fragment):
            case WholeTask():
                pass
            case SliceTask(number, of):
                others = slices[task.first, task.last, of]
                others.setdefault(number, task)
                if len(others) < of:
                    continue
                result = gather_slices(others)
            case _:
                continue
        before = best.get(task.first)
        if before is None or (before.quarantined and not task.quarantined):
            best[task.first] = result
    reached, found = 0, list[CommittedRecords]()
    for first in sorted(best):
        if first >= reached:
            found.append(best[first])
            reached = best[first].last
    return found


class OutputWriter(Protocol):
    """Interface for writers of committed tasks: ``OrderedWriter``, or ``millrace.cluster.write.parallel_output``."""

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
