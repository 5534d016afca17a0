"""Measurement of the input: the part that is read, and the part that remains."""

from __future__ import annotations

from millrace.model import CostHint
from millrace.node.batch import SkippedRecords, SpooledBatch

#: Fewest units per byte, assumed before anything is read: the rest may be names and qualities.
MIN_UNITS_PER_BYTE = 0.4


class InputMeter:
    """Counts of the input that is read.

    Args:
        hint: Defines the cost units.
        total: Bytes of the input files; None: unknown, as the input is a pipe.
        slots: Number of tasks that run side by side.
    """

    def __init__(self, hint: CostHint, total: int | None, slots: int) -> None:
        self._hint, self._total = hint, total
        # Where earlier runs tell the cost, first batches are as large as possible: assume few units, so that one of
        # several slots does not get too much.
        self._units_at_first = MIN_UNITS_PER_BYTE if hint.learnt and slots > 1 else 1.0
        #: Bytes of the input files that are read.
        self.offset = 0
        self._units = 0
        #: Bytes of the records that are cut, and of their part of the input files: less if compressed,
        #: more with a header.
        self._bytes = self._in_files = 0

    def count_part(self, part: SpooledBatch | SkippedRecords, units: int) -> int:
        """Count a part of ``units`` units as read; return its bytes in the input files."""
        n_bytes, self.offset = part.offset - self.offset, part.offset
        self._units += units
        if isinstance(part, SpooledBatch):
            self._bytes += part.bytes
            self._in_files += n_bytes
        return n_bytes

    def estimate_file_bytes(self, n_bytes: int) -> int:
        """Estimate the bytes of the input files that hold ``n_bytes`` of records."""
        return n_bytes * self._in_files // self._bytes if self._bytes else 0

    @property
    def remaining_units(self) -> float | None:
        """Return the units not yet cut; None: unknown.

        They are counted before the run, or estimated from the unread bytes and the units per byte so far.
        """
        if self._units < self._hint.units and (self._hint.counted or not self.offset):
            return float(self._hint.units - self._units)
        if self._total is None:
            return None
        left = max(self._total - self.offset, 0)
        if not self.offset:
            return (
                None if self._hint.unit == "records" else left * self._units_at_first
            )  # a unit is a byte, or about that
        return left * (self._units / self.offset)
