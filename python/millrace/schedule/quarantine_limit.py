"""Limit of the quarantined records, beyond which the run stops: a failure of many records is not their fault. Pure."""

from __future__ import annotations

from collections import Counter

import msgspec

#: By default a run stops when more than this share of the ended records, and more than this many, are quarantined.
SHARE = 0.01
MIN_GIVEN_UP_RECORDS = 100

#: It stops earlier if at least this many failed in the same way, and they are more than this share.
MIN_ALIKE_RECORDS = 10
ALIKE_SHARE = 0.1

#: It also stops if this many failed in the same way while no record was done, however many were done before.
MAX_FAILURES_IN_A_ROW = 50

#: It also stops if this many, and more than this share, died by a signal: the cause is a truncated database, memory, or
#: the tool.
MIN_DIED_RECORDS = 3
DIED_SHARE = 0.001


class QuarantineLimit(msgspec.Struct):
    """Counts records that are done and quarantined.

    Args:
        most: The user's maximum number of records; None: not set.
        share: The user's maximum share of the ended records, of a hundred at least; None: not set.
    """

    most: int | None = None
    share: float | None = None
    n_ended: int = 0
    n_given_up: int = 0
    #: Those of them on which the tool died by a signal.
    n_died: int = 0
    _alike: Counter[str] = msgspec.field(default_factory=Counter)
    #: Number of failures of each kind since a record was done.
    _in_a_row: Counter[str] = msgspec.field(default_factory=Counter)

    def count_done(self, n_records: int) -> None:
        """Count records that are done."""
        self.n_ended += n_records
        self._in_a_row.clear()

    @property
    def n_done(self) -> int:
        """Number of records that are done."""
        return self.n_ended - self.n_given_up

    def add_resumed(self, n_ended: int, n_given_up: int) -> None:
        """Add the ended and quarantined records of earlier runs."""
        self.n_ended += n_ended
        self.n_given_up += n_given_up

    def count_given_up(self, signature: str, *, died: bool = False) -> bool:
        """Count one more quarantined record, whose failure has this ``signature``; return whether that is too many.

        Args:
            died: The tool died by a signal.
        """
        self.n_ended += 1
        self.n_given_up += 1
        self.n_died += died
        self._alike[signature] += 1
        self._in_a_row[signature] += 1
        if self.most is not None:
            return self.n_given_up > self.most
        if self.share is not None:
            return self.n_given_up > self.share * max(self.n_ended, 100)
        if died and self.n_died >= MIN_DIED_RECORDS and self.n_died > DIED_SHARE * self.n_ended:
            return True
        alike = self._alike[signature]
        if alike >= MIN_ALIKE_RECORDS and alike > ALIKE_SHARE * self.n_ended:
            return True
        if self._in_a_row[signature] >= MAX_FAILURES_IN_A_ROW:
            return True
        return self.n_given_up > max(MIN_GIVEN_UP_RECORDS, SHARE * self.n_ended)
