"""The text of a script of awk: its tokens, and its rules."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from millrace.tools.options import words

_TOKEN = re.compile(
    r"""(?P<space>(?:[ \t\r]|\\\r?\n|\#[^\n]*)+)|(?P<string>"(?:\\.|[^"\\])*")|(?P<number>0[xX][\da-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)
    |(?P<name>[A-Za-z_]\w*)|(?P<op>\+\+|--|\*\*=|[-+*/%^!<>=]=|&&|\|\||.|\n)""",
    re.VERBOSE | re.DOTALL,
)
_REGEX = re.compile(r"/(?:\\.|\[\^?\]?(?:\[:\w+:\]|\\.|[^]\\])*\]|[^/\\\[])*/", re.DOTALL)

WORDS = words("if else while for do in break continue next print printf delete return function func")
FUNCTIONS = words("""
    length substr index split sub gsub gensub match sprintf sin cos atan2 exp log sqrt int rand srand tolower toupper system close fflush strftime mktime systime strtonum and or xor lshift rshift compl asort asorti patsplit typeof isarray
""")
_NO_CALLS = WORDS | FUNCTIONS | words("getline exit nextfile switch case in")
#: What brackets add to the depth.
DEPTH = {"(": 1, "[": 1, ")": -1, "]": -1}
ASSIGN = frozenset(("=", "+=", "-=", "*=", "/=", "%=", "^=", "**="))


class Token(NamedTuple):
    """``name``, ``call``, ``number``, ``string``, ``regex`` or ``op``, and its text."""

    kind: str
    text: str


_END = Token("op", "\n")


def tokens(script: str) -> list[Token]:
    """The tokens of a script; a name that is called, of a function of the script, is of kind ``call``."""
    found = list(_tokens(script))
    own = {name.text for word, name in pairwise(found) if word.text in ("function", "func")}
    return [
        token._replace(kind="call") if token.text in own and behind.text == "(" else token
        for token, behind in pairwise([*found, _END])
    ]


def _tokens(script: str) -> Iterator[Token]:
    at, last = 0, Token("op", "\n")
    while at < len(script):
        is_value = last.kind in ("string", "number", "regex") or last.text in (")", "]", "$", "++", "--")
        is_value = is_value or (last.kind == "name" and last.text not in WORDS)
        if script[at] == "/" and not is_value and (found := _REGEX.match(script, at)):
            last = Token("regex", found.group())
        else:
            found = _TOKEN.match(script, at)
            assert found and found.lastgroup  # its last alternative takes anything
            if found.lastgroup != "space":
                # A variable and what is in brackets behind it are two texts that are joined, if a blank stands between.
                is_call = (
                    found.lastgroup == "name" and script.startswith("(", found.end()) and found.group() not in _NO_CALLS
                )
                last = Token("call" if is_call else found.lastgroup, found.group())
        at = found.end()
        if found.lastgroup != "space":
            yield last


#: A pattern (or ``function f(x)``) and its action; None: it prints.
Rule = tuple[list[Token], list[Token] | None]


def rules(tokens: Sequence[Token]) -> Iterator[Rule]:
    """The rules of a script."""
    at = 0
    while at < len(tokens):
        if tokens[at].text in ("\n", ";"):
            at += 1
            continue
        pattern, depth = list[Token](), 0
        while at < len(tokens):
            text = tokens[at].text
            goes_on = bool(pattern) and pattern[-1].text in (",", "&&", "||")
            if depth == 0 and (text == "{" or (text in ("\n", ";") and not goes_on and not is_function(pattern))):
                break
            depth += DEPTH.get(text, 0)
            if text != "\n":
                pattern.append(tokens[at])
            at += 1
        if at == len(tokens) or tokens[at].text != "{":
            yield pattern, None
            continue
        start, depth = at + 1, 0
        while at < len(tokens):
            depth += (tokens[at].text == "{") - (tokens[at].text == "}")
            at += 1
            if depth == 0:
                break
        yield pattern, [*tokens[start : at - (depth == 0)]]


def is_function(pattern: Sequence[Token]) -> bool:
    """Whether what stands before an action is the head of a function."""
    return bool(pattern) and pattern[0].text in ("function", "func")


def closing(tokens: Sequence[Token], at: int) -> int:
    """The place behind the bracket that closes the one at ``at``."""
    depth = 0
    for k in range(at, len(tokens)):
        depth += DEPTH.get(tokens[k].text, 0)
        if depth == 0:
            return k + 1
    return len(tokens)
