"""What a script of sed carries from line to line (POSIX sed, and what GNU's adds)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from millrace.tools.scripts.arguments import Arguments
from millrace.tools.scripts.carried import Carried, Separator
from millrace.tools.scripts.quoted import behind

#: Commands by which a line's output depends on others, and why.
_WHY = {
    **dict.fromkeys("qQ", Carried("ends at a line: what follows depends on the lines before", is_local=False)),
    **dict.fromkeys("nND", Carried("reads the next line")),
    **dict.fromkeys("hHgx", Carried("uses the hold space, which goes on from line to line")),
    "=": Carried("numbers the lines", is_local=False, is_counted=True),
    "R": Carried("reads a line of another file for each", is_local=False),
}
_LINE = Carried("has numbers of lines", is_local=False, is_counted=True)
_RANGE = Carried("has a range of lines")


def carried(script: str, below_header: bool = False) -> Carried | None:
    """What the script carries from line to line; None: nothing is seen.

    Args:
        below_header: Each part begins with line 1.

    >>> carried("s/a/b/g; /x/!d; /y/{s,/,|,;p}")
    >>> carried("1d; s/a/b/", below_header=True)
    >>> for script in ("/a/,/b/d", "1d", "y/abc/xyz/;N", "/>/q"):
    ...     print(carried(script).why)
    has a range of lines
    has numbers of lines
    reads the next line
    ends at a line: what follows depends on the lines before
    """
    return next(_found(script, below_header), None)


def separators(script: str) -> Iterator[Separator]:
    """A script has no say in what ends a record."""
    return iter(())


def separators_of_options(given: Arguments) -> Iterator[Separator]:
    """What ``-z`` says."""
    if given.has("z"):
        yield Separator("-z", is_nul=True)


def _found(script: str, below_header: bool) -> Iterator[Carried]:
    at = 0
    while True:
        at = _past(script, at, r"[\s;}]*")
        if at >= len(script):
            return
        if script[at] == "#":
            at = _past(script, at, r"[^\n]*")
            continue
        end = _address(script, at)
        if end != at:
            if script[at] not in "/\\" and not (below_header and script[at:end] == "1"):
                yield _LINE
            if re.compile(r"\s*,").match(script, end):
                yield _RANGE
        at = _past(script, end, r"[\s!]*")
        if at >= len(script):
            return
        command = script[at]
        if command in _WHY:
            yield _WHY[command]
        at = _end(script, at + 1, command)


def _address(script: str, at: int) -> int:
    """The place behind the address that begins there, if one does."""
    if script[at] == "/":
        return _past(script, behind(script, at + 1, "/"), "[IM]*")
    if script[at] == "\\" and at + 1 < len(script):
        return _past(script, behind(script, at + 2, script[at + 1]), "[IM]*")
    return _past(script, at, r"\$|[\d~+]*")


def _end(script: str, at: int, command: str) -> int:
    """The place behind what belongs to a command."""
    if command in "sy" and at < len(script):
        end = script[at]
        at = behind(script, behind(script, at + 1, end), end)
        return _past(script, at, r"[\w ]*w [^\n]*|\w*")
    if command in "aic":  # text goes to the end of the line, and on where a backslash stands there
        return _past(script, at, r"(?:\\\n|\\.|[^\n\\])*")
    if command in ":btT":
        return _past(script, at, r"[ \t]*[^\s;}]*")
    if command in "rRwWev":
        return _past(script, at, r"[^\n]*")
    return at


def _past(script: str, at: int, pattern: str) -> int:
    found = re.compile(pattern).match(script, at)
    return found.end() if found else at
