"""How large the next batch is: from the measured cost, large while much is left, tapering to single records."""

from __future__ import annotations

from dataclasses import dataclass, field

from millrace.model import CostHint

#: A batch is at most this share of what is left for one slot: 1 / FACTOR of it.
FACTOR = 1.5

#: Seconds that a batch takes at most, so that a crash loses little and output keeps flowing.
LONGEST_SECONDS = 30.0

#: The same when the end is not known (a pipe): then the tail may come at any time.
LONGEST_UNKNOWN_SECONDS = 5.0

#: A batch lasts at least this many times the tool's start (10 %), unless that would leave slots without work.
WORTHWHILE = 10.0

#: Weight that an older observation keeps when a new one comes.
MEMORY = 0.9

#: Units of the first batches, before anything is measured.
PROBE_UNITS = 4000


@dataclass
class CostModel:
    """Seconds of a task = startup + units * per_unit, fitted by least squares with forgetting."""

    hint: CostHint
    startup: float = field(init=False)
    #: Seconds per cost unit; 0 while nothing is known.
    per_unit: float = 0.0
    _sums: tuple[float, ...] = (0.0, 0.0, 0.0, 0.0, 0.0)
    _shortest: float = float("inf")

    def __post_init__(self) -> None:
        self.startup = self.hint.startup_seconds

    def observe(self, units: int, seconds: float) -> None:
        """Learn from a finished task."""
        if units < 1:
            return
        self._shortest = min(self._shortest, seconds)
        new = (1.0, units, seconds, float(units) * units, units * seconds)
        self._sums = tuple(MEMORY * old + one for old, one in zip(self._sums, new, strict=True))
        n, x, y, xx, xy = self._sums
        spread = n * xx - x * x
        # Batches of alike size cannot tell start from slope: keep the start that is known, fit the slope.
        if spread > 0.05 * n * xx:
            slope = (n * xy - x * y) / spread
            start = (y - slope * x) / n
            if slope > 0 and start >= 0:
                self.startup = min(start, self._shortest)
        self.startup = min(self.startup, self._shortest)
        self.per_unit = max((y - self.startup * n) / x, 1e-12)


def next_units(model: CostModel, slots: int, remaining: float | None) -> int:
    """Units of the next batch.

    Args:
        model: What is known of the cost.
        slots: How many tasks run side by side.
        remaining: Units not yet cut, as estimated; None: unknown.

    Returns:
        At least 1; a batch ends with the record that reaches it.
    """
    hint = model.hint
    if not model.per_unit:
        probe = float(max(hint.pass_units, PROBE_UNITS)) if hint.unit != "records" else 1.0
        return max(1, int(min(probe, remaining / (8 * slots)) if remaining is not None else probe))
    longest = (LONGEST_SECONDS if remaining is not None else LONGEST_UNKNOWN_SECONDS) / model.per_unit
    start = model.startup / model.per_unit
    if remaining is None:
        units = longest
    else:
        guided = max(remaining / (FACTOR * slots), WORTHWHILE * start)
        units = min(guided, longest, max(remaining / slots, start))
    if hint.pass_units and units > 2 * hint.pass_units:
        units -= units % hint.pass_units
    return max(1, int(units))
