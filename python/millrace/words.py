"""Formatting of counts and sizes for people. Pure functions."""

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
