"""Cutting of the inputs into batches on request, in a separate thread, so that slots do not wait for a slow input."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Sequence, Set
from pathlib import Path
from typing import Protocol

import msgspec

from millrace import _core
from millrace.core.errors import CorruptError, MillraceError, RefusedError
from millrace.core.text_format import format_records
from millrace.core.tool_use import InputUse
from millrace.node.batch_files import (
    BatchLimits,
    EndOfInput,
    FileBatch,
    PieceCut,
    SkippedRecords,
    SpooledBatch,
    digest_cut,
)
from millrace.scheduler.verification_stretches import MAX_SHORT_BATCH_BYTES, StretchChoice


class InputSource(Protocol):
    """An input to cut: a ``millrace._core.Reader`` or a ``FileList``."""

    @property
    def offset(self) -> int: ...
    @property
    def total(self) -> int | None: ...
    @property
    def header(self) -> bytes: ...
    @property
    def compression(self) -> str: ...
    @property
    def has_members(self) -> bool: ...
    def cut(
        self, dest: str, max_records: int, max_cost: int, max_bytes: int
    ) -> _core.Batch | FileBatch | PieceCut | None: ...
    def skip(self, n_records: int) -> _core.Batch | FileBatch | PieceCut | None: ...


class InputFeeder(msgspec.Struct):
    """The feeder thread and its queues.

    ``results`` fills with ``SpooledBatch``, ``SkippedRecords``, ``EndOfInput`` or an exception; ``wake`` is called after each request.
    """

    inputs: Sequence[InputUse]
    sources: Sequence[InputSource]
    spool: Path
    #: Committed extents (first, last, digests), in order: skipped, not cut.
    done: Sequence[tuple[int, int, Sequence[tuple[int, int]]]]
    wake: Callable[[], None]
    #: Extents with fragments that an earlier run has searched: cut the same way. None overlaps another or any of
    #: ``done``.
    begun: Sequence[tuple[int, int, Sequence[tuple[int, int]]]] = ()
    #: First records of the committed extents whose bytes are needed nevertheless.
    keep: Set[int] = frozenset()
    #: Chooses the batches that are cut short.
    short: StretchChoice | None = None
    results: deque[SpooledBatch | SkippedRecords | EndOfInput | BaseException] = msgspec.field(default_factory=deque)
    _requests: queue.SimpleQueue[tuple[BatchLimits, int] | None] = msgspec.field(default_factory=queue.SimpleQueue)
    _next: int = 0
    _done_at: int = 0
    _begun_at: int = 0
    _serial: int = 0

    def start_thread(self) -> None:
        threading.Thread(target=self._serve_requests, name="feeder", daemon=True).start()

    @property
    def total(self) -> int | None:
        """Return the bytes of all input files; None: unknown."""
        totals = [source.total for source in self.sources]
        return None if None in totals else sum(total or 0 for total in totals)

    def request_batches(self, limits: BatchLimits, n_batches: int = 1) -> None:
        """Request batches; they arrive in ``results``, possibly after some ``SkippedRecords``, and end early with ``EndOfInput``."""
        self._requests.put((limits, n_batches))

    def close(self) -> None:
        self._requests.put(None)

    def _serve_requests(self) -> None:
        while (request := self._requests.get()) is not None:
            limits, n_batches = request
            try:
                while n_batches and self._answer_request(limits):
                    n_batches -= 1
            except _core.RecordError as error:
                self.results.append(
                    MillraceError(
                        self._restore_typed_path(error),
                        "repair the input and type the command again, with --fresh if results of this one were kept",
                    )
                )
            except OSError as error:
                self.results.append(error if isinstance(error, _core.DiskFull) else MillraceError(str(error)))
            except BaseException as error:
                self.results.append(error)
            self.wake()

    def _restore_typed_path(self, error: _core.RecordError) -> str:
        """Return the reader's message, with the path that the user typed."""
        typed = next((item.path for item in self.inputs if error.source.endswith(f"/{item.path}")), error.source)
        return str(error).replace(error.source, "standard input" if typed == "-" else typed, 1)

    def _answer_request(self, limits: BatchLimits) -> bool:
        """Cut one batch; return whether there was one."""
        while self._done_at < len(self.done) and self.done[self._done_at][0] == self._next:
            first, last, digests = self.done[self._done_at]
            self._done_at += 1
            if last > first:
                self._skip_committed(first, last, digests)
            else:
                self._check_still_empty(digests)
                self.results.append(EndOfInput(0))
                return False
        for extent in (*self.done[self._done_at :][:1], *self.begun[self._begun_at :][:1]):
            gap = extent[0] - self._next
            if gap:
                limits = BatchLimits(min(limits.records or gap, gap), limits.units, limits.bytes)
            else:
                self.results.append(self._cut_as_before(*extent))
                return isinstance(self.results[-1], SpooledBatch)
        if self.short and self.short.add_batch(self._next):
            limits = msgspec.structs.replace(
                limits, bytes=min(limits.bytes or MAX_SHORT_BATCH_BYTES, MAX_SHORT_BATCH_BYTES)
            )
        found = self._cut_batch(limits)
        self.results.append(found)
        return isinstance(found, SpooledBatch)

    def _cut_as_before(self, first: int, last: int, digests: Sequence[tuple[int, int]]) -> SpooledBatch | EndOfInput:
        self._begun_at += 1
        batch = self._cut_batch(BatchLimits(last - first))
        if not isinstance(batch, SpooledBatch) or (batch.last, [*batch.digests]) != (last, [*digests]):
            raise self._build_change_error(first, last, self.inputs[0])
        return batch

    def _skip_committed(self, first: int, last: int, digests: Sequence[tuple[int, int]]) -> None:
        keep = first in self.keep
        if self.short:
            self.short.skip_records()
        self._serial += 1
        paths = tuple(self.spool / f"{self._serial}.{k}" for k in range(len(self.sources)))
        parts = []
        for item, source, path, (size, crc) in zip(self.inputs, self.sources, paths, digests, strict=True):
            found = source.cut(str(path), last - first, 0, 0) if keep else source.skip(last - first)
            if found is None or (found.records, *digest_cut(found)) != (last - first, size, crc):
                raise self._build_change_error(first, last, item)
            parts.append(found)
        self._next = last
        units = sum(part.cost for part in parts)
        batch = self._build_batch(first, parts, paths) if keep else None
        self.results.append(SkippedRecords(first, last, units, self._sum_offsets(), batch))

    def _check_still_empty(self, digests: Sequence[tuple[int, int]]) -> None:
        """Check that inputs without a record, whose one task is done, are still empty."""
        for item, source, header, expected in zip(
            self.inputs, self.sources, self._digest_headers(), digests, strict=True
        ):
            if source.skip(1) is not None:
                raise _build_input_error(item, "has records, and had none when this run began")
            if header != tuple(expected):
                raise _build_input_error(item, "its header is not what it was when this run began")

    def _digest_headers(self) -> tuple[tuple[int, int], ...]:
        """Return (bytes, checksum) of the input headers: the digests of a batch without records."""
        return tuple((len(source.header), _core.crc32c(source.header)) for source in self.sources)

    def _build_change_error(self, first: int, last: int, item: InputUse) -> CorruptError:
        return _build_input_error(item, f"records {first + 1} to {last} are not what they were when this run began")

    def _cut_batch(self, limits: BatchLimits) -> SpooledBatch | EndOfInput:
        self._serial += 1
        paths = tuple(self.spool / f"{self._serial}.{k}" for k in range(len(self.sources)))
        found = self.sources[0].cut(str(paths[0]), limits.records, limits.units, limits.bytes)
        parts = [found]
        for source, path in zip(self.sources[1:], paths[1:], strict=True):
            parts.append(source.cut(str(path), found.records if found else 1, 0, 0))
        counts = [part.records if part else 0 for part in parts]
        if len(set(counts)) > 1:
            shortest = counts.index(min(counts))
            raise CorruptError(
                f"{self.inputs[shortest].path}: ends after record {self._next + counts[shortest]}, "
                f"but {self.inputs[counts.index(max(counts))].path} goes on",
                "inputs that advance together need the same number of records",
            )
        if found is None:
            return self._end_input(paths)
        item = self.inputs[0]
        if isinstance(found, _core.Batch) and 0 < item.too_long <= found.largest:
            raise MillraceError(
                f"{'standard input' if item.path == '-' else item.path}: one of records {self._next + 1} to "
                f"{self._next + found.records} has {found.largest:,} residues: from {item.too_long:,} on, its output "
                "depends on the records before it",
                "give a file, with the longest records first",
            )
        if isinstance(found, _core.Batch) and item.stops_without_content and found.sufficient < found.records:
            raise MillraceError(
                f"{'standard input' if item.path == '-' else item.path}: one of records {self._next + 1} to "
                f"{self._next + found.records} has too little in it to be searched: what is written for it, or as the number of the next, depends on those beside it",
                "give a file, which can be looked at beforehand, or take such records out, in the serial run too",
            )
        for item, source, path in zip(self.inputs, self.sources, paths, strict=True):
            _check_compression(item, source)
            if not isinstance(found, PieceCut):  # its node has seen to it
                _refuse_nul_bytes(item, path, format_records(self._next, self._next + found.records))
        first = self._next
        self._next += found.records
        return self._build_batch(first, [part for part in parts if part is not None], paths)

    def _build_batch(
        self, first: int, parts: Sequence[_core.Batch | FileBatch | PieceCut], paths: tuple[Path, ...]
    ) -> SpooledBatch:
        return SpooledBatch(
            first, self._next, parts[0].cost, sum(part.bytes for part in parts),
            tuple(map(digest_cut, parts)), paths,
            next((part.files for part in parts if isinstance(part, FileBatch)), ()), self._sum_offsets(),
            any(source.has_members for source in self.sources),
            next((part.source for part in parts if isinstance(part, PieceCut)), None),
        )  # fmt: skip

    def _end_input(self, paths: tuple[Path, ...]) -> SpooledBatch | EndOfInput:
        for first, last, _ in (*self.done[self._done_at :], *self.begun[self._begun_at :]):
            if last > first:
                raise self._build_change_error(first, last, self.inputs[0])
        if self._next or self.done:
            return EndOfInput(self._next)
        # An empty input is one task too: the tool may write output for it.
        self.done = [(0, 0, self._digest_headers())]
        for item, source in zip(self.inputs, self.sources, strict=True):
            _check_compression(item, source)
        for path, source in zip(paths, self.sources, strict=True):
            path.write_bytes(source.header)
        return SpooledBatch(0, 0, 0, 0, self._digest_headers(), paths)

    def _sum_offsets(self) -> int:
        return sum(source.offset for source in self.sources)


