"""Parts of an output, written by whichever process is told to: at given places of a file that others write too."""

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
from millrace.blocks import views
from millrace.errors import CorruptError
from millrace.model import OutputUse
from millrace.output.streams import destination

#: Written bytes of one output that are brought to the disk even while there is more to write, and seconds after which
#: the same is done.
SYNC_BYTES = 256 << 20
SYNC_SECONDS = 10.0

#: Blocks of this size and more are not written together with others: no process has to hold one in its memory.
LARGE_BYTES = 32 << 20

#: Bytes of a part that is fetched before its turn comes; a larger one is not, for the same reason.
MOST_FETCHED_BYTES = 64 << 20

#: Seconds after the coordinator was last heard in which parts are written. Later it may have given them to another.
LEASE_SECONDS = 10.0


class Part(NamedTuple):
    """Write these blocks, each at its offset."""

    stream: int
    number: int
    pieces: Sequence[tuple[int, _core.BlockRef]]
    #: Fetch the bytes, and write them when `ExtentWriter.release` says so.
    held: bool = False
    #: All processes of the job are told of a part, to write them together.
    together: bool = False


class Release(NamedTuple):
    """The turn of a part that was held has come."""

    stream: int
    number: int


class Prepared(NamedTuple):
    """A part that is to be written together with others', as bytes at their offsets."""

    stream: int
    number: int
    pieces: list[tuple[int, bytes]]


class Written(NamedTuple):
    """What became of parts: (stream, number) of those that are written, and of those that are on disk by now."""

    parts: list[tuple[int, int]]
    safe: list[tuple[int, int]]


def why_alone(output: OutputUse, cwd: Path, run_dir: Path) -> str:
    """Why the coordinator alone must write an output; empty if any process of the job may write parts of it.

    Whoever writes must have the file in front of him that the coordinator has: so it is to be on the filesystem of the
    run directory, which all share. And a process that is taken for dead may write once more: so what it writes may
    not depend on who ran the tool when.
    """
    path = destination(output, cwd)
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


def paths_of(outputs: Sequence[OutputUse], streams: Iterable[int], cwd: Path) -> dict[int, Path]:
    """Where these outputs are; those that are no files are left out."""
    found = {stream: destination(outputs[stream], cwd) for stream in streams}
    return {stream: path for stream, path in found.items() if path}


def number_of(path: Path, run_dir: Path) -> int | None:
    """What tells the file at ``path`` from all others on the filesystem of the run directory; None: it is not there."""
    try:
        found = path.stat()
        return found.st_ino if stat.S_ISREG(found.st_mode) and found.st_dev == run_dir.stat().st_dev else None
    except OSError:
        return None


class ExtentWriter:
    """Writes parts in a thread; ``error`` is set if that fails, and then nothing more is written.

    Args:
        lasting: Whether each part must be on disk before it counts as written, because what one machine writes is
            seen late by others (`millrace.cluster.journal_visibility.is_lazy`).
        seconds: Longest time that a written part waits for the disk.
        wake: Called when there is something to `take`; from the thread.
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
        self._ready: deque[Written] = deque()
        self._prepared: deque[Prepared] = deque()
        #: Parts whose turn has not come, and their bytes.
        self._held: dict[Release, tuple[Part, _core.Gathered | None]] = {}
        #: Parts, and (stream, number) of those that were written together.
        self._parts: queue.SimpleQueue[Part | Release | tuple[int, int] | None] = queue.SimpleQueue()
        self._closing = False
        self._thread = threading.Thread(target=self._serve, name="parts", daemon=True)
        self._thread.start()

    def put(self, part: Part) -> None:
        self._parts.put(part)

    def release(self, stream: int, number: int) -> None:
        """Write a part that was held."""
        self._parts.put(Release(stream, number))

    def allow(self, seconds: float) -> None:
        """Write for so many seconds from now, and no longer; without it, for ever."""
        self._leased = seconds
        for file in [*self._files.values()]:
            file.allow(seconds)

    def take(self) -> list[Written]:
        """What there is to tell."""
        found = []
        while self._ready:
            found.append(self._ready.popleft())
        return found

    def take_prepared(self) -> list[Prepared]:
        """What is to be written together now: by the caller, who says so with `wrote`."""
        found = []
        while self._prepared:
            found.append(self._prepared.popleft())
        return found

    def wrote(self, stream: int, number: int) -> None:
        """A part was written together with the others'."""
        self._parts.put((stream, number))

    def close(self) -> None:
        """End the thread; what waits is dropped, what was written is on disk when this returns.

        Raises:
            OSError: It could not be brought there.
        """
        self._closing = True
        self._parts.put(None)
        self._thread.join()
        if self.error:
            raise self.error
        self._sync()
        self._files.clear()  # a network filesystem keeps the folder of a journal that is open

    def _serve(self) -> None:
        try:
            while True:
                try:
                    part = self._parts.get(timeout=self._seconds if self._unsafe else None)
                except queue.Empty:
                    self._tell([], self._sync())
                    continue
                if part is None or self._closing:
                    return
                if isinstance(part, Release):
                    self._release(part)
                elif not isinstance(part, Part):
                    self._written(part)
                elif part.together:
                    self._prepare(part)
                elif part.held:
                    small = sum(block.length for _, block in part.pieces) <= MOST_FETCHED_BYTES
                    fetched = self._file(part.stream).gather(part.pieces) if small else None
                    self._held[Release(part.stream, part.number)] = part, fetched
                else:
                    self._file(part.stream).write(part.pieces)
                    self._written((part.stream, part.number))
        except BaseException as error:
            self.error = CorruptError(str(error)) if isinstance(error, _core.CorruptJournal) else error
            self._wake()

    def _release(self, which: Release) -> None:
        part, fetched = self._held.pop(which)
        if fetched:
            self._file(part.stream).write_gathered(fetched)
        else:
            self._file(part.stream).write(part.pieces)
        self._written((part.stream, part.number))

    def _prepare(self, part: Part) -> None:
        self._file(part.stream).write([(at, block) for at, block in part.pieces if block.length >= LARGE_BYTES])
        small = [(at, block) for at, block in part.pieces if block.length < LARGE_BYTES]
        with views([block for _, block in small]) as contents:
            pieces = [(at, bytes(content)) for (at, _), content in zip(small, contents, strict=True)]
        self._prepared.append(Prepared(part.stream, part.number, pieces))
        self._wake()

    def _written(self, key: tuple[int, int]) -> None:
        file = self._file(key[0])
        self._unsafe.append(key)
        if self._lasting:
            self._tell([key], self._sync())
            self._files.clear()  # the next one may have to look anew at what others have written
        elif file.unsynced > SYNC_BYTES or time.monotonic() - self._synced > SYNC_SECONDS:
            self._tell([key], [])  # at once, as the next part waits for it
            self._tell([], self._sync())
        else:
            self._tell([key], [])

    def _file(self, stream: int) -> _core.PartWriter:
        if stream not in self._files:
            path = destination(self._outputs[stream], self._cwd)
            assert path  # see why_alone
            self._files[stream] = _core.PartWriter(str(path))
            if self._leased is not None:
                self._files[stream].allow(self._leased)
        return self._files[stream]

    def _sync(self) -> list[tuple[int, int]]:
        for file in self._files.values():
            file.sync()
        self._synced = time.monotonic()
        safe, self._unsafe = self._unsafe, []
        return safe

    def _tell(self, written: list[tuple[int, int]], safe: list[tuple[int, int]]) -> None:
        self._ready.append(Written(written, safe))
        self._wake()
