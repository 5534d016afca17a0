"""Formatting of numbers for people: counts, rates, durations, sizes, record ranges. Pure functions."""

from __future__ import annotations

_THOUSANDS = ("", " k", " M", " G", " T", " P")
_SIZES = ("B", "kB", "MB", "GB", "TB", "PB")


def format_scaled(value: float, prefixes: tuple[str, ...] = _THOUSANDS) -> str:
    """Format ``value`` with three digits and a prefix for thousands.

    >>> format_scaled(3.14159), format_scaled(999.6), format_scaled(48_213), format_scaled(7_200_000_000)
    ('3.1', '1.0 k', '48 k', '7.2 G')
    """
    power = 0
    # 999.5 would be shown as 1000: the next prefix begins where the shown digits would overflow.
    while abs(value) >= 999.5 and power < len(prefixes) - 1:
        value /= 1000
        power += 1
    # Two digits below 1: a rate of 0.04 records per second is not "0.0".
    digits = 2 if 0 < abs(value) < 0.995 else 1 if abs(value) < 9.95 and value != int(value) else 0
    if power and abs(value) < 9.95:
        digits = 1
    return f"{value:.{digits}f}{prefixes[power]}"


def format_size(n_bytes: float) -> str:
    """Format a number of bytes: ``5.5 MB`` (powers of 1000, as disks are sold).

    >>> format_size(512), format_size(5_512_000)
    ('512 B', '5.5 MB')
    """
    return format_scaled(n_bytes, tuple(" " + unit for unit in _SIZES))


def format_count(n: int, noun: str) -> str:
    """Format a count with its noun, in the plural where needed.

    >>> format_count(1, "record"), format_count(12_000, "record"), format_count(2, "retry"), format_count(3, "process"), format_count(2, "batch")
    ('1 record', '12,000 records', '2 retries', '3 processes', '2 batches')
    """
    if n == 1:
        return f"1 {noun}"
    if noun.endswith(("s", "ch")):
        return f"{n:,} {noun}es"
    return f"{n:,} {noun[:-1]}ies" if noun.endswith("y") else f"{n:,} {noun}s"


def escape_unprintable(text: str) -> str:
    r"""Escape foreign text for display: control characters, line breaks and changes of text direction.

    >>> escape_unprintable("a\tb\r\u202ec é")
    'a\\tb\\r\\u202ec é'
    """
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


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