def _build_input_error(item: InputUse, how: str) -> CorruptError:
    return CorruptError(f"{item.path}: {how}", "restore the input, or start over with --fresh")


def _check_compression(item: InputUse, source: InputSource) -> None:
    """Refuse an input with another compression than planned, if it could not be read before the start."""
    if item.packed is None or _normalize_compression(source.compression) == _normalize_compression(item.packed):
        return
    name = "standard input" if item.path == "-" else item.path
    how = f"compressed ({source.compression})" if source.compression else "not compressed"
    raise RefusedError(
        f"{name} is {how}, which {'could not be seen before the start' if item.path == '-' else 'its name does not tell'}",
        "let what comes in be unpacked, as by zcat, or name a file: --input FILE.gz",
    )


def _normalize_compression(compression: str) -> str:
    return "gzip" if compression == "bgzf" else compression


def _refuse_nul_bytes(item: InputUse, path: Path, extent: str) -> None:
    """Refuse a batch with NUL bytes, after which the tool treats a whole input as binary, but not its parts."""
    if item.text and b"\0" in path.read_bytes():
        name = "standard input" if item.path == "-" else item.path
        raise MillraceError(
            f"{name}: there is a NUL byte in {extent}: from there on the tool takes all for binary, which it does not see in parts",
            "tell the tool that it is text (grep -a), or take the byte out (tr -d '\\0')",
        )
