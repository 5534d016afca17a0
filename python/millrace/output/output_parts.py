"""Writers of outputs: in input order by one process, or as parts at given offsets of a file that others write, too.

The writer in input order has a thread of its own, so a slow disk or pipe does not delay the slots.
"""

from __future__ import annotations

import queue
import stat
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Generic, NamedTuple, Protocol, TypeVar

import msgspec

from millrace import _core
from millrace.core.errors import CorruptError
from millrace.core.tasks import CommittedRecords, SliceTask, WholeTask, decode_task_kind, gather_slices
from millrace.core.tool_use import OutputUse
from millrace.output.output_streams import OutputStreams, is_replaceable, resolve_destination

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


def drop_unframed_tasks(tasks: Iterable[_core.TaskRef], forms: Mapping[str, int]) -> list[_core.TaskRef]:
    """Leave out the result of the first batch if it was computed under other paths: it frames the output.

    Args:
        forms: See ``RunManifest.frame_forms``.
    """
    found = list(tasks)
    while forms and (odd := _find_foreign_frame(select_effective_tasks(found), forms)):
        found = [
            task
            for task in found
            if not (task.first <= odd.first < task.last and Path(task.values[0]).name in forms)
            or not isinstance(decode_task_kind(task.fragment), WholeTask | SliceTask)
        ]
    return found


def _find_foreign_frame(tasks: Sequence[CommittedRecords], forms: Mapping[str, int]) -> CommittedRecords | None:
    """Return the first result of all if it has a form of the command of its own; None: it has not, or is yet to come."""
    reached = 0
    for task in tasks:
        if task.first > reached:
            return None
        if task.blocks:
            return task if task.blocks[0].journal.name in forms else None
        reached = task.last
    return None


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


#: Unsynced bytes of one output, and seconds since the last sync, above which it is synced even while there is more to
#: write.
MAX_UNSYNCED_BYTES = 256 << 20
MAX_UNSYNCED_SECONDS = 10.0

#: Blocks of this size and more are not written collectively, so that no process must hold one in memory.
MIN_LARGE_BLOCK_BYTES = 32 << 20

#: Largest part that is prefetched before its release; larger ones are not, for the same reason.
MAX_PREFETCHED_BYTES = 64 << 20

#: Seconds after the coordinator's last message in which parts are written. Later it may have reassigned them.
LEASE_SECONDS = 10.0


class OutputPart(NamedTuple):
    """Blocks to write, each at its offset."""

    stream: int
    number: int
    pieces: Sequence[tuple[int, _core.OutputPiece]]
    #: Whether to fetch the bytes now, and write them at ``ExtentWriter.release_part``.
    held: bool = False
    #: Whether all processes of the job write their parts in one collective call.
    together: bool = False


class ReleasePart(NamedTuple):
    """Command to write a held part."""

    stream: int
    number: int


class PreparedPart(NamedTuple):
    """A part for a collective write, as bytes at their offsets."""

    stream: int
    number: int
    pieces: list[tuple[int, bytes]]


class PartsWritten(NamedTuple):
    """The (stream, number) of parts that are written, and of parts that are synced."""

    parts: list[tuple[int, int]]
    safe: list[tuple[int, int]]


def explain_lone_writer(output: OutputUse, cwd: Path, run_dir: Path) -> str:
    """Return the reason why only the coordinator can write an output; empty if any process may write parts of it.

    All processes must see the same file as the coordinator, so it must be on the shared filesystem of the run
    directory. A process that was declared dead may write once more, after the next start of the run. That is harmless
    where all starts write the same bytes; where two runs of the tool differ, each start must have a file of its own.
    """
    path = resolve_destination(output, cwd)
    if output.layout != "file":
        return "each of its files is written as a whole"
    if not _core.is_separable(output.join):
        return "its parts cannot be joined one by one"
    if not path or not path.is_file():
        return "it is not a regular file"
    if output.volatile and not is_replaceable(path):
        return "two runs of the tool differ in it, and a start that resumes cannot replace the file"
    if path.stat().st_dev != run_dir.stat().st_dev:
        return "it is on another filesystem than the run directory"
    return ""


def map_output_paths(outputs: Sequence[OutputUse], streams: Iterable[int], cwd: Path) -> dict[int, Path]:
    """Return the paths of these outputs by stream, without those to standard output."""
    found = {stream: resolve_destination(outputs[stream], cwd) for stream in streams}
    return {stream: path for stream, path in found.items() if path}


def read_inode_number(path: Path, run_dir: Path) -> int | None:
    """Return the inode number of a regular file on the filesystem of the run directory; None: there is none."""
    try:
        found = path.stat()
        return found.st_ino if stat.S_ISREG(found.st_mode) and found.st_dev == run_dir.stat().st_dev else None
    except OSError:
        return None


