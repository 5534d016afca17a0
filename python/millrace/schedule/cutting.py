"""When the next batch is cut from the input, and how large it is. Pure."""

from __future__ import annotations

import math

import msgspec

from millrace.model import CostHint
from millrace.schedule.protocol import Ask
from millrace.schedule.sizing import MOST_READY, CostModel, is_tail, next_units, to_end

#: A batch takes all that is left, if that is at most so many times its size: how much is left is an estimate, and a rest of
#: one record would cost a start of the tool.
REST = 1.05

#: A batch of so many times the units that were asked for, and that others have, ends with a record that is far longer.
FAR_LONGER = 2


class Cutting(msgspec.Struct, dict=True):
    """Asks for batches.

    Args:
        slots: How many tasks run side by side.
        hint: First guess of the cost.
        fixed: The user's batch size (records, bytes) instead of measured ones; (0, 0): measure.
        least_ahead: Batches at work at once, at least, as soon as their size is measured: where they share what is
            read of a database, more of them read it less often.
    """

    slots: int
    hint: CostHint
    fixed: tuple[int, int] = (0, 0)
    least_ahead: int = 0
    #: There is nothing more to cut.
    ended: bool = False
    #: Batches that were asked for and have not come.
    asked: int = 0
    #: Units of the batch that was asked for; 0: its size is the user's.
    _asked_units: int = 0
    #: Units of each batch in the last round; 0 before it.
    _last_round: int = 0
    #: Whether batches are still small beside the start, and grow: one that waits would be as small as those at work.
    _grows: bool = False

    def __post_init__(self) -> None:
        self.cost = CostModel(self.hint)

    @property
    def is_fixed(self) -> bool:
        return self.fixed != (0, 0)

    @property
    def most(self) -> int:
        """Batches in the hands of the slots and their queues, at most."""
        if self.is_fixed:
            most = self.slots * (1 + self.cost.ready)
        else:
            most = self.slots * (2 if self.cost.per_unit and not self._grows else 1)
        return max(most, self.least_ahead) if self.cost.per_unit or self.is_fixed else most

    def wants(self, remaining: float | None, n_batches: int) -> bool:
        """Whether one more batch is to be cut, with ``n_batches`` here.

        Batches are kept ready beyond those that run, so that no slot ever waits for its input: one a slot, or more if
        they are short and their size is fixed; but none while nothing is measured, as its size would be a guess. As
        soon as little is left, all of it.

        Args:
            remaining: Units not yet cut, as estimated; None: unknown.
        """
        if self.ended or self.asked:
            return False
        if n_batches < self.most:
            return True
        if remaining is None or n_batches >= self.slots * (1 + MOST_READY):
            return False
        return is_tail(self.cost, self.slots, remaining, fixed=self.is_fixed)

    def ask(self, remaining: float | None, n_batches: int, *, several: bool) -> Ask:
        """Ask for the next batch, of the size that is right now.

        Args:
            several: Batches whose size is no decision may be asked for together, which costs less than one after
                another.
        """
        self.asked, self._asked_units = 1, 0
        if self.is_fixed:
            more = max(self.most - n_batches - 1, 0) if several else 0
            self.asked += more
            return Ask(self.fixed[0], 0, self.fixed[1], 1 + more)
        units = self._next_units(remaining)
        if self.hint.unit == "records":
            return Ask(min(units, self.hint.max_records or units), 0, self.cost.most_bytes(self.slots))
        self._asked_units = units
        return Ask(self.hint.max_records, units, self.cost.most_bytes(self.slots))

    def ask_for_one(self) -> Ask:
        """Ask for one record."""
        self.asked, self._asked_units = 1, 0
        return Ask(1, 0, 0)

    def came(self) -> None:
        """A batch that was asked for is there."""
        self.asked -= 1

    def end(self) -> None:
        """There is nothing more to cut."""
        self.asked, self.ended = 0, True

    def is_far_longer(self, units: int) -> bool:
        """Whether a batch has many more units than it was to have."""
        return self._asked_units > 0 and FAR_LONGER * max(self._asked_units, self.cost.batch_units) < units

    def _next_units(self, remaining: float | None) -> int:
        units = next_units(self.cost, self.slots, remaining)
        self._grows = self.cost.is_mostly_start(units)
        if remaining is None or not self.cost.per_unit:
            return units
        units = self._within_round(units, remaining)
        if self.hint.ends:
            return to_end(self.hint.ends, remaining, units)
        return math.ceil(REST * max(units, remaining)) if remaining <= REST * units else units

    def _within_round(self, units: int, remaining: float) -> int:
        """``units``, or in the last round, in which each slot gets an equal part, that part."""
        if (units + 1) * self.slots < remaining:  # units are whole
            self._last_round = 0
            return units
        # None is mostly the tool's start.
        if not self._last_round:
            self._last_round = min(units, max(math.ceil(remaining / self.slots), self.cost.start_units))
        return self._last_round
