"""Text for people: numbers, durations, sizes and record ranges; and the one way of all text to a terminal.

Names of records, files and hosts, and texts of tools, run directories and packs, may come from strangers. Their escape
sequences could change a title, paste keys, or overwrite messages of Millrace. So control characters are shown, not sent.
"""

from __future__ import annotations

import io
import re
import sys
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.console import Console


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


#: Characters that may steer a terminal or turn the direction of text: control characters except line ends and tabs,
#: and invisible marks of Unicode.
_STEERING = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202f\u205f-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e0fff]"
)


def escape_controls(text: str) -> str:
    r"""Escape the characters that could steer a terminal, as JSON does: a JSON document keeps its meaning.

    >>> escape_controls("a\tb\n"), escape_controls("\x1b[2J\r\u202ec é")
    ('a\tb\n', '\\u001b[2J\\u000d\\u202ec é')
    """
    return _STEERING.sub(_escape_match, text)


def _escape_match(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


class _PlainStream(io.TextIOWrapper):
    """A text stream over the buffer of another one."""

    #: The other stream, kept alive, as its destructor closes the buffer.
    below: TextIO | None = None


class EscapingStream(_PlainStream):
    """A text stream that escapes; bytes written to its ``buffer`` are not escaped."""

    _plain: _PlainStream | None = None

    def write(self, text: str, /) -> int:
        """Write ``text``, escaped."""
        super().write(escape_controls(text))
        return len(text)

    @property
    def plain(self) -> TextIO:
        """The same stream without escaping, unbuffered, for code that escapes by itself and steers the terminal."""
        if self._plain is None:
            self._plain = _PlainStream(self.buffer, encoding=self.encoding, errors=self.errors, write_through=True)
            self._plain.below = self
        return self._plain


def get_unescaped_stream(stream: TextIO) -> TextIO:
    """Return the stream without escaping."""
    if not isinstance(stream, EscapingStream):
        return stream
    stream.flush()
    return stream.plain


def escape_standard_output() -> TextIO:
    """Return standard output with names escaped.

    On a terminal, bytes of names that are not UTF-8 are escaped too; elsewhere they are passed on.
    """
    there = sys.stdout
    if isinstance(there, EscapingStream) or not isinstance(there, io.TextIOWrapper):
        return there
    is_shown = there.isatty()
    encoding = "utf-8" if there.encoding.lower() in ("ascii", "ansi_x3.4-1968", "us-ascii") else there.encoding
    errors = "backslashreplace" if is_shown else "surrogateescape"
    found = EscapingStream(there.buffer, encoding=encoding, errors=errors, line_buffering=is_shown)
    found.below = there
    return found


def make_console(stream: TextIO, *, force_terminal: bool | None = None) -> Console:
    """Make a console of rich that escapes text and sends rich's own sequences unchanged.

    A broken pipe raises as any other error: rich would redirect standard output, which may carry results, and exit.
    """
    from collections.abc import Iterable

    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

    class EscapingConsole(Console):
        def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
            for segment in super().render(renderable, options):
                yield segment if segment.control else Segment(escape_controls(segment.text), segment.style)

        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    return EscapingConsole(
        file=get_unescaped_stream(stream), force_terminal=force_terminal, highlight=False, markup=False, emoji=False
    )
