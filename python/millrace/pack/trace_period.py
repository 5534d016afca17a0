"""The period of an event log, found by FFT, and columns as the first period and the differences of later ones.

Source: ParaMEDIC's packing of MPE traces (Balaji, Feng, Archuleta, Lin, 2007).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from millrace.pack.trace_table import Numbers, TraceColumn

#: Events from which the period is found.
SAMPLE_EVENTS = 1 << 18

#: Least autocorrelation of the columns at the period.
MIN_RECURRING_SHARE = 0.3

#: The period is the shortest lag with at least this share of the correlation of the best lag.
MIN_SHARE_OF_BEST_LAG = 0.95

#: Values at most of a column by which events are grouped, such as a rank or a thread.
MAX_GROUPS = 4096


def find_period(columns: Sequence[TraceColumn]) -> int:
    """Return the number of events after which the columns recur; 0: there is no period.

    >>> import numpy as np
    >>> find_period([TraceColumn(np.array([5, 1, 1, 9] * 50))]), find_period([TraceColumn(np.arange(200))])
    (4, 0)
    """
    signals = [signal for each in columns if (signal := _make_signal(each)) is not None]
    if not signals:
        return 0
    n = len(signals[0])
    size = 1 << (2 * n - 1).bit_length()
    # The mean autocorrelation of all columns: 1 if each is the same after the lag.
    power = sum(np.abs(np.fft.rfft(signal, size)) ** 2 for signal in signals)
    lags = np.fft.irfft(power, size)[: n // 2]
    shares = lags / np.arange(n, n - len(lags), -1) / len(signals)
    best = float(shares[1:].max()) if len(shares) > 1 else 0.0
    if best < MIN_RECURRING_SHARE:
        return 0
    return 1 + int(np.argmax(shares[1:] >= MIN_SHARE_OF_BEST_LAG * best))


def _make_signal(column: TraceColumn) -> Any:
    """Return the steps or words of a column as a signal with mean 0 and variance 1; None: it is constant or short."""
    values = column.values[: SAMPLE_EVENTS + 1]
    if len(values) < 4:
        return None
    if column.words is None:
        steps = np.diff(values).astype(np.float64)
        low, high = np.percentile(steps, (1, 99))
        signal = np.clip(steps, low, high)
    else:  # a hash, so that each word has its own level
        scattered = (values[1:].astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        signal = (scattered >> np.uint64(40)).astype(np.float64)
    signal = signal - signal.mean()
    spread = float(signal.std())
    return signal / spread if spread > 0 else None


def find_groupings(columns: Sequence[TraceColumn]) -> Iterator[int]:
    """Yield the indices of columns by which events may be grouped, after -1 for no grouping."""
    yield -1
    for index, column in enumerate(columns):
        if 2 <= len(np.unique(column.values[:SAMPLE_EVENTS])) <= min(MAX_GROUPS, len(column.values) // 8):
            yield index


def compute_differences(values: Numbers, period: int, *, by_steps: bool) -> Numbers:
    """Return the first ``period`` values, then the difference of each from the value a period before, modulo 2**64.

    Args:
        by_steps: Take differences of the steps from value to value, not of the values.
    """
    with np.errstate(over="ignore"):
        base = np.diff(values, prepend=np.int64(0)) if by_steps else values
        out = base.copy()
        if period:
            out[period:] -= base[:-period]
    return out


def sum_differences(found: Numbers, period: int, *, by_steps: bool) -> Numbers:
    """Restore the values from which ``compute_differences`` has made ``found``."""
    n, out = len(found), found
    with np.errstate(over="ignore"):
        if period:
            padded = np.zeros(-(-n // period) * period, dtype=np.int64)
            padded[:n] = found
            out = padded.reshape(-1, period).cumsum(axis=0).ravel()[:n]
        return out.cumsum() if by_steps else out
