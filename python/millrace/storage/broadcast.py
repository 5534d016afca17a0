"""Broadcast of files from one process to all others: a chain, cut into pieces.

Each process receives every piece once and sends it once. The time is that of one copy over the slowest link, plus one
piece for each link, however long the chain. A received piece is forwarded, and written while it is still in the
processor's cache: by the receiving thread if copies are in memory, else, as a disk may block, by a thread of its own.
Another thread reads ahead. The transport is given as a ``BroadcastLink``; nothing here depends on it.
"""

from __future__ import annotations

import mmap
import os
import queue
import struct
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from millrace import _core
from millrace.core.errors import CorruptError
from millrace.host.file_lock import IN_MEMORY, find_filesystem_kind

#: Bytes of a piece; see ``bench/broadcast.py``.
PIECE_BYTES = 1 << 20

#: Error text and hint for a source that is written or replaced during the copy.
CHANGED = "it changed while it was copied to the nodes"
HINT = "leave databases alone while they are in use; then type the same command again"

#: Pieces that one process buffers at a time.
MAX_PIECES_IN_FLIGHT = 4


class PieceRequest(Protocol):
    """A transfer of one piece in flight."""

    def Test(self) -> bool: ...  # noqa: N802 - as mpi4py names it


class BroadcastLink(Protocol):
    """The neighbours of this process in the chain. Pieces arrive in the order in which they are sent."""

    def receive(self, buffer: memoryview) -> PieceRequest: ...
    def send(self, buffer: memoryview) -> PieceRequest: ...


@dataclass(frozen=True)
class _BroadcastPiece:
    """Bytes [offset, offset + length) of file ``index``; index -1: the checksum of all, the last piece."""

    index: int
    offset: int
    length: int


def cut_into_pieces(sizes: Sequence[int], piece: int = PIECE_BYTES) -> list[_BroadcastPiece]:
    """Cut files of these sizes into pieces; the checksum is the last piece.

    >>> [(each.index, each.offset, each.length) for each in cut_into_pieces([5, 3], 4)]
    [(0, 0, 4), (0, 4, 1), (1, 0, 3), (-1, 0, 4)]
    """
    pieces = [
        _BroadcastPiece(k, at, min(piece, size - at)) for k, size in enumerate(sizes) for at in range(0, size, piece)
    ]
    return [*pieces, _BroadcastPiece(-1, 0, 4)]


