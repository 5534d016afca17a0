"""How far a run is."""

from __future__ import annotations

import msgspec

from millrace.node.batch import Batch, Skipped


class Counts(msgspec.Struct):
    """What has been done so far, this run and before."""

    records: int = 0
    units: int = 0
    #: Of records that are done in this run.
    bytes: int = 0
    #: Of the inputs' files, with what an earlier run has done.
    bytes_before: int = 0
    resumed: int = 0
    quarantined: int = 0
    cpu: float = 0.0
    #: Tasks that ran in forks of a tool that waits, and the CPU seconds that this saved.
    warm: int = 0
    saved: float = 0.0
    #: Tools that run.
    running: int = 0

    def skipped(self, part: Skipped, units: int, n_bytes: int) -> None:
        """An earlier run has done these records, and so many bytes of the inputs' files."""
        self.records += part.last - part.first
        self.resumed += part.last - part.first
        self.units += units
        self.bytes_before += n_bytes

    def done(self, batch: Batch, units: int) -> None:
        """A batch is done or given up."""
        self.records += batch.n_records
        self.units += units
        self.bytes += batch.bytes
