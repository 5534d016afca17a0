"""Formatting of numbers for people: counts, rates, durations, sizes, record ranges. Pure functions."""

from __future__ import annotations

from millrace.words import count, scaled, size

__all__ = ["count", "duration", "percent", "records", "scaled", "size", "span"]


def duration(seconds: float) -> str:
    """Format a time span with its two largest units.

    >>> duration(0.042), duration(8.24), duration(61), duration(3 * 3600 + 125), duration(200_000)
    ('42 ms', '8.2 s', '1 min 1 s', '3 h 2 min', '2 d 7 h')
    """
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for size_, name, smaller_size, smaller in (
        (86_400, "d", 3_600, "h"),
        (3_600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if whole >= size_:
            rest = whole % size_ // smaller_size
            return f"{whole // size_} {name} {rest} {smaller}" if rest else f"{whole // size_} {name}"
    return f"{whole} s"


def span(low: float, high: float) -> str:
    """Format a range of durations, once if both ends read alike.

    >>> span(50, 80), span(3.0, 3.0)
    ('50 s to 1 min 20 s', '3.0 s')
    """
    first, last = duration(low), duration(high)
    return first if first == last else f"{first} to {last}"


def records(first: int, last: int) -> str:
    """Format the records ``[first, last)`` counted from 1.

    >>> records(0, 1), records(4, 9)
    ('record 1', 'records 5-9')
    """
    return f"record {first + 1}" if last - first == 1 else f"records {first + 1}-{last}"


def percent(part: float) -> str:
    """Format a share of one as a percentage; never 100 % for less than all, nor 0 % for more than nothing.

    >>> percent(0.5), percent(0.9999), percent(1.0), percent(0.0001)
    ('50 %', '99.9 %', '100 %', '0.1 %')
    """
    if 0 < part < 0.01 or 0.99 < part < 1:
        return f"{min(max(part * 100, 0.1), 99.9):.1f} %"
    return f"{part * 100:.0f} %"
