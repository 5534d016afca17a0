"""The arguments of awk, sed and perl, as the programs themselves read them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from millrace.tools.options import words

#: Letters of options that take a value, which may be the next word.
_VALUES = {"awk": "FvfeiElW", "sed": "efl", "perl": "eEI"}
#: Letters of options that take what is attached to them, if anything is.
_ATTACHED = {
    "awk": dict.fromkeys("dDLop", ".*"),
    "sed": {"i": ".*"},
    "perl": {**dict.fromkeys("FimMxDVd", ".*"), "0": "[xX][0-9a-fA-F]+|[0-7]*", "l": "[0-7]*", "C": r"\d+|[IOEioADSLa]*"},
}  # fmt: skip
#: Long options with their letters; none where it does not matter here.
_LONG = {
    "awk": {
        "source": "e", "file": "f", "exec": "E", "field-separator": "F", "assign": "v", "include": "i", "load": "l",
        **dict.fromkeys(words("""
            bignum characters-as-bytes copyright csv debug dump-variables gen-pot help lint lint-old non-decimal-data
            no-optimize optimize posix pretty-print profile re-interval sandbox trace traditional use-lc-numeric version
        """), ""),
    },
    "sed": {
        "expression": "e", "file": "f", "line-length": "l", "null-data": "z", "zero-terminated": "z",
        **dict.fromkeys(words("""
            binary debug follow-symlinks help in-place posix quiet regexp-extended sandbox separate silent unbuffered version
        """), ""),
    },
    "perl": {},
}  # fmt: skip


class Arguments(NamedTuple):
    """The arguments of a command."""

    #: Letters and their values, in their order.
    options: list[tuple[str, str]]
    operands: list[str]

    def has(self, letters: str) -> bool:
        """Whether one of these options is given."""
        return any(letter in letters for letter, _ in self.options)


def read(kind: str, arguments: Sequence[str]) -> Arguments:
    """Options and operands of a command of ``awk``, ``sed`` or ``perl``.

    >>> read("sed", ["r.txt", "-ne", "p", "--expr=q", "--", "-z"])
    Arguments(options=[('n', ''), ('e', 'p'), ('e', 'q')], operands=['r.txt', '-z'])
    >>> read("awk", ["-F,", "{print}", "-f"]), read("perl", ["-l0777ne", "print"]).options
    (Arguments(options=[('F', ',')], operands=['{print}', '-f']), [('l', '0777'), ('n', ''), ('e', 'print')])
    """
    given, left = Arguments([], []), iter(arguments)
    for word in left:
        if word == "--":
            given.operands.extend(left)
        elif word.startswith("-") and word != "-":
            given.options.extend(_options(kind, word, left))
            if given.options and given.options[-1][0] == "E" and kind == "awk":
                given.operands.extend(left)  # the last option, so that no other is smuggled in
        else:
            given.operands.append(word)
            if kind != "sed":  # sed takes options behind operands, too
                given.operands.extend(left)
    return given


def _options(kind: str, word: str, left: Iterator[str]) -> Iterator[tuple[str, str]]:
    """The letters of options in a word and their values."""
    if word.startswith("--"):
        name, equal, value = word[2:].partition("=")
        if letter := _letter(kind, name):
            yield letter, "" if letter not in _VALUES[kind] else value if equal else next(left, "")
        return
    at = 1
    while at < len(word):
        letter, rest = word[at], word[at + 1 :]
        if letter in _VALUES[kind]:
            value = rest or next(left, "")
            if letter == "W" and kind == "awk":
                yield from _options(kind, f"--{value}", left)
            else:
                yield letter, value
            return
        found = re.match(_ATTACHED[kind].get(letter, ""), rest, re.DOTALL)
        yield letter, found.group() if found else ""
        at += 1 + (found.end() if found else 0)


def _letter(kind: str, name: str) -> str:
    """The letter of a long option, which may be cut short."""
    known = _LONG[kind]
    return known.get(name) or next((letter for long, letter in known.items() if long.startswith(name)), "")
