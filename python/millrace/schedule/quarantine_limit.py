"""How many records may be given up before the run stops: what fails for many is no fault of theirs. Pure."""

from __future__ import annotations

from collections import Counter

import msgspec

#: By default a run stops beyond this share of the records that came to their end, and not before so many.
SHARE = 0.01
LEAST_RECORDS = 100

#: It stops earlier if so many failed in the same way, and they are more than this share.
ALIKE_RECORDS = 10
ALIKE_SHARE = 0.1

#: And if so many failed in the same way while no record was done, however many were done before.
IN_A_ROW = 50

#: And if so many died by a signal, and they are more than this share: a database that is cut off, memory, or the tool itself.
DIED_RECORDS = 3
DIED_SHARE = 0.001


class QuarantineLimit(msgspec.Struct):
    """Counts records that are done and given up.

    Args:
        most: The user's number of records; None: not said.
        share: The user's share of the records that came to their end, of a hundred at least; None: not said.
    """

    most: int | None = None
    share: float | None = None
    n_ended: int = 0
    n_given_up: int = 0
    #: Of these, those on which the tool died by a signal.
    n_died: int = 0
    _alike: Counter[str] = msgspec.field(default_factory=Counter)
    #: How often each way to fail was seen since a record was done.
    _in_a_row: Counter[str] = msgspec.field(default_factory=Counter)

    def done(self, n_records: int) -> None:
        """So many records are done."""
        self.n_ended += n_records
        self._in_a_row.clear()

    @property
    def n_done(self) -> int:
        """Records that are done."""
        return self.n_ended - self.n_given_up

    def resumed(self, n_ended: int, n_given_up: int) -> None:
        """With earlier runs so many came to their end, of which so many were given up."""
        self.n_ended += n_ended
        self.n_given_up += n_given_up

    def give_up(self, signature: str, *, died: bool = False) -> bool:
        """One more record failed, in the way that ``signature`` tells; returns whether that is too many.

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
        if died and self.n_died >= DIED_RECORDS and self.n_died > DIED_SHARE * self.n_ended:
            return True
        alike = self._alike[signature]
        if alike >= ALIKE_RECORDS and alike > ALIKE_SHARE * self.n_ended:
            return True
        if self._in_a_row[signature] >= IN_A_ROW:
            return True
        return self.n_given_up > max(LEAST_RECORDS, SHARE * self.n_ended)
