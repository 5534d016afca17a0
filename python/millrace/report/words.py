"""Formatting of numbers for people: counts, rates, durations, sizes, record ranges. Pure functions."""

from __future__ import annotations

from millrace.words import format_count, format_scaled, format_size

__all__ = [
    "format_count",
    "format_duration",
    "format_percent",
    "format_records",
    "format_scaled",
    "format_size",
    "format_span",
]


def format_duration(seconds: float) -> str:
    """Format a time span with its two largest units.

    >>> format_duration(0.042), format_duration(8.24), format_duration(61), format_duration(3 * 3600 + 125), format_duration(200_000)
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


def format_span(low: float, high: float) -> str:
    """Format a range of durations, once if both ends read alike.

    >>> format_span(50, 80), format_span(3.0, 3.0)
    ('50 s to 1 min 20 s', '3.0 s')
    """
    first, last = format_duration(low), format_duration(high)
    return first if first == last else f"{first} to {last}"


def format_records(first: int, last: int) -> str:
    """Format the records ``[first, last)`` counted from 1.

    >>> format_records(0, 1), format_records(4, 9)
    ('record 1', 'records 5-9')
    """
    return f"record {first + 1}" if last - first == 1 else f"records {first + 1}-{last}"


def format_percent(part: float) -> str:
    """Format a share of one as a percentage; never 100 % for less than all, nor 0 % for more than nothing.

    >>> format_percent(0.5), format_percent(0.9999), format_percent(1.0), format_percent(0.0001)
    ('50 %', '99.9 %', '100 %', '0.1 %')
    """
    if 0 < part < 0.01 or 0.99 < part < 1:
        return f"{min(max(part * 100, 0.1), 99.9):.1f} %"
    return f"{part * 100:.0f} %"
