"""How much of the input is read, and how much is left."""

from __future__ import annotations

from millrace.model import CostHint
from millrace.node.batch import Batch, Skipped

#: Units of a byte at the least, before anything is read: the rest may be names and qualities.
LEAST_UNITS = 0.4


class Intake:
    """Counts what is read of the input.

    Args:
        hint: Says what units are.
        total: Bytes of the inputs' files; None: a pipe, not known.
        slots: How many tasks run side by side.
    """

    def __init__(self, hint: CostHint, total: int | None, slots: int) -> None:
        self._hint, self._total = hint, total
        # First batches are as large as can be where earlier runs tell the cost: not more than one of several slots should have.
        self._units_at_first = LEAST_UNITS if hint.learnt and slots > 1 else 1.0
        #: Bytes of the inputs' files up to the end of what is read.
        self.offset = 0
        self._units = 0
        #: Bytes of the records that are cut, and of the inputs' files in which they are: less where these are packed, more
        #: where there is a header.
        self._bytes = self._in_files = 0

    def read(self, part: Batch | Skipped, units: int) -> int:
        """A part of so many units is read; returns how many bytes of the inputs' files it has."""
        n_bytes, self.offset = part.offset - self.offset, part.offset
        self._units += units
        if isinstance(part, Batch):
            self._bytes += part.bytes
            self._in_files += n_bytes
        return n_bytes

    def in_files(self, n_bytes: int) -> int:
        """Bytes of the inputs' files in which about so many bytes of records are."""
        return n_bytes * self._in_files // self._bytes if self._bytes else 0

    @property
    def remaining(self) -> float | None:
        """Units not yet cut: as counted before the run, or from the bytes not yet read and the units per byte so far; None: unknown."""
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
