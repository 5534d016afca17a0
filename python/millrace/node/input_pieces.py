"""Pieces of an input in HDFS on the node that cuts them into records, and the bytes of its tasks.

A piece is read once, from the DataNode of this node if it has one: it is cut into records, and kept for the tasks of
these records as far as there is room. Tasks of other pieces read their bytes from HDFS. All of this runs in threads.
"""

from __future__ import annotations

import mmap
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

from millrace import _core
from millrace.core.errors import CorruptError, MillraceError
from millrace.core.input_pieces import CHUNK_BYTES, InputPieceRequest, PieceChunk, PieceIndex
from millrace.core.tasks import SlotTask, TaskId
from millrace.core.tool_use import FetchedFile, InputUse, StorageRead
from millrace.host import memory_limits
from millrace.node.batch_files import SpooledBatch
from millrace.storage import hdfs_blocks, locations
from millrace.storage.clients.base import FileLocation, FileStatus
from millrace.storage.record_starts import LOOK_AHEAD, LOOK_BACK, find_record_start

#: Bytes read at first to find the first record of a piece, or the end of its last one; more if that does not show it.
BORDER_BYTES = 16 << 10

#: Share of the available memory for pieces that are kept.
KEPT_SHARE = 0.125

#: Beginnings of problems that may be due to the end of what was read.
_CUT_OFF = ("the file ends within", "lines end with a carriage return alone")


