"""An input in HDFS that the nodes cut into records, piece by piece, where its bytes lie: the coordinator's side.

The coordinator asks the holders of a piece for its records. A piece counts only if it begins where the one before
ends: the first begins with the file, so by induction all records are those of the file read from its beginning. A
piece that begins elsewhere, as its node was misled, is cut again from there.

The bytes of a batch stay in HDFS, unless it is much shorter than what a node describes at once: then the coordinator reads
and cuts some of them itself.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import msgspec

from millrace import _core
from millrace.core.errors import MillraceError
from millrace.core.input_pieces import PIECE_BYTES, InputPieceRequest, PieceChunk, PieceIndex, combine_crc32c
from millrace.core.tool_use import FetchedFile, InputRange, InputUse, RemoteFileView, StorageRead
from millrace.node.batch_files import PieceCut, open_reader
from millrace.node.input_pieces import read_range
from millrace.storage.hdfs_blocks import HdfsLocality

#: Pieces for each rank that are cut before they are needed.
AHEAD = 4

#: A batch may be so many times as long as asked, rather than be cut by the coordinator.
MAX_LONGER = 2


class _PlacedChunk(PieceChunk, frozen=True, array_like=True):
    """Records of a piece, and where they are."""

    first: int = 0
    piece: int = 0


class PieceInput:
    """The input, with the interface of a ``millrace._core.Reader`` for the feeder's thread.

    Args:
        extents: Half-open extents of the pieces, in order.
        spool: Folder for what the coordinator cuts itself.
    """

    header, compression, has_members = b"", "", False

    def __init__(self, file: FetchedFile, item: InputUse, extents: Sequence[tuple[int, int]], spool: Path) -> None:
        self._file, self._item, self._extents = file, item, extents
        self._opened = spool / "opened"
        self.total: int | None = file.size
        #: Offset of the next record.
        self.offset = 0
        self._changed = threading.Condition()
        #: Pieces to be asked for, and the rank that was asked, by number.
        self._wanted = deque(
            InputPieceRequest(number, first, last, None if first else 0)
            for number, (first, last) in enumerate(extents, 1)
        )
        self._asked: dict[int, tuple[int, InputPieceRequest]] = {}
        #: Answers by number, until they are taken; and how many pieces each rank was asked for.
        self._indexes: dict[int, PieceIndex] = {}
        self._loads: Counter[int] = Counter()
        self._holders: Mapping[int, Collection[int]] = {}
        #: Pieces taken, and the end of the last one's records.
        self._n_taken, self._reached = 0, 0
        self._chunks: deque[_PlacedChunk] = deque()
        #: The records that the coordinator cuts itself, how many are left of them, and where they end.
        self._reader: _core.Reader | None = None
        self._n_left, self._reader_end = 0, 0
        self._distance = HdfsLocality()
        #: Bytes that the coordinator has read from HDFS to cut them itself.
        self.read = StorageRead()

    # For the loop of the coordinator

    def set_holders(self, holders: Mapping[int, Collection[int]]) -> None:
        """Set the ranks whose nodes hold each piece."""
        self._holders = holders

    @property
    def busy_ranks(self) -> set[int]:
        """The ranks that cut pieces now."""
        return {rank for rank, _ in self._asked.values()}

    @property
    def has_requests(self) -> bool:
        """Whether pieces are still to be asked for."""
        return bool(self._wanted)

    def pop_requests(self, ranks: Collection[int]) -> list[tuple[int, InputPieceRequest]]:
        """Return the pieces to be cut now, each with the rank to ask: a holder, of these the one with the fewest."""
        found = []
        with self._changed:
            while self._wanted and self._wanted[0].number <= self._n_taken + AHEAD * len(ranks):
                request = self._wanted.popleft()
                living = [rank for rank in self._holders.get(request.number, ()) if rank in ranks]
                rank = min(living or ranks, key=lambda rank: (self._loads[rank], rank))
                self._loads[rank] += 1
                self._asked[request.number] = rank, request
                found.append((rank, request))
        return found

    def add_index(self, rank: int, index: PieceIndex) -> None:
        """Add the answer of a rank."""
        with self._changed:
            if self._asked.get(index.number, (None,))[0] == rank:
                del self._asked[index.number]
                self._indexes[index.number] = index
                self._changed.notify()

    def drop_rank(self, rank: int) -> None:
        """Ask others for what a lost rank was asked for."""
        with self._changed:
            lost = sorted(number for number, (asked, _) in self._asked.items() if asked == rank)
            self._wanted.extendleft(self._asked.pop(number)[1] for number in reversed(lost))

    # For the feeder

    def cut(self, dest: str, max_records: int, max_cost: int, max_bytes: int) -> _core.Batch | PieceCut | None:
        """Cut a batch, as ``millrace._core.Reader.cut``; its bytes may stay in HDFS."""
        if not self._reader:
            chunk = self._peek_chunk()
            if chunk is None:
                return None
            if cut := self._take_chunks(chunk.piece, max_records, max_cost, max_bytes):
                return cut
        if max_records and not (max_cost or max_bytes):
            self._open_records(max_records)
        elif not self._reader:
            self._open_records(1)
        assert self._reader
        return self._count_cut(self._reader.cut(dest, max_records, max_cost, max_bytes))

    def skip(self, n_records: int) -> _core.Batch | PieceCut | None:
        """Pass over records, as ``millrace._core.Reader.skip``."""
        if not self._reader:
            chunk = self._peek_chunk()
            if chunk is None:
                return None
            cut = self._take_chunks(chunk.piece, n_records, 0, 0)
            if cut:
                return cut
        self._open_records(n_records)
        assert self._reader
        return self._count_cut(self._reader.skip(n_records))

    def _take_chunks(self, piece: int, max_records: int, max_cost: int, max_bytes: int) -> PieceCut | None:
        """Take chunks of one piece up to the limits; None: they do not fit, or not exactly."""
        is_exact = max_records and not (max_cost or max_bytes)
        taken, records, cost, n_bytes = list[_PlacedChunk](), 0, 0, 0
        for chunk in self._chunks:
            is_full = any(limit and found >= limit for found, limit in ((records, max_records), (cost, max_cost), (n_bytes, max_bytes)))  # fmt: skip
            if is_full or chunk.piece != piece:
                break
            records, cost, n_bytes = records + chunk.records, cost + chunk.cost, n_bytes + chunk.bytes
            too_long = (max_records and records > max_records) or any(
                limit and found > MAX_LONGER * limit for found, limit in ((cost, max_cost), (n_bytes, max_bytes))
            )
            if too_long:
                break
            taken.append(chunk)
        if not taken or (is_exact and sum(chunk.records for chunk in taken) != max_records):
            return None
        for _ in taken:
            self._chunks.popleft()
        return self._join_chunks(taken)

    def _join_chunks(self, taken: Sequence[_PlacedChunk]) -> PieceCut:
        crc = 0
        for chunk in taken:
            crc = combine_crc32c(crc, chunk.crc32c, chunk.bytes)
        self.offset = taken[-1].first + taken[-1].bytes
        return PieceCut(
            records=sum(chunk.records for chunk in taken),
            bytes=sum(chunk.bytes for chunk in taken),
            cost=sum(chunk.cost for chunk in taken),
            crc32c=crc,
            largest=max(chunk.largest for chunk in taken),
            source=InputRange(self._file, taken[0].first, self.offset, taken[0].piece),
        )

    def _open_records(self, n_records: int) -> None:
        """Read the next records here, so many or more, unless they are here already."""
        if self._reader and self._n_left >= n_records:
            return
        end = self._reader_end if self._reader else self.offset
        while self._n_left < n_records and (chunk := self._peek_chunk()):
            self._chunks.popleft()
            self._n_left += chunk.records
            end = chunk.first + chunk.bytes
        self._reader_end = end
        self._opened.write_bytes(read_range(self._file, self.offset, end))
        self.read += StorageRead(
            end - self.offset, 0, self._distance.count_remote_bytes(self._file, [(self.offset, end)])
        )
        self._reader = open_reader([str(self._opened)], self._item)

    def _count_cut(self, cut: _core.Batch | None) -> _core.Batch | None:
        """Count records as cut by the reader, which ends with its last one."""
        if cut:
            self.offset += cut.bytes
            self._n_left -= cut.records
        if self._n_left <= 0:
            self._reader, self._n_left = None, 0
            self._opened.unlink(missing_ok=True)
        return cut

    def _peek_chunk(self) -> _PlacedChunk | None:
        """Return the next chunk, after waiting for its piece; None at the end of the input.

        Raises:
            MillraceError: The next record is damaged.
        """
        while not self._chunks and self._n_taken < len(self._extents):
            self._take_piece(self._n_taken + 1)
        return self._chunks[0] if self._chunks else None

    def _take_piece(self, number: int) -> None:
        """Take the chunks of the next piece, once it begins where the one before ends."""
        first, last = self._extents[number - 1]
        while self._reached < last:
            with self._changed:
                self._changed.wait_for(lambda: number in self._indexes)
                index = self._indexes.pop(number)
                if index.start != self._reached:
                    self._wanted.appendleft(InputPieceRequest(number, first, last, self._reached))
                    continue
            at = index.start
            for chunk in index.chunks:
                self._chunks.append(_PlacedChunk(*_list_fields(chunk), first=at, piece=number))
                at += chunk.bytes
            self._reached = at
            if index.problem and self._chunks:
                # What is before it is cut first, as a reader does.
                self._indexes[number] = PieceIndex(number, at, (), index.problem)
                return
            if index.problem:
                raise MillraceError(
                    f"{self._item.path}: from byte {at:,} on: {index.problem}",
                    "repair the input and type the command again, with --fresh if results of this one were kept",
                )
        self._n_taken = number


def _list_fields(chunk: PieceChunk) -> tuple[int, int, int, int, int]:
    return chunk.records, chunk.bytes, chunk.cost, chunk.crc32c, chunk.largest


def list_pieces(view: RemoteFileView) -> list[FetchedFile]:
    """List the pieces of the input that nodes cut: its blocks, or equal parts of at most ``PIECE_BYTES`` of each. Pure."""
    cut = view.cut_by_nodes
    assert cut
    edges = []
    for first in range(0, cut.size, view.block_bytes):
        length = min(view.block_bytes, cut.size - first)
        n = -(-length // PIECE_BYTES)
        edges += [(first + k * length // n, first + (k + 1) * length // n) for k in range(n)]
    return [msgspec.structs.replace(cut, first=first, size=last - first) for first, last in edges]
