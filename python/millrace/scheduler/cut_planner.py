"""Decisions when the next batch is cut from the input, and how large it is. Pure."""

from __future__ import annotations

import math

import msgspec

from millrace.core.tool_use import CostHint
from millrace.scheduler.batch_sizing import (
    MAX_READY_BATCHES,
    CostModel,
    compute_batch_units,
    fit_to_record_end,
    is_tail,
)
from millrace.scheduler.protocol import CutBatches

#: A batch takes all that is left if that is at most this many times its size: what is left is an estimate, and a rest
#: of one record would cost a start of the tool.
REST = 1.05

#: A batch with this many times the units asked for, and the units of others, ends with a much longer record.
FAR_LONGER = 2


class CutPlanner(msgspec.Struct, dict=True):
    """Decides when batches are cut, and asks for them.

    Args:
        slots: Number of tasks that run side by side.
        hint: First guess of the cost.
        fixed: The user's batch size (records, bytes) instead of measured ones; (0, 0): measure.
        least_ahead: Minimum number of batches in progress once their size is measured: where batches share reads of a
            database, more of them read it less often.
        begins_all: Near the end, all batches are in progress at once: the first search of each tells what it takes.
    """

    slots: int
    hint: CostHint
    fixed: tuple[int, int] = (0, 0)
    least_ahead: int = 0
    begins_all: bool = False
    #: The end of the input was reached.
    ended: bool = False
    #: Batches that were asked for and are not ready.
    asked: int = 0
    #: Units of the batches that were cut.
    _cut_units: int = 0
    #: Units of the batch that was asked for; 0: the user set its size.
    _asked_units: int = 0
    #: Units of each batch in the last round; 0 before it.
    _last_round: int = 0
    #: Whether so little is left that all of it is cut.
    _is_tail: bool = False
    #: Whether batches are still short beside the tool's start and grow: a waiting one would be as short.
    _grows: bool = False

    def __post_init__(self) -> None:
        self.cost = CostModel(self.hint)

    @property
    def is_fixed(self) -> bool:
        return self.fixed != (0, 0)

    @property
    def max_batches(self) -> int:
        """Maximum number of batches at the slots and in their queues."""
        if self.begins_all and self._is_tail:
            return self.slots * (1 + MAX_READY_BATCHES)
        if self.is_fixed:
            most = self.slots * (1 + self.cost.n_ready)
        else:
            most = self.slots * (2 if self.cost.per_unit and not self._grows else 1)
        return max(most, self.least_ahead) if self.cost.per_unit or self.is_fixed else most

    def should_cut(self, remaining: float | None, n_batches: int) -> bool:
        """Tell whether one more batch is to be cut while ``n_batches`` are here.

        Batches are kept ready beyond those that run, so that no slot waits for its input: one a slot, or more if they
        are short and their size is fixed; but none while nothing is measured, as its size would be a guess. As soon as
        little is left, all of it is cut.

        Args:
            remaining: Estimated units not yet cut; None: unknown.
        """
        if self.ended or self.asked:
            return False
        self._is_tail = remaining is not None and is_tail(self.cost, self.slots, remaining, fixed=self.is_fixed)
        if n_batches < self.max_batches:
            return True
        return self._is_tail and n_batches < self.slots * (1 + MAX_READY_BATCHES)

    def request_batches(self, remaining: float | None, n_batches: int, *, several: bool) -> CutBatches:
        """Ask for the next batch, with the size that is right now.

        Args:
            several: Batches of a fixed size may be asked for together, which costs less than one after another.
        """
        self.asked, self._asked_units = 1, 0
        if self.is_fixed:
            more = max(self.max_batches - n_batches - 1, 0) if several else 0
            self.asked += more
            return CutBatches(self.fixed[0], 0, self.fixed[1], 1 + more)
        units = self._choose_units(remaining)
        if self.hint.unit == "records":
            return CutBatches(min(units, self.hint.max_records or units), 0, self.cost.compute_max_bytes(self.slots))
        self._asked_units = units
        return CutBatches(self.hint.max_records, units, self.cost.compute_max_bytes(self.slots))

    def request_one_record(self) -> CutBatches:
        """Ask for one record."""
        self.asked, self._asked_units = 1, 0
        return CutBatches(1, 0, 0)

    def count_arrival(self, units: int) -> None:
        """Note that a batch that was asked for is ready, with its units."""
        self.asked -= 1
        self._cut_units += units

    def end_input(self) -> None:
        """Note that no more batches can be cut."""
        self.asked, self.ended = 0, True

    def is_far_longer(self, units: int) -> bool:
        """Tell whether a batch has many more units than were asked for."""
        return self._asked_units > 0 and FAR_LONGER * max(self._asked_units, self.cost.batch_units) < units

    def _choose_units(self, remaining: float | None) -> int:
        units = compute_batch_units(self.cost, self.slots, remaining, self._cut_units)
        self._grows = self.cost.is_mostly_start(units)
        if remaining is None or not self.cost.per_unit:
            return units
        units = self._limit_to_round(units, remaining)
        if self.hint.ends:
            return fit_to_record_end(self.hint.ends, remaining, units)
        return math.ceil(REST * max(units, remaining)) if remaining <= REST * units else units

    def _limit_to_round(self, units: int, remaining: float) -> int:
        """Limit ``units``, in the last round, to an equal part for each slot."""
        if (units + 1) * self.slots < remaining:  # units are integers
            self._last_round = 0
            return units
        # No batch is mostly the tool's start.
        if not self._last_round:
            self._last_round = min(units, max(math.ceil(remaining / self.slots), self.cost.start_units))
        return self._last_round