class InputPieces:
    """The pieces of one input on one node.

    Args:
        file: The input in HDFS.
        item: Its use.
        folder: Folder for pieces; it is made.
        wake: Called when something is ready.
    """

    def __init__(self, file: FetchedFile, item: InputUse, folder: Path, wake: Callable[[], None]) -> None:
        self._file, self._item, self._folder, self._wake = file, item, folder, wake
        folder.mkdir()
        self._room = int(KEPT_SHARE * memory_limits.read_available_memory())
        #: Path, extent, and bytes not yet given to a task of each kept piece, by number.
        self._kept: dict[int, tuple[Path, int, int, int]] = {}
        self._distance = hdfs_blocks.HdfsLocality()
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._waiting: set[TaskId] = set()
        self._indexes: deque[PieceIndex] = deque()
        self._ready: deque[tuple[SlotTask, SpooledBatch]] = deque()
        self._cutters = ThreadPoolExecutor(1, "pieces")
        self._fetchers = ThreadPoolExecutor(2, "batches")
        #: The first error of a thread.
        self.error: BaseException | None = None
        #: Bytes read from HDFS.
        self.read = StorageRead()

    # For the loop of the node

    def request_index(self, request: InputPieceRequest) -> None:
        """Request the records of a piece; the answer is among those of ``pop_indexes``."""
        self._cutters.submit(self._report_errors, lambda: self._indexes.append(self._cut_piece(request)))

    def request_batch(self, task: SlotTask, batch: SpooledBatch) -> None:
        """Request the bytes of a batch in HDFS; it is among those of ``pop_ready`` when they are spooled."""
        with self._lock:
            self._waiting.add(task.id)
        self._fetchers.submit(self._report_errors, lambda: self._spool_batch(task, batch))

    def pop_indexes(self) -> list[PieceIndex]:
        """Return the pieces that were cut since the last call.

        Raises:
            MillraceError: A piece or batch cannot be read, or the input has changed.
        """
        if self.error:
            raise self.error
        return [self._indexes.popleft() for _ in range(len(self._indexes))]

    def pop_ready(self) -> list[tuple[SlotTask, SpooledBatch]]:
        """Return the tasks whose bytes have been spooled since the last call, without those that were withdrawn."""
        found = [self._ready.popleft() for _ in range(len(self._ready))]
        with self._lock:
            known = [(task, batch) for task, batch in found if task.id in self._waiting]
            self._waiting.difference_update(task.id for task, _ in known)
        return known

    def withdraw_tasks(self) -> list[TaskId]:
        """Forget the tasks that wait for their bytes, and return them."""
        with self._lock:
            found = [*self._waiting]
            self._waiting.clear()
        return found

    def close(self) -> None:
        """End the threads, and what they are reading."""
        self._closed.set()
        for threads in (self._cutters, self._fetchers):
            threads.shutdown(wait=True, cancel_futures=True)

    # In threads

    def _report_errors(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            self.error = self.error or error
        self._wake()

    def _cut_piece(self, request: InputPieceRequest) -> PieceIndex:
        path = self._folder / f"{request.number}.{request.start}"
        path.unlink(missing_ok=True)
        with closing(locations.open_location(self._file.place)) as location:
            start = self._find_start(location, request)
            if start is None:
                return PieceIndex(request.number)
            index = self._cut_records(location, path, request, start)
        self._keep_piece(path, index)
        return index

    def _find_start(self, location: FileLocation, request: InputPieceRequest) -> int | None:
        """Find where the first record of a piece begins."""
        if request.start is not None or not request.first:
            return request.start or 0
        form = self._item.format
        before = max(request.first - LOOK_BACK[form], 0)
        n_bytes = BORDER_BYTES
        while True:
            end = min(request.first + n_bytes, self._file.size)
            window = b"".join(self._stream_bytes(location, before, end))
            at = find_record_start(window, request.first - before, form, is_end=end == self._file.size)
            if at is not None:
                return before + at if before + at < request.last else None
            if end == self._file.size or end >= request.last + LOOK_AHEAD[form]:
                return None
            n_bytes *= 4

    def _cut_records(self, location: FileLocation, path: Path, request: InputPieceRequest, start: int) -> PieceIndex:
        """Write the records from ``start`` on to ``path``, up to the last one that begins in the piece, and index them."""
        ahead, n_border = LOOK_AHEAD[self._item.format], BORDER_BYTES
        end = start
        while True:
            new = min(request.last + ahead + n_border, self._file.size)
            self._append_bytes(location, path, end, new)
            end = new
            chunks, problem = self._read_chunks(path, request.last - start)
            total = sum(chunk.bytes for chunk in chunks)
            is_whole = total >= request.last - start and start + total + ahead <= end
            if is_whole and self._item.format == "lines":
                is_whole = _ends_line(path, total)
            may_go_on = not problem or problem.startswith(_CUT_OFF)
            if is_whole or end == self._file.size or not may_go_on:
                break
            n_border *= 4
        os.truncate(path, total)
        if nul := self._find_nul(path):
            return PieceIndex(request.number, start, (), nul)
        return PieceIndex(request.number, start, tuple(chunks), problem)

    def _read_chunks(self, path: Path, n_bytes: int) -> tuple[list[PieceChunk], str]:
        """Cut whole records of about ``n_bytes`` at the beginning of a file; return them, and a problem in words."""
        reader, scratch = _core.Reader([path], self._item.format), path.with_name(f"{path.name}.cut")
        chunks, total = list[PieceChunk](), 0
        try:
            while total < n_bytes:
                cut = reader.cut(scratch, 0, 0, min(CHUNK_BYTES, n_bytes - total))
                if cut is None:
                    break
                chunks.append(PieceChunk(cut.records, cut.bytes, cut.cost, cut.crc32c, cut.largest))
                total += cut.bytes
        except _core.RecordError as error:
            return chunks, str(error).removeprefix(f"{path}:").lstrip(":0123456789 ")
        finally:
            scratch.unlink(missing_ok=True)
        return chunks, ""

    def _find_nul(self, path: Path) -> str:
        if not (self._item.text and path.stat().st_size):
            return ""
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            has_nul = content.find(b"\0") >= 0
        return "there is a NUL byte: from there on the tool takes all for binary, which it does not see in parts" if has_nul else ""  # fmt: skip

    def _keep_piece(self, path: Path, index: PieceIndex) -> None:
        n_bytes = sum(chunk.bytes for chunk in index.chunks)
        with self._lock:
            held = sum(left for *_, left in self._kept.values())
            if index.start is not None and n_bytes and held + n_bytes <= self._room:
                self._kept[index.number] = path, index.start, index.start + n_bytes, n_bytes
                return
        path.unlink()

    def _spool_batch(self, task: SlotTask, batch: SpooledBatch) -> None:
        if task.id not in self._waiting:
            return
        if self._copy_kept_bytes(batch):
            publish_spooled_bytes(batch)
        else:
            assert batch.source
            with closing(locations.open_location(self._file.place)) as location, locate_part(batch).open("wb") as dest:
                for piece in self._stream_bytes(location, batch.source.first, batch.source.last):
                    dest.write(piece)
            publish_spooled_bytes(batch)
        self._ready.append((task, batch))

    def _copy_kept_bytes(self, batch: SpooledBatch) -> bool:
        """Copy the bytes of a batch from its piece, if that is kept; a piece whose tasks have all theirs is removed."""
        assert batch.source
        first, last, number = batch.source.first, batch.source.last, batch.source.piece
        with self._lock:
            piece, begin, end, left = self._kept.get(number, (Path(), 0, 0, 0))
            if not begin <= first < last <= end:
                return False
            source = piece.open("rb")  # it may be removed meanwhile
            left -= last - first
            self._kept[number] = piece, begin, end, left
            if left <= 0:
                del self._kept[number]
                piece.unlink()
        with source, locate_part(batch).open("wb") as dest:
            at = first - begin
            while at < last - begin:
                at += os.sendfile(dest.fileno(), source.fileno(), at, last - begin - at)
        return True

    def _append_bytes(self, location: FileLocation, path: Path, first: int, last: int) -> None:
        with path.open("ab") as file:
            for piece in self._stream_bytes(location, first, last):
                file.write(piece)

    def _stream_bytes(self, location: FileLocation, first: int, last: int) -> Iterator[bytes]:
        for piece in _stream_range(location, self._file, first, last, self._wait_open):
            self._wait_open(0.0)
            yield piece
        read = StorageRead(last - first, 0, self._distance.count_remote_bytes(self._file, [(first, last)]))
        with self._lock:
            self.read += read

    def _wait_open(self, seconds: float) -> None:
        """Wait, but not beyond the end of the run.

        Raises:
            MillraceError: It has ended.
        """
        if self._closed.wait(seconds):
            raise MillraceError(f"{self._file.place}: not read to its end, as the run has ended")


def _stream_range(
    location: FileLocation, file: FetchedFile, first: int, last: int, pause: Callable[[float], None] = time.sleep
) -> Iterator[bytes]:
    """Yield the bytes [first, last) of a remote file in pieces.

    Raises:
        MillraceError: They cannot be read, or the file has changed.
    """
    about = FileStatus(size=file.size, version=file.version, mtime_ns=file.mtime_ns)
    return (piece for _, piece in location.stream_with_retries([(first, last)], about, pause))


def fetch_batch(batch: SpooledBatch) -> None:
    """Spool the bytes of a batch in HDFS.

    Raises:
        MillraceError: They cannot be read, or the input has changed.
    """
    assert batch.source
    file, first, last = batch.source.file, batch.source.first, batch.source.last
    with closing(locations.open_location(file.place)) as location, locate_part(batch).open("wb") as dest:
        for piece in _stream_range(location, file, first, last):
            dest.write(piece)
    publish_spooled_bytes(batch)


def read_range(file: FetchedFile, first: int, last: int) -> bytes:
    """Read the bytes [first, last) of a remote file.

    Raises:
        MillraceError: They cannot be read, or the file has changed.
    """
    with closing(locations.open_location(file.place)) as location:
        return b"".join(_stream_range(location, file, first, last))


def locate_part(batch: SpooledBatch) -> Path:
    """Return the path for the bytes of a batch until they are whole."""
    return batch.spooled[0].with_name(f"{batch.spooled[0].name}.part")


def publish_spooled_bytes(batch: SpooledBatch) -> None:
    """Give the bytes of a batch their name, once they are known to be those that were cut.

    Raises:
        CorruptError: They are not.
    """
    content = locate_part(batch).read_bytes()
    if (len(content), _core.crc32c(content)) != batch.digests[0]:
        raise CorruptError(
            f"records {batch.first + 1} to {batch.last} are not what they were when they were cut",
            "restore the input, or start over with --fresh",
        )
    locate_part(batch).replace(batch.spooled[0])


def _ends_line(path: Path, n_bytes: int) -> bool:
    with path.open("rb") as file:
        return os.pread(file.fileno(), 1, n_bytes - 1) == b"\n"