class BroadcastRelay:
    """The part of one process in the broadcast.

    Args:
        sizes: Bytes of each file.
        link: The neighbours; None: there are none.
        sources: Paths of the files, for the first process; the others receive.
        changed: Returns the path of a source that has changed, or an empty text; called when all sources are read.
        targets: Descriptors of this process's own copies, None for those that it does not keep.
        last: Whether this process is the end of the chain.
        in_memory: Whether the targets are in memory, where writing never blocks.
    """

    def __init__(
        self, sizes: Sequence[int], link: BroadcastLink | None, targets: Sequence[int | None], *, sources: Sequence[str] = (),
        changed: Callable[[], str] = str, last: bool = False, in_memory: bool = False, piece: int = PIECE_BYTES, depth: int = MAX_PIECES_IN_FLIGHT,
    ) -> None:  # fmt: skip
        self._pieces = cut_into_pieces(sizes, piece)
        self._link, self._last = link, last
        most = max(each.length for each in self._pieces)
        self._buffers = _allocate_buffers(min(depth, len(self._pieces)), most)
        self._step = threading.Event()
        self._reader = _PieceReader(self._pieces, self._buffers, self._step, sources, changed) if sources else None
        self._writer = _PieceWriter(
            self._pieces, self._buffers, self._step, targets, check=not sources, threaded=not in_memory
        )
        #: Counts of pieces: with a buffer, received, and forwarded.
        self._begun = self._here = self._sent = 0
        self._coming: deque[PieceRequest] = deque()
        self._going: deque[PieceRequest] = deque()

    @property
    def n_steps(self) -> int:
        """Steps done so far; grows as long as the broadcast makes progress."""
        return self._here + self._sent + self._writer.written

    @property
    def is_done(self) -> bool:
        """Whether every piece was forwarded, and this process's own copies are complete or given up."""
        return min(self._sent, self._writer.written) == len(self._pieces)

    @property
    def copy_error(self) -> str:
        """Why this process's own copies are incomplete; empty: they are complete."""
        return self._writer.error

    def make_progress(self) -> bool:
        """Take the steps possible without blocking, with at most one piece; return whether there were any.

        Raises:
            OSError: A source cannot be read.
            CorruptError: A source has changed.
        """
        before = self.n_steps, self._begun
        free = min(self._sent, self._writer.written) + len(self._buffers)
        while self._begun < min(len(self._pieces), free):
            self._start_piece(self._begun)
            self._begun += 1
        while self._going and self._going[0].Test():
            self._going.popleft()
            self._sent += 1
        if self._coming and self._coming[0].Test():
            self._coming.popleft()
            self._here += 1
            self._forward_piece(self._here - 1)
        return before != (self.n_steps, self._begun)

    def wait_for_progress(self, timeout_seconds: float) -> None:
        """Wait until reading or writing has progressed, at most so long. Receiving a piece does not end the wait."""
        self._step.wait(timeout_seconds)
        self._step.clear()

    def close(self) -> None:
        """End the threads. Transfers still in flight end with the process."""
        if self._reader:
            self._reader.close()
        self._writer.close()

    def _get_buffer(self, number: int) -> memoryview:
        return self._buffers[number % len(self._buffers)][: self._pieces[number].length]

    def _start_piece(self, number: int) -> None:
        if self._reader:
            self._coming.append(self._reader.read_piece(number))
        else:
            assert self._link
            self._coming.append(self._link.receive(self._get_buffer(number)))

    def _forward_piece(self, number: int) -> None:
        if self._last:
            self._sent += 1
        else:
            assert self._link
            self._going.append(self._link.send(self._get_buffer(number)))
        self._writer.submit_piece(number)


def _allocate_buffers(n: int, size: int) -> list[memoryview]:
    """Allocate memory for ``n`` pieces of at most ``size`` bytes, in few large pages where the system has them.

    A copy between two processes of a node goes through the kernel, which looks up each page.
    """
    memory = mmap.mmap(-1, n * size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):
        memory.madvise(mmap.MADV_HUGEPAGE)
    whole = memoryview(memory)
    return [whole[at : at + size] for at in range(0, n * size, size)]


class _PieceWorker:
    """A handler of pieces, in order; in a thread of its own if ``threaded``."""

    def __init__(
        self, pieces: Sequence[_BroadcastPiece], buffers: Sequence[memoryview], step: threading.Event, name: str,
        *, threaded: bool = True,
    ) -> None:  # fmt: skip
        self._pieces, self._buffers, self._step = pieces, buffers, step
        self._waiting: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._closed = False
        #: Checksum of all pieces so far: CRC-32C over the previous checksum and that of the piece.
        self._sum = 0
        self._thread = threading.Thread(target=self._run_thread, name=name, daemon=True) if threaded else None
        if self._thread:
            self._thread.start()

    def submit_piece(self, number: int) -> None:
        """Handle this piece: now without a thread, else soon."""
        if self._thread:
            self._waiting.put(number)
        else:
            self._process_piece(number)

    def close(self) -> None:
        self._closed = True
        if self._thread:
            self._waiting.put(None)
            self._thread.join()

    def _run_thread(self) -> None:
        while (number := self._waiting.get()) is not None and not self._closed:
            self._process_piece(number)
            self._step.set()

    def _process_piece(self, number: int) -> None:
        piece = self._pieces[number]
        self._handle_piece(piece, self._buffers[number % len(self._buffers)][: piece.length])

    def _handle_piece(self, piece: _BroadcastPiece, buffer: memoryview) -> None:
        raise NotImplementedError

    def _update_checksum(self, buffer: memoryview) -> None:
        self._sum = _core.crc32c(struct.pack("<II", self._sum, _core.crc32c(buffer)))


