"""Parts of an output, written by any process at given offsets of a file that other processes write too."""

from __future__ import annotations

import queue
import stat
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from millrace import _core
from millrace.core.errors import CorruptError
from millrace.core.journal_blocks import map_blocks
from millrace.core.tool_use import OutputUse
from millrace.output.output_streams import resolve_destination

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
    pieces: Sequence[tuple[int, _core.BlockRef]]
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
    directory. A process that was declared dead may write once more, so the bytes may not depend on which process ran
    the tool.
    """
    path = resolve_destination(output, cwd)
    if output.layout != "file":
        return "each of its files is written as a whole"
    if output.join != "concat":
        return "it is more than its parts one after the other"
    if output.volatile:
        return "two runs of the tool differ in it"
    if not path or not path.is_file():
        return "it is not a regular file"
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
        lasting: Whether each part must be synced before it counts as written, because other machines see writes late
            (``millrace.cluster.journal_visibility.is_lazy_filesystem``).
        seconds: Longest time that a written part stays unsynced.
        wake: Called, in the thread, when ``ExtentWriter.pop_written`` or ``ExtentWriter.pop_prepared`` has items to return.
    """

    def __init__(
        self, outputs: Sequence[OutputUse], cwd: Path, *, lasting: bool, seconds: float, wake: Callable[[], None]
    ) -> None:
        self.error: BaseException | None = None
        self._outputs, self._cwd, self._lasting, self._seconds, self._wake = outputs, cwd, lasting, seconds, wake
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
        with map_blocks([block for _, block in small]) as contents:
            pieces = [(at, bytes(content)) for (at, _), content in zip(small, contents, strict=True)]
        self._prepared.append(PreparedPart(part.stream, part.number, pieces))
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
            self._files[stream] = _core.PartWriter(str(path))
            if self._leased is not None:
                self._files[stream].allow(self._leased)
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
