"""Numbers as people read them: counts, rates, durations, sizes, record ranges. Pure functions."""

from __future__ import annotations

_THOUSANDS = ("", " k", " M", " G", " T", " P")
_SIZES = ("B", "kB", "MB", "GB", "TB", "PB")


def scaled(value: float, prefixes: tuple[str, ...] = _THOUSANDS) -> str:
    """Write ``value`` with three digits and a prefix for thousands.

    >>> scaled(3.14159), scaled(999.6), scaled(48_213), scaled(7_200_000_000)
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


def size(n_bytes: float) -> str:
    """Write a number of bytes: ``5.5 MB`` (powers of 1000, as disks are sold).

    >>> size(512), size(5_512_000)
    ('512 B', '5.5 MB')
    """
    return scaled(n_bytes, tuple(" " + unit for unit in _SIZES))


def duration(seconds: float) -> str:
    """Write a time span with its two largest units.

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
    """Write a range of durations, once where both ends read alike.

    >>> span(50, 80), span(3.0, 3.0)
    ('50 s to 1 min 20 s', '3.0 s')
    """
    first, last = duration(low), duration(high)
    return first if first == last else f"{first} to {last}"


def records(first: int, last: int) -> str:
    """Name the records ``[first, last)`` as people count them, from 1.

    >>> records(0, 1), records(4, 9)
    ('record 1', 'records 5-9')
    """
    return f"record {first + 1}" if last - first == 1 else f"records {first + 1}-{last}"


def count(n: int, noun: str) -> str:
    """Write a count with its noun, in the plural where it belongs.

    >>> count(1, "record"), count(12_000, "record"), count(2, "retry"), count(3, "process")
    ('1 record', '12,000 records', '2 retries', '3 processes')
    """
    if n == 1:
        return f"1 {noun}"
    if noun.endswith("s"):
        return f"{n:,} {noun}es"
    return f"{n:,} {noun[:-1]}ies" if noun.endswith("y") else f"{n:,} {noun}s"


def percent(part: float) -> str:
    """Write a share of one as a percentage; never 100 % for what is not whole, nor 0 % for what is something.

    >>> percent(0.5), percent(0.9999), percent(1.0), percent(0.0001)
    ('50 %', '99.9 %', '100 %', '0.1 %')
    """
    if 0 < part < 0.01 or 0.99 < part < 1:
        return f"{min(max(part * 100, 0.1), 99.9):.1f} %"
    return f"{part * 100:.0f} %"
