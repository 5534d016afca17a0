"""The period of an event log, found by FFT, and a column as the first period and what later ones differ by.

Source: ParaMEDIC's packing of MPE traces (Balaji, Feng, Archuleta, Lin, 2007).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from millrace.pack.trace_table import Column, Numbers

#: Events that are looked at for the period.
SAMPLE = 1 << 18

#: Share of what columns do that recurs after a period, at least.
LEAST = 0.3

#: Of the best lag's correlation, that of the shortest lag that is taken for the period.
AS_GOOD = 0.95

#: Most values of a column by which events are put together: a rank, a thread.
MOST_GROUPS = 4096


def find(columns: Sequence[Column]) -> int:
    """After how many events what happens recurs; 0: there is no period.

    >>> import numpy as np
    >>> find([Column(np.array([5, 1, 1, 9] * 50))]), find([Column(np.arange(200))])
    (4, 0)
    """
    signals = [signal for each in columns if (signal := _signal(each)) is not None]
    if not signals:
        return 0
    n = len(signals[0])
    size = 1 << (2 * n - 1).bit_length()
    # What recurs in all columns at once: a share of 1 if each is the same after the lag.
    power = sum(np.abs(np.fft.rfft(signal, size)) ** 2 for signal in signals)
    lags = np.fft.irfft(power, size)[: n // 2]
    shares = lags / np.arange(n, n - len(lags), -1) / len(signals)
    best = float(shares[1:].max()) if len(shares) > 1 else 0.0
    if best < LEAST:
        return 0
    return 1 + int(np.argmax(shares[1:] >= AS_GOOD * best))


def _signal(column: Column) -> Any:
    """What a column does at each event, with mean 0 and variance 1; None: always the same."""
    values = column.values[: SAMPLE + 1]
    if len(values) < 4:
        return None
    if column.words is None:
        steps = np.diff(values).astype(np.float64)
        low, high = np.percentile(steps, (1, 99))
        signal = np.clip(steps, low, high)
    else:  # each word a level of its own, as if by chance
        scattered = (values[1:].astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        signal = (scattered >> np.uint64(40)).astype(np.float64)
    signal = signal - signal.mean()
    spread = float(signal.std())
    return signal / spread if spread > 0 else None


def groupings(columns: Sequence[Column]) -> Iterator[int]:
    """Columns by which events may be put together, by their index; -1: by none."""
    yield -1
    for index, column in enumerate(columns):
        if 2 <= len(np.unique(column.values[:SAMPLE])) <= min(MOST_GROUPS, len(column.values) // 8):
            yield index


def differences(values: Numbers, period: int, *, by_steps: bool) -> Numbers:
    """The first ``period`` values and then what each differs by from the one a period before, modulo 2**64.

    Args:
        by_steps: Of the steps from value to value, not of the values.
    """
    with np.errstate(over="ignore"):
        base = np.diff(values, prepend=np.int64(0)) if by_steps else values
        out = base.copy()
        if period:
            out[period:] -= base[:-period]
    return out


def summed(found: Numbers, period: int, *, by_steps: bool) -> Numbers:
    """What `differences` was given."""
    n, out = len(found), found
    with np.errstate(over="ignore"):
        if period:
            padded = np.zeros(-(-n // period) * period, dtype=np.int64)
            padded[:n] = found
            out = padded.reshape(-1, period).cumsum(axis=0).ravel()[:n]
        return out.cumsum() if by_steps else out
