"""Parser of the options in a tool's help text. Pure; a help text is written for people, so the results are guesses."""

from __future__ import annotations

import re

import msgspec

#: Names at the begin of a line: ``-o, --out``, ``-quiet``, ``--in1=<file>``.
_NAMES = re.compile(r"\s{0,10}(-{1,2}[A-Za-z0-9][\w.-]*(?:\s?[,|/ ]\s?-{1,2}[A-Za-z0-9][\w.-]*)*)(?P<rest>.*)")

#: The value between several names, as argparse writes them: ``-o OUT, --out OUT``.
_VALUE_BETWEEN = re.compile(r"(?<=[\w-])[ =](?:[A-Z][A-Z0-9_]*|\{[^}\s]*\}|<[^>]*>)(?=,\s-{1,2}[A-Za-z0-9])")

#: Text behind the names of an option that takes a value.
_VALUE = re.compile(
    r"(=|\s?<|\s?\[?=|\s\{|\s[A-Z][A-Z0-9_]*\b(?=\s|$)|\s(str|string|int|float|num|n|file|path|dir|uint|name|number)\b)"
)

#: A type at the end, as fastp and other tools write it: ``(string [=])``.
_TYPE_AT_END = re.compile(r"\((string|int|float|double) \[=.*\]\)")


class HelpOption(msgspec.Struct, frozen=True):
    """An option in a help text."""

    #: All its names, without dashes; the longest first.
    names: tuple[str, ...]
    takes_value: bool
    #: Its description.
    text: str


def parse_help_options(text: str) -> list[HelpOption]:
    """Parse the options of a help text; each is returned once.

    >>> parse_help_options("  -o, --out FILE  where to write\\n  -q --quiet   say nothing")
    [HelpOption(names=('out', 'o'), takes_value=True, text='where to write'), HelpOption(names=('quiet', 'q'), takes_value=False, text='say nothing')]
    >>> parse_help_options("  -o OUT, --out OUT  where to write")
    [HelpOption(names=('out', 'o'), takes_value=True, text='where to write')]
    """
    found: dict[str, HelpOption] = {}
    for line in text.splitlines():
        match = _NAMES.match(_VALUE_BETWEEN.sub("", line))
        if not match:
            continue
        rest = match["rest"]
        names = sorted(
            {name.lstrip("-") for name in re.split(r"[,|/ ]+", match[1].strip())}, key=lambda name: -len(name)
        )
        value = bool(_VALUE.match(rest) or _TYPE_AT_END.search(rest))
        words = re.split(r"\s{2,}|\t", rest.strip(), maxsplit=1)
        said = (words[-1] if len(words) > 1 or not value else "").strip()
        if not any(name in found for name in names):
            found[names[0]] = HelpOption(tuple(names), value, said)
    return list(found.values())


def has_one_dash_names(text: str) -> bool:
    """Tell whether most names of several letters have one dash, as in ``-quiet``."""
    long = re.findall(r"^\s{0,10}(--?)[A-Za-z]\w[\w-]+", text, re.MULTILINE)
    return bool(long) and long.count("-") > len(long) / 2
