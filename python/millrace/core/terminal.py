"""The one way of text to a terminal: control characters are shown, not sent.

Names of records, files and hosts, and texts of tools, run directories and packs, may come from strangers. Their escape
sequences could change a title, paste keys, or overwrite messages of Millrace.
"""

from __future__ import annotations

import io
import re
import sys
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.console import Console

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