class _PieceReader(_PieceWorker):
    """A reader ahead: cached bytes at once, as a thread costs more than the copy; the rest in a thread."""

    def __init__(
        self, pieces: Sequence[_BroadcastPiece], buffers: Sequence[memoryview], step: threading.Event, sources: Sequence[str],
        changed: Callable[[], str],
    ) -> None:  # fmt: skip
        self._sources, self._changed = sources, changed
        self._open = -1, -1
        self._in_memory = False
        self._n = 0
        self._error: BaseException | None = None
        super().__init__(pieces, buffers, step, "read ahead")

    def read_piece(self, number: int) -> PieceRequest:
        if not self._try_read_cached(number):
            self.submit_piece(number)
        return _PendingRead(self, number)

    def _try_read_cached(self, number: int) -> bool:
        piece = self._pieces[number]
        if self._n < number or self._open[0] != piece.index:
            return False  # the thread is busy, or has to open the file
        if not self._in_memory and not hasattr(os, "RWF_NOWAIT"):
            return False  # this Python was built with old headers of the C library
        buffer = self._buffers[number % len(self._buffers)][: piece.length]
        try:
            if os.preadv(self._open[1], [buffer], piece.offset, 0 if self._in_memory else os.RWF_NOWAIT) < piece.length:
                return False
        except OSError:
            return False  # it would block, or the filesystem does not support the flag
        self._update_checksum(buffer)
        self._n += 1
        return True

    def has_read(self, number: int) -> bool:
        if self._error:
            raise self._error
        return self._n > number

    def close(self) -> None:
        super().close()
        if self._open[1] >= 0:
            os.close(self._open[1])

    def _handle_piece(self, piece: _BroadcastPiece, buffer: memoryview) -> None:
        try:
            if piece.index < 0:
                # Without the checksum no node publishes its copy of these bytes.
                if path := self._changed():
                    raise CorruptError(f"{path}: {CHANGED}", HINT)
                struct.pack_into("<I", buffer, 0, self._sum)
            else:
                self._read_from_file(piece, buffer)
                self._update_checksum(buffer)
        except (OSError, CorruptError) as error:
            self._error = error
        else:
            self._n += 1

    def _read_from_file(self, piece: _BroadcastPiece, buffer: memoryview) -> None:
        path = self._sources[piece.index]
        if self._open[0] != piece.index:
            if self._open[1] >= 0:
                os.close(self._open[1])
            self._open = piece.index, os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            os.posix_fadvise(self._open[1], 0, 0, os.POSIX_FADV_SEQUENTIAL)
            self._in_memory = find_filesystem_kind(Path(path)) in IN_MEMORY
        done = 0
        while done < piece.length:
            n = os.preadv(self._open[1], [buffer[done:]], piece.offset + done)
            if n == 0:
                raise CorruptError(f"{path}: {CHANGED}", HINT)
            done += n


@dataclass(frozen=True)
class _PendingRead:
    reader: _PieceReader
    number: int

    def Test(self) -> bool:  # noqa: N802 - as mpi4py names it
        return self.reader.has_read(self.number)


class _PieceWriter(_PieceWorker):
    """The writer of this process's copies, which also compares the checksum."""

    def __init__(
        self, pieces: Sequence[_BroadcastPiece], buffers: Sequence[memoryview], step: threading.Event, targets: Sequence[int | None],
        *, check: bool, threaded: bool,
    ) -> None:  # fmt: skip
        self._targets, self._check = targets, check
        #: Pieces whose buffer is free again.
        self.written = 0
        self.error = ""
        super().__init__(pieces, buffers, step, "write copies", threaded=threaded)

    def _handle_piece(self, piece: _BroadcastPiece, buffer: memoryview) -> None:
        if not self.error:  # after an error pieces are still forwarded
            try:
                self._write_piece(piece, buffer)
            except OSError as error:
                self.error = error.strerror or str(error)
        self.written += 1

    def _write_piece(self, piece: _BroadcastPiece, buffer: memoryview) -> None:
        if piece.index < 0:
            if self._check and struct.unpack("<I", buffer)[0] != self._sum:
                self.error = "bytes were changed on the way"
            return
        if self._check:
            self._update_checksum(buffer)
        target = self._targets[piece.index]
        done = 0
        while target is not None and done < piece.length:
            done += os.pwrite(target, buffer[done:], piece.offset + done)
