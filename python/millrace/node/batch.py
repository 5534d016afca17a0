"""Requests to the feeder, and its answers."""

from __future__ import annotations

from pathlib import Path

import msgspec

from millrace.model import FrozenValue


class BatchLimits(msgspec.Struct, frozen=True):
    """Limits of a batch: the record that reaches one is its last. 0: no limit."""

    records: int = 0
    units: int = 0
    bytes: int = 0


class SpooledBatch(FrozenValue, frozen=True, array_like=True):
    """Consecutive records ``[first, last)``, spooled and ready to run."""

    first: int
    last: int
    units: int
    #: Bytes of its records in all inputs.
    bytes: int
    #: (bytes, CRC-32C) of each spooled input: a header, if its format has one, and records.
    digests: tuple[tuple[int, int], ...]
    #: Spooled bytes of each input; empty text for inputs of format ``files``.
    spooled: tuple[Path, ...]
    #: Files of the batch, for the input of format ``files``.
    files: tuple[str, ...] = ()
    #: Bytes of the input files read up to the end of this batch.
    offset: int = 0
    #: Whether an input is gzip data of more than one member, as far as it was read by then.
    has_members: bool = False

    @property
    def n_records(self) -> int:
        return self.last - self.first

    @property
    def weight(self) -> float:
        """Return the amount of work, relative to other batches."""
        return float(self.units or self.n_records)


class SkippedRecords(msgspec.Struct, frozen=True):
    """Records that an earlier run has committed, read again and found unchanged."""

    first: int
    last: int
    units: int
    offset: int
    #: Its spooled bytes, if requested.
    batch: SpooledBatch | None = None


class EndOfInput(msgspec.Struct, frozen=True):
    """The end of the input, after ``records`` records in all."""

    records: int
