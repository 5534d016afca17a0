"""Size of the next batch, from the measured cost: large while much is left, tapering to the tool's start."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence

import msgspec

from millrace.core.tool_use import CostHint, CostSums

#: A batch of n records is at most 1 / (1 + SPREAD / sqrt(n)) of what is left for one slot: if it takes longer than
#: expected, the others have work meanwhile. Errors of n records even out with sqrt(n).
SPREAD = 0.5

#: Maximum time of a batch, so that a crash loses little and output keeps flowing; and for a tool that starts slowly,
#: maximum number of its starts: these cost 2.5 %.
MAX_BATCH_SECONDS = 30.0
MAX_BATCH_STARTS = 40.0

#: Maximum time while the start's cost is unknown, as a multiple of its upper bound: the shortest task's time.
MAX_BATCH_GUESSED_STARTS = 4.0

#: Maximum time if the end is not known (a pipe): the tail may come at any time.
MAX_UNKNOWN_END_SECONDS = 5.0

#: Maximum of the fitted start where it is known of the tool, as a multiple of that: long records hide the start in the
#: noise, but do not make it longer.
MAX_KNOWN_STARTS = 10.0

#: A batch lasts at least this many times the tool's start, unless that would leave slots without work.
MIN_BATCH_STARTS = 5.0

#: At the start of a run, a slot's share is as few batches of one size as may be, if the part kept back for a further one
#: would take less than this many starts.
KEPT_BACK = 2.0

#: The rest for the only slot is one batch, even if it exceeds the maximum by this part.
LAST_PART = 0.25

#: If the records of the input are known, a batch takes all that is left if that is less than this many times its size.
LEFT_OVER = 1.5

#: Time that a coordinator needs for a message of a task. A batch lasts at least this long for each slot: tasks of many
#: slots would come back faster than they are handled.
HANDLING_SECONDS = 50e-6

#: Maximum size of a batch as a multiple of the largest measured one: small ones predict large ones badly.
MAX_GROWTH = 8.0

#: Maximum bytes of a batch: more than one of these a slot is in memory, and the next is read while one runs. More is
#: allowed for few slots whose tool takes at least ``LONG_START_SECONDS`` to start; all slots together then have at most
#: ``MAX_ALL_BATCHES_BYTES``.
MAX_BATCH_BYTES = 16 << 20
LONG_START_SECONDS = 0.1
MAX_ALL_BATCHES_BYTES = 512 << 20

#: Maximum size of a batch that is cut beforehand, as a part of what is left for one slot.
TAIL_PART = 0.5

#: About how many starts of the tool, for each slot, small batches cut beforehand cost more.
TAIL_STARTS = 5

#: Seconds of work for each slot that are cut beforehand, and the same in multiples of the time of the longest record: one
#: that takes longer may still end last.
TAIL_SECONDS = 60.0
TAIL_LONGEST = 2.0

#: Maximum bytes, or units of about a byte, that are cut beforehand at the end of the input.
MAX_TAIL_BYTES = 256 << 20

#: Seconds of work that wait for a slot, in short batches; and the maximum numbers of these batches and units.
READY_SECONDS = 0.2
MAX_READY_BATCHES = 32
MAX_READY_UNITS = 1 << 20

#: Weight of older observations when a new one is measured.
MEMORY = 0.95

#: Units of the first batches, before anything is measured: a record may take a millisecond or a minute.
PROBE_UNITS = 1000

#: Maximum number of tasks that the history of earlier runs counts for: this run may differ.
MAX_LEARNT_TASKS = 4.0


class CostModel(msgspec.Struct):
    """Model of a task's time: startup + units * per_unit, fitted by least squares with forgetting."""

    hint: CostHint
    startup: float = 0.0
    #: Seconds per cost unit; 0 while nothing is known.
    per_unit: float = 0.0
    #: Units of the largest measured batch.
    largest: int = 0
    #: Mean units of a record.
    record_units: float = 1.0
    #: Upper bound of the start's seconds, as far as known; ``startup`` is the lower bound.
    longest_startup: float = math.inf
    _sums: tuple[float, ...] = (0.0,) * 5
    _plain: tuple[float, ...] = (0.0,) * 4
    _shortest: float = math.inf
    _is_new: bool = False

    def __post_init__(self) -> None:
        self.startup = self.hint.startup_seconds
        if self.hint.start_units:
            self.per_unit = self.startup / self.hint.start_units
            self.longest_startup = self.startup
            self.record_units = max(1.0, self.hint.longest)
        if learnt := self.hint.learnt:
            scale = min(1.0, MAX_LEARNT_TASKS / learnt.plain[0])
            self._sums, self._plain = (tuple(scale * each for each in sums) for sums in (learnt.sums, learnt.plain))
            self._shortest, self.largest = learnt.shortest, learnt.largest
            self._fit_costs()

    @property
    def cost_sums(self) -> CostSums | None:
        """The sums with which later runs may begin; None if nothing was measured."""
        if not self._is_new:
            return None
        return CostSums(sums=self._sums, plain=self._plain, shortest=self._shortest, largest=self.largest)

    def observe_task(self, units: int, seconds: float, records: int = 1) -> None:
        """Learn from a finished task."""
        if units < 1:
            return
        seconds = max(seconds, 1e-6)
        self._shortest = min(self._shortest, seconds)
        self.largest = max(self.largest, units)
        self._is_new = True
        # Records differ, so a task's error grows with its length: short tasks show the start, long ones the slope.
        weight = seconds**-2
        self._sums = _add_decayed(
            self._sums, weight, units * weight, seconds * weight, units**2 * weight, units * seconds * weight
        )
        self._plain = _add_decayed(self._plain, 1.0, units, seconds, records)
        self._fit_costs()

    def _fit_costs(self) -> None:
        n, x, y, xx, xy = self._sums
        spread = n * xx - x * x
        known = min(self._compute_known_start(), self._shortest)
        least, most = known, self._shortest
        # Batches of similar size cannot separate start from slope: keep the known start, fit the slope.
        if spread > 0.05 * n * xx:
            slope = (n * xy - x * y) / spread
            start = (y - slope * x) / n
            if (tasks := self._plain[0]) > 2:
                # The weights make all sizes count alike, so the residual is the relative error of a task.
                left_over = max(tasks - start * y - slope * xy, 0.0)
                error = 2 * math.sqrt(left_over / (tasks - 2) * xx / spread)
                # A busy machine hides the start in the noise: keep the known start of the tool.
                least, most = max(least, start - error), min(most, start + error)
        if self.hint.start_units:
            least, most = (min(each, MAX_KNOWN_STARTS * known) for each in (least, most))
        self.startup = min(least, self._shortest)
        self.longest_startup = max(most, known)
        n, x, y, total = self._plain
        self.record_units = x / total
        self.per_unit = max((y - self.startup * n) / x, 1e-12)

    def _compute_known_start(self) -> float:
        """Return the start in seconds, as known of the tool: in seconds, or in units, which options change less."""
        n, units, seconds, _ = self._plain
        if not self.hint.start_units:
            return self.hint.startup_seconds
        return self.hint.start_units * seconds / (units + n * self.hint.start_units)

    @property
    def batch_units(self) -> float:
        """Mean units of a batch; 0 while nothing is known."""
        n, units, _, _ = self._plain
        return units / n if n else 0.0

    @property
    def n_ready(self) -> int:
        """Number of batches to keep waiting for each slot: one, more if they are short and small."""
        n, units, seconds, _ = self._plain
        if not n or self.hint.unit == "records":
            return 1
        return max(1, int(min(READY_SECONDS * n / seconds, MAX_READY_UNITS * n / units, MAX_READY_BATCHES)))

    @property
    def start_units(self) -> int:
        """Units that take as long as the tool's start; at least 1."""
        return max(1, int(self.startup / self.per_unit)) if self.per_unit else 1

    @property
    def max_batch_seconds(self) -> float:
        """Maximum seconds of a batch."""
        return max(MAX_BATCH_SECONDS, MAX_BATCH_STARTS * self.startup, MAX_BATCH_GUESSED_STARTS * self.longest_startup)

    @property
    def longest_units(self) -> float:
        """Units of the longest record that the input may have: by its length, or by the spread of the tool."""
        return max(self.hint.longest, self.hint.spread * self.record_units)

    def is_mostly_start(self, units: int) -> bool:
        """Tell whether a batch is short beside the start because nothing larger was measured yet."""
        return MAX_GROWTH * self.largest <= units and units * self.per_unit < MIN_BATCH_STARTS * self.startup

    def compute_max_bytes(self, slots: int) -> int:
        """Return the maximum bytes of a batch."""
        if self.startup < LONG_START_SECONDS:
            return MAX_BATCH_BYTES
        return max(MAX_BATCH_BYTES, MAX_ALL_BATCHES_BYTES // (2 * slots))


def _add_decayed(sums: tuple[float, ...], *new: float) -> tuple[float, ...]:
    return tuple(MEMORY * old + one for old, one in zip(sums, new, strict=True))


def compute_batch_units(model: CostModel, slots: int, remaining: float | None, cut: float = 0.0) -> int:
    """Return the units of the next batch.

    Args:
        model: The cost model.
        slots: Number of tasks that run side by side.
        remaining: Estimated units not yet cut; None: unknown.
        cut: Units of the batches that this run has cut.

    Returns:
        At least 1; a batch ends with the record that reaches it.
    """
    hint = model.hint
    if not model.per_unit:
        probe = float(max(hint.pass_units, PROBE_UNITS)) if hint.unit != "records" else 1.0
        return max(1, int(min(probe, remaining / (8 * slots)) if remaining is not None else probe))
    worthwhile = max(MIN_BATCH_STARTS * model.startup, HANDLING_SECONDS * slots) / model.per_unit
    most = _compute_max_units(model, slots, remaining)
    if remaining is None:
        starts = MAX_BATCH_STARTS * model.startup / model.per_unit
        units = max(MAX_UNKNOWN_END_SECONDS / model.per_unit, 2 * worthwhile, starts)
    else:
        units = max(_compute_share(model, slots, remaining, remaining + cut, most), worthwhile)
    if slots == 1 and remaining is not None:
        # The only slot: sizes need not shrink, so use as few batches as possible, of one size.
        most = remaining / max(1, math.ceil(remaining / most - LAST_PART))
    units = min(units, most)
    if hint.pass_units and units > 2 * hint.pass_units:
        units -= units % hint.pass_units
    return max(1, int(units))


def _compute_max_units(model: CostModel, slots: int, remaining: float | None) -> float:
    """Return the maximum units of the next batch, however much is left."""
    most = model.max_batch_seconds / model.per_unit
    alone = MAX_BATCH_STARTS * model.startup / model.per_unit
    if remaining is not None and alone < model.record_units and is_tail(model, slots, remaining):
        most = min(most, alone)  # what a long record takes is predicted badly: two of them could end last
    if model.largest or slots > 1:  # before the first measurement, the known start is a guess
        most = min(most, max(MAX_GROWTH * model.largest, MAX_BATCH_STARTS * model.hint.start_units))
    return most


def _compute_share(model: CostModel, slots: int, remaining: float, total: float, most: float) -> float:
    """Return the units of what is left, of ``total`` units of this run, that the next batch of a slot may have."""
    share = remaining / slots
    if slots == 1:
        return share  # no other slot waits for it
    part = _compute_part(model, share)
    if is_tail(model, slots, remaining):
        return min(part, TAIL_PART) * share
    if not model.cost_sums:
        # The slots begin together, and batches of one size keep them so.
        whole = total / slots
        kept_back = (1.0 - _compute_part(model, whole)) * whole * model.per_unit
        if kept_back <= KEPT_BACK * model.startup:
            return min(share, whole / max(1, math.ceil(whole / most)))
    # Later, slots become free at different times, and only small batches even that out.
    return part * share


def _compute_part(model: CostModel, share: float) -> float:
    """Return the part of ``share`` units that a batch may have, so that errors even out."""
    return 1.0 / (1.0 + SPREAD / math.sqrt(max(share / model.record_units, 1.0)))


def fit_to_record_end(ends: Sequence[int], remaining: float, units: int) -> int:
    """Return the units, near ``units``, of a batch that ends with a record, where the size of each record is known.

    Args:
        ends: Units of the input up to the end of each record.
        remaining: Units not yet cut.
        units: At least 1.

    Returns:
        At least 1; all that is left rather than so little of it that another start would not pay.
    """
    if remaining < LEFT_OVER * units:
        return max(1, math.ceil(remaining))
    begun = ends[-1] - remaining
    reaches = min(bisect_left(ends, begun + units), len(ends) - 1)
    over, under = ends[reaches] - begun, ends[reaches - 1] - begun if reaches else 0.0
    return max(1, int(under if under > 0 and units - under < over - units else over))


def is_tail(model: CostModel, slots: int, remaining: float, *, fixed: bool = False) -> bool:
    """Tell whether so little is left that all of it is cut beforehand.

    With measured sizes: a rest that does not take long, once no size depends on later measurements; and only if there
    are records for which the others would wait longer than more starts of the tool take. With the user's sizes: as much
    as the slots may have in their queues.

    Args:
        model: The cost model.
        slots: Number of tasks that run side by side.
        remaining: Estimated units not yet cut.
        fixed: The user set the size of batches.
    """
    if not model.per_unit or model.hint.unit == "records" or remaining > min(slots * MAX_BATCH_BYTES, MAX_TAIL_BYTES):
        return False  # the sizes of records are unknown: no batch can go first
    if fixed:
        return remaining <= slots * MAX_READY_BATCHES * model.batch_units
    waiting = (1 - 1 / slots) * model.hint.longest * model.per_unit
    tail = max(TAIL_SECONDS / model.per_unit, TAIL_LONGEST * model.longest_units)
    return waiting > TAIL_STARTS * model.startup and remaining / slots <= min(tail, MAX_GROWTH * model.largest)
