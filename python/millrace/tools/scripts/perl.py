"""What a one-liner of perl (``-n`` or ``-p``) carries from record to record. Perl cannot be read by rules: it is guessed."""

from __future__ import annotations

import re
from collections.abc import Iterator

from millrace.tools.scripts.arguments import Arguments
from millrace.tools.scripts.carried import Carried, Separator
from millrace.tools.scripts.quoted import behind

_PAIRS = {"{": "}", "(": ")", "[": "]", "<": ">"}

#: Operators on patterns and quoted text, whose text is no code.
_QUOTED = re.compile(
    r"""(?<![\w$@%&>-])(?:(?P<two>s|tr|y)|(?P<one>m|qr|qw|q))\s*(?P<end>[^\w\s;,=)])
    |(?P<regex>(?<![\w)\]}$@])\s*/)|'(?:\\.|[^'\\])*'|(?<!\S)\#[^\n]*$""",
    re.VERBOSE | re.MULTILINE,
)
_LIST = re.compile(r"(?<=[(\[,])\s*[-+\w$#@{}>]+\s*\.\.\s*[-+\w$#@{}>]+\s*(?=[)\],])")
_NAME = r"(?P<name>[A-Za-z_]\w*)"
_SUBSCRIPT = r"(?:->)?(?:\[[^\]]*\]|\{[^}]*\})"
_CHANGE = re.compile(
    rf"(?P<sigil>[$@%]){_NAME}(?:{_SUBSCRIPT})*\s*(?:=(?![=~])|(?:\*\*|\|\||&&|//|<<|>>|[-+*/.|&^x%])=|\+\+|--|=~\s*(?:s|tr|y)\b)"
    rf"|(?:\+\+|--)\s*\$(?P<counted>[A-Za-z_]\w*)|\b(?:push|unshift|splice|pop|shift)\b[\s(]*@(?P<list>\w+)"
)
_OWN = frozenset(("_", "F", "ARGV", "ENV"))
_STOPS = re.compile(r"\b(?:last|exit|eof|readline|getc|state|redo)\b|<(?:STDIN|ARGV|\$?\w*)>")


def carried(code: str) -> Carried | None:
    """What the code carries from line to line; None: nothing is seen.

    >>> carried('s/^(..)/$1 /; print if /x/')
    >>> carried('my $n = () = /a/g; print "$n\\n"')
    >>> for code in ('print if /a/ .. /b/', '$n++; print if $n % 2', 'last if /x/; print'):
    ...     print(carried(code).why)
    has a range of conditions, which goes over lines
    keeps $n from one line to the next
    has last: what follows depends on the lines before
    """
    if found := counted(code):
        return found
    code = _bare(code)
    begun = re.search(r"\bBEGIN\s*\{", code)
    if begun:
        code = code[: begun.start()] + code[_behind(code, begun.end(), "{") :]
    if ".." in _LIST.sub("", re.sub(r'"[^"]*"', '""', code)):
        return Carried("has a range of conditions, which goes over lines")
    if stops := _STOPS.search(code):
        return Carried(
            f"has {stops.group()}: what follows depends on the lines before", stops.group() not in ("last", "exit")
        )
    if re.search(r"\brand\b", code):
        return Carried("has rand: what it draws depends on the lines before", is_local=False)
    for change in _CHANGE.finditer(code):
        name = change["name"] or change["counted"] or change["list"]
        is_read = ("++" in change.group() or "--" in change.group()) or len(re.findall(rf"[$@%]{{?{name}\b", code)) > 1
        if name not in _OWN and is_read and not _is_fresh(code, name):
            sigil = change["sigil"] or ("$" if change["counted"] else "@")
            return Carried(f"keeps {sigil}{name} from one line to the next")
    return None


def counted(code: str) -> Carried | None:
    """What the code, with or without ``-n``, counts or sums up; None: nothing is seen.

    >>> [counted(code).why for code in ('print "$. $_"', 'END { print $n }')], counted("s/x$.//")
    (['counts lines with $.', 'has END, which is for the whole input'], None)
    """
    if re.search(r"\$\.(?![\w*+?/])", code):
        return Carried("counts lines with $.", is_local=False, is_counted=True)
    if re.search(r"\bEND\s*\{", code):
        return Carried("has END, which is for the whole input", is_local=False, is_counted=True)
    return None


def separators(code: str) -> Iterator[Separator]:
    r"""What BEGIN gives to ``$/``, but for the end of a line.

    >>> list(separators(r'BEGIN { $/ = "\0" } print')), list(separators(r'BEGIN { $/ = "\n" } print'))
    ([Separator(word='$/ = "\\0"', is_nul=True)], [])
    """
    for found in re.finditer(r"\bBEGIN\s*\{[^}]*?(?:\$/\s*=(?!~)\s*(?P<value>[^;}]*)|\bundef[\s(]*\$/)", code):
        value = (found["value"] or "undef").strip()
        if value not in (r'"\n"', r'"\012"'):
            yield Separator(f"$/ = {value}", value in (r'"\0"', r'"\000"', r'"\x00"'))


def separators_of_options(given: Arguments) -> Iterator[Separator]:
    """What ``-0`` says, but for the end of a line."""
    for letter, value in given.options:
        if letter == "g":
            yield Separator("-g")
        elif letter == "0":
            is_hex = value[:1] in ("x", "X")
            number = int(value[1:] or "0", 16) if is_hex else int(value or "0", 8)
            if number != ord("\n"):
                yield Separator(f"-0{value}", not number and (is_hex or not value))  # -00: paragraphs


def _is_fresh(code: str, name: str) -> bool:
    """Whether a variable is declared for the record, or first given a value by a statement that runs for each."""
    first = re.search(rf"[$@%]{{?{name}\b", code)
    assert first
    if re.search(rf"\b(?:my|for|foreach)\b\s*(?:\([^)]*)?[$@%]{name}\b", code[: first.end()]):
        return True
    statement = re.match(rf"[$@%]{name}\s*=(?![=~])(?P<value>[^;{{}}]*)", code[first.start() :])
    before = code[: first.start()]
    return bool(
        statement
        and before.rstrip()[-1:] in ("", ";")
        and before.count("{") == before.count("}")
        and not re.search(rf"\b(?:if|unless|for|foreach|while|and|or)\b|[$@%]{{?{name}\b", statement["value"])
    )


def _bare(code: str) -> str:
    """The code with a word in the place of each pattern and quoted text; of what is put in, variables stay."""
    found, at = "", 0
    while match := _QUOTED.search(code, at):
        found += code[at : match.start()]
        end = match["end"] or ("/" if match["regex"] else "")
        at = match.end()
        if end:
            middle = at = _behind(code, at, end)
            if match["two"]:
                if end in _PAIRS:
                    middle += len(code[at:]) - len(code[at:].lstrip()) + 1
                at = _behind(code, middle, code[middle - 1])
            flags = at
            while at < len(code) and code[at].isalpha():
                at += 1
            is_code = match["two"] == "s" and "e" in code[flags:at]
            found += f" {match['two'] or ''} Q {code[middle : flags - 1] if is_code else ''} "
    return re.sub(r"\\.", "", found + code[at:])


def _behind(code: str, at: int, first: str) -> int:
    """The place behind what closes a part that began with ``first``."""
    return behind(code, at, _PAIRS.get(first, first), first)
