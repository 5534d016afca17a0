"""Estimate of a run's remaining time as a range, from the progress so far. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import sqrt

#: Number of time windows whose rates are compared: more would be too short, fewer too few for a spread.
N_WINDOWS = 12
#: Minimum number of steps of progress before there is an estimate.
MIN_STEPS = 3
#: Number of standard errors from the middle to either end of the range.
REACH = 2.0


def estimate_remaining(history: Sequence[tuple[float, float]], total: float) -> tuple[float, float, float] | None:
    """Estimate the seconds that are left, as (low, likely, high).

    The observed time is cut into windows; the rate of work in each is one sample. The range follows from the
    differences of these samples: from the error of their mean, and from how much the few remaining windows may still
    differ from it. A rate that drifts (expensive records at the end) widens the range to both ends of the drift, and
    time without progress counts as slow.

    Args:
        history: Pairs (elapsed seconds, amount done so far), both growing; the first may start above 0 (a
            resumed run), only differences count.
        total: Total amount, in the same unit.

    Returns:
        Seconds from the last point of ``history`` on, or None while too little was seen.

    >>> estimate_remaining([(0, 0), (10, 100), (20, 200), (30, 300)], 600)
    (28.5, 30.0, 31.5)
    """
    steps = sum(1 for before, after in pairwise(history) if after[1] > before[1])
    if steps < MIN_STEPS or history[-1][0] <= history[0][0]:
        return None
    left = total - history[-1][1]
    if left <= 0:
        return (0.0, 0.0, 0.0)
    n_windows = min(N_WINDOWS, steps)
    rates = _compute_rates(history, n_windows)
    mean = sum(rates) / n_windows
    recent = _compute_mean(rates[n_windows // 2 :])
    # The newer half counts twice: it is nearer to the rest, yet too short to be trusted alone.
    likely = (mean + 2 * recent) / 3
    if likely <= 0:
        likely = mean
    window_seconds = (history[-1][0] - history[0][0]) / n_windows
    windows_left = max(left / likely / window_seconds, 0.5)
    spread = sqrt(sum((rate - mean) ** 2 for rate in rates) / max(n_windows - 1, 1))
    doubt = REACH * spread * sqrt(1 / n_windows + 1 / windows_left)
    fast = max(mean, recent) + doubt
    # Twelve windows cannot show that a rate below a fifth of the likely one is real.
    slow = max(min(mean, recent) - doubt, likely / 5)
    seconds = left / likely
    return (min(left / fast, seconds * 0.95), seconds, max(left / slow, seconds * 1.05))


def _compute_mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _compute_rates(history: Sequence[tuple[float, float]], n_windows: int) -> list[float]:
    """Return the amount per second in each of ``n_windows`` equal windows, by linear interpolation."""
    start, end = history[0][0], history[-1][0]
    width = (end - start) / n_windows
    edges = [_interpolate_amount(history, start + width * index) for index in range(n_windows)] + [history[-1][1]]
    return [(after - before) / width for before, after in pairwise(edges)]


def _interpolate_amount(history: Sequence[tuple[float, float]], when: float) -> float:
    """Return the amount done at ``when``, on the straight line between the points around it."""
    for (t0, done0), (t1, done1) in pairwise(history):
        if t0 <= when <= t1:
            return done1 if t1 == t0 else done0 + (done1 - done0) * (when - t0) / (t1 - t0)
    return history[-1][1]


class ProgressHistory:
    """Amounts done over time: at most ``limit`` points, thinned evenly as time goes on."""

    def __init__(self, limit: int = 256) -> None:
        self._limit = limit
        self._points: list[tuple[float, float]] = []
        self._gap = 0.0

    def add_point(self, elapsed: float, done: float) -> None:
        """Add the point ``done`` at ``elapsed`` seconds. The newest point is always kept."""
        points = self._points
        if len(points) > 1 and elapsed - points[-2][0] < self._gap:
            points[-1] = (elapsed, done)
        else:
            points.append((elapsed, done))
        if len(points) > self._limit:
            self._points = points[:-1:2] + points[-1:]
            self._gap = (points[-1][0] - points[0][0]) / self._limit * 2

    def estimate_remaining(self, total: float) -> tuple[float, float, float] | None:
        """Estimate the seconds left; see ``estimate_remaining``."""
        return estimate_remaining(self._points, total)
