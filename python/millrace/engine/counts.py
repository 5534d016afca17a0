"""Counters of a run's progress."""

from __future__ import annotations

import msgspec

from millrace.node.batch import SkippedRecords, SpooledBatch


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
