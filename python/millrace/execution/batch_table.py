"""Batches that are not done yet, by their ids, and counts of those that are."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import count

import msgspec

from millrace.core.tasks import BatchId
from millrace.node.batch_files import SkippedRecords, SpooledBatch, split_spooled_batch
from millrace.planning.run_plan import RunPlan
from millrace.scheduler.protocol import BatchExtent


def ensure_spooled(batch: SpooledBatch) -> None:
    """Fetch the bytes of a batch that was cut in HDFS, unless they are spooled.

    Raises:
        MillraceError: They cannot be read, or the input has changed.
    """
    if batch.source and not batch.spooled[0].exists():
        from millrace.node.input_pieces import fetch_batch  # few runs need it

        fetch_batch(batch)


class BatchTable:
    """A table of batches that keeps each until it is done, and cuts them on demand."""

    def __init__(self, plan: RunPlan) -> None:
        self._plan = plan
        self._ids: Iterator[BatchId] = map(BatchId, count(1))
        self._batches: dict[BatchId, SpooledBatch] = {}

    def __getitem__(self, batch: BatchId) -> SpooledBatch:
        return self._batches[batch]

    def items(self) -> Iterator[tuple[BatchId, SpooledBatch]]:
        """Yield the id and the batch of each batch that is not done yet."""
        yield from self._batches.items()

    def add_batch(self, batch: SpooledBatch, *, is_divisible: bool = True) -> BatchExtent:
        """Keep a batch, and return it in the scheduler's form."""
        number = next(self._ids)
        self._batches[number] = batch
        return BatchExtent(number, batch.first, batch.last, self.count_units(batch), is_divisible)

    def count_units(self, part: SpooledBatch | SkippedRecords) -> int:
        """Return the cost units of a part of the input."""
        return part.last - part.first if self._plan.use.cost.unit == "records" else part.units

    def split_batch(self, whole: BatchId, records: int) -> list[BatchExtent]:
        """Cut a batch in two after its first ``records``; return one part if it cannot be cut."""
        parts = self._cut_in_two(self._batches.pop(whole), records)
        return [self.add_batch(part, is_divisible=len(parts) > 1) for part in parts]

    def divide_batch(self, whole: BatchId, n: int) -> list[BatchExtent]:
        """Cut a batch into ``n`` parts, or fewer where records must stay together; return [] if it cannot be cut."""
        rest, parts = self._batches[whole], list[SpooledBatch]()
        for left in range(n, 1, -1):
            cut = self._cut_in_two(rest, math.ceil(rest.n_records / left))
            if len(cut) == 1:
                break  # its records must stay together
            parts.append(cut[0])
            rest = cut[1]
        if not parts:
            return []
        del self._batches[whole]
        return [self.add_batch(part) for part in (*parts, rest)]

    def _cut_in_two(self, whole: SpooledBatch, records: int) -> list[SpooledBatch]:
        ensure_spooled(whole)
        job = self._plan.job
        return split_spooled_batch(
            whole, records, self._plan.use.inputs, self._plan.command.cwd, job.record_start, job.record_end
        )

    def release_batch(self, batch: BatchId) -> None:
        """Drop a batch and delete its spooled files."""
        for path in self._batches.pop(batch).spooled:
            path.unlink(missing_ok=True)

    def pop(self, batch: BatchId) -> SpooledBatch:
        """Drop a batch but keep its spooled files, which another object owns."""
        return self._batches.pop(batch)


class ProgressCounts(msgspec.Struct):
    """Counts of completed work, including that of earlier runs."""

    records: int = 0
    units: int = 0
    #: Bytes of the records that are done in this run.
    bytes: int = 0
    #: Bytes of the input files that an earlier run has processed.
    bytes_before: int = 0
    resumed: int = 0
    quarantined: int = 0
    cpu: float = 0.0
    #: Tasks that ran in forks of a waiting tool process, and the CPU seconds that this saved.
    warm: int = 0
    saved: float = 0.0
    #: Tasks that could not run so.
    cold: int = 0
    #: Tool processes that are running.
    running: int = 0

    def add_skipped(self, part: SkippedRecords, units: int, n_bytes: int) -> None:
        """Add records that an earlier run has done, and their ``n_bytes`` of the input files."""
        self.records += part.last - part.first
        self.resumed += part.last - part.first
        self.units += units
        self.bytes_before += n_bytes

    def add_batch(self, batch: SpooledBatch, units: int) -> None:
        """Add a batch that is done or quarantined."""
        self.records += batch.n_records
        self.units += units
        self.bytes += batch.bytes