class ExtentWriter:
    """A thread that writes parts; ``error`` is set on failure, and then nothing more is written.

    Args:
        inodes: Inode number of each output: another file at its path is of a later start, and is not written.
        lasting: Whether each part must be synced before it counts as written, because other machines see writes late
            (``millrace.cluster.journal_visibility.is_lazy_filesystem``).
        seconds: Longest time that a written part stays unsynced.
        wake: Called, in the thread, when ``ExtentWriter.pop_written`` or ``ExtentWriter.pop_prepared`` has items to return.
    """

    def __init__(
        self,
        outputs: Sequence[OutputUse],
        cwd: Path,
        inodes: Mapping[int, int],
        *,
        lasting: bool,
        seconds: float,
        wake: Callable[[], None],
    ) -> None:
        self.error: BaseException | None = None
        self._outputs, self._cwd, self._inodes = outputs, cwd, inodes
        self._lasting, self._seconds, self._wake = lasting, seconds, wake
        self._files: dict[int, _core.PartWriter] = {}
        self._leased: float | None = None
        self._unsafe: list[tuple[int, int]] = []
        self._synced = time.monotonic()
        self._ready: deque[PartsWritten] = deque()
        self._prepared: deque[PreparedPart] = deque()
        #: Held parts, and their prefetched bytes.
        self._held: dict[ReleasePart, tuple[OutputPart, _core.Gathered | None]] = {}
        #: Parts, releases, and (stream, number) of parts that were written collectively; None ends the thread.
        self._parts: queue.SimpleQueue[OutputPart | ReleasePart | tuple[int, int] | None] = queue.SimpleQueue()
        self._closing = False
        self._thread = threading.Thread(target=self._serve_parts, name="parts", daemon=True)
        self._thread.start()

    def add_part(self, part: OutputPart) -> None:
        self._parts.put(part)

    def release_part(self, stream: int, number: int) -> None:
        """Write a held part."""
        self._parts.put(ReleasePart(stream, number))

    def renew_lease(self, seconds: float) -> None:
        """Allow writes for ``seconds`` from now, and no longer; without a call, for ever."""
        self._leased = seconds
        for file in [*self._files.values()]:
            file.allow(seconds)

    def pop_written(self) -> list[PartsWritten]:
        """Return the reports since the last call."""
        found = []
        while self._ready:
            found.append(self._ready.popleft())
        return found

    def pop_prepared(self) -> list[PreparedPart]:
        """Return the parts to write collectively now; the caller reports each by ``ExtentWriter.confirm_written``."""
        found = []
        while self._prepared:
            found.append(self._prepared.popleft())
        return found

    def confirm_written(self, stream: int, number: int) -> None:
        """Record that a part was written collectively."""
        self._parts.put((stream, number))

    def close(self) -> None:
        """End the thread: drop waiting parts, and sync the written ones.

        Raises:
            OSError: The sync failed.
        """
        self._closing = True
        self._parts.put(None)
        self._thread.join()
        if self.error:
            raise self.error
        self._sync_files()
        self._files.clear()  # an open file would keep the folder on a network filesystem

    def _serve_parts(self) -> None:
        try:
            while True:
                try:
                    part = self._parts.get(timeout=self._seconds if self._unsafe else None)
                except queue.Empty:
                    self._report_parts([], self._sync_files())
                    continue
                if part is None or self._closing:
                    return
                if isinstance(part, ReleasePart):
                    self._write_held_part(part)
                elif not isinstance(part, OutputPart):
                    self._record_written(part)
                elif part.together:
                    self._prepare_part(part)
                elif part.held:
                    small = sum(block.length for _, block in part.pieces) <= MAX_PREFETCHED_BYTES
                    fetched = self._open_file(part.stream).gather(part.pieces) if small else None
                    self._held[ReleasePart(part.stream, part.number)] = part, fetched
                else:
                    self._open_file(part.stream).write(part.pieces)
                    self._record_written((part.stream, part.number))
        except BaseException as error:
            self.error = CorruptError(str(error)) if isinstance(error, _core.CorruptJournal) else error
            self._wake()

    def _write_held_part(self, which: ReleasePart) -> None:
        part, fetched = self._held.pop(which)
        if fetched:
            self._open_file(part.stream).write_gathered(fetched)
        else:
            self._open_file(part.stream).write(part.pieces)
        self._record_written((part.stream, part.number))

    def _prepare_part(self, part: OutputPart) -> None:
        self._open_file(part.stream).write(
            [(at, block) for at, block in part.pieces if block.length >= MIN_LARGE_BLOCK_BYTES]
        )
        small = [(at, block) for at, block in part.pieces if block.length < MIN_LARGE_BLOCK_BYTES]
        gathered = self._open_file(part.stream).gather(small)
        self._prepared.append(PreparedPart(part.stream, part.number, gathered.pieces))
        self._wake()

    def _record_written(self, key: tuple[int, int]) -> None:
        file = self._open_file(key[0])
        self._unsafe.append(key)
        if self._lasting:
            self._report_parts([key], self._sync_files())
            self._files.clear()  # reopen for the next part, to see writes of other machines
        elif file.unsynced > MAX_UNSYNCED_BYTES or time.monotonic() - self._synced > MAX_UNSYNCED_SECONDS:
            self._report_parts([key], [])  # at once, as the next part waits for it
            self._report_parts([], self._sync_files())
        else:
            self._report_parts([key], [])

    def _open_file(self, stream: int) -> _core.PartWriter:
        if stream not in self._files:
            path = resolve_destination(self._outputs[stream], self._cwd)
            assert path  # see ``explain_lone_writer``
            file = _core.PartWriter(str(path), self._outputs[stream].join)
            if file.inode != self._inodes[stream]:
                raise CorruptError(f"{path}: is another file now", "the same command resumes")
            if self._leased is not None:
                file.allow(self._leased)
            self._files[stream] = file
        return self._files[stream]

    def _sync_files(self) -> list[tuple[int, int]]:
        for file in self._files.values():
            file.sync()
        self._synced = time.monotonic()
        safe, self._unsafe = self._unsafe, []
        return safe

    def _report_parts(self, written: list[tuple[int, int]], safe: list[tuple[int, int]]) -> None:
        self._ready.append(PartsWritten(written, safe))
        self._wake()
