"""The one place through which words reach a terminal: what would steer it is shown, and not sent.

Names of records, files and hosts, and the words of tools, run directories and packs, may be a stranger's. Escape sequences in them
could change a title, paste keys, or paint over what Millrace has said.
"""

from __future__ import annotations

import io
import re
import sys
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.console import Console

#: What may steer a terminal or turn the direction of text: control characters but for line ends and tabs, and marks of Unicode
#: that are not seen.
_STEERING = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202f\u205f-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e0fff]"
)


def escape(text: str) -> str:
    r"""Show what would steer a terminal, as JSON writes it: a document of JSON stays the same one.

    >>> escape("a\tb\n"), escape("\x1b[2J\r\u202ec é")
    ('a\tb\n', '\\u001b[2J\\u000d\\u202ec é')
    """
    return _STEERING.sub(_written, text)


def _written(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


class _PlainStream(io.TextIOWrapper):
    """Text in the place of another stream with the same buffer."""

    #: That stream, kept, as one that goes closes its buffer.
    below: TextIO | None = None


class EscapingStream(_PlainStream):
    """Text that is escaped on its way; bytes that go to its `buffer` are not."""

    _plain: _PlainStream | None = None

    def write(self, text: str, /) -> int:
        """Write ``text``, escaped."""
        super().write(escape(text))
        return len(text)

    @property
    def plain(self) -> TextIO:
        """The same for whoever escapes what is a stranger's, and steers the terminal: nothing is held back in it."""
        if self._plain is None:
            self._plain = _PlainStream(self.buffer, encoding=self.encoding, errors=self.errors, write_through=True)
            self._plain.below = self
        return self._plain


def unescaped(stream: TextIO) -> TextIO:
    """A stream that writes as it is told."""
    if not isinstance(stream, EscapingStream):
        return stream
    stream.flush()
    return stream.plain


def standard_output() -> TextIO:
    """Standard output with names escaped; on a terminal also the bytes of names that are not UTF-8, which elsewhere are given on."""
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
    """A console of rich that escapes what it draws, and sends its own sequences as they are.

    A broken pipe is an error as any other: rich would point standard output, which may carry results, elsewhere and exit.
    """
    from collections.abc import Iterable

    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

    class EscapingConsole(Console):
        def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
            for segment in super().render(renderable, options):
                yield segment if segment.control else Segment(escape(segment.text), segment.style)

        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    return EscapingConsole(
        file=unescaped(stream), force_terminal=force_terminal, highlight=False, markup=False, emoji=False
    )
