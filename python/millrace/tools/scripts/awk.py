"""What a script of awk carries from record to record (POSIX awk, and what gawk adds)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import count, pairwise
from typing import NamedTuple

from millrace.tools.options import words
from millrace.tools.scripts.arguments import Arguments
from millrace.tools.scripts.carried import Carried, Separator
from millrace.tools.scripts.conditions import Conditions, Place

_TOKEN = re.compile(
    r"""(?P<space>(?:[ \t\r]|\\\r?\n|\#[^\n]*)+)|(?P<string>"(?:\\.|[^"\\])*")|(?P<number>\d[\w.]*|\.\d+)
    |(?P<name>[A-Za-z_]\w*)|(?P<op>\+\+|--|\*\*=|[-+*/%^!<>=]=|&&|\|\||.|\n)""",
    re.VERBOSE | re.DOTALL,
)
_REGEX = re.compile(r"/(?:\\.|\[\^?\]?(?:\[:\w+:\]|\\.|[^]\\])*\]|[^/\\\[])*/", re.DOTALL)

_WORDS = words("if else while for do in break continue next print printf delete return function func")
_ENDS = frozenset(("exit", "nextfile", "getline"))
_FUNCTIONS = words("""
    length substr index split sub gsub gensub match sprintf sin cos atan2 exp log sqrt int rand srand tolower toupper system close fflush strftime mktime systime strtonum and or xor lshift rshift compl asort asorti patsplit typeof isarray
""")
#: Variables of awk's own that hold nothing over from the record before unless they are assigned.
_OWN = words("NF RT")
#: Assigned in the midst, they hold for the next record.
_FOR_THE_NEXT = words("FS RS FIELDWIDTHS FPAT IGNORECASE CONVFMT SUBSEP ENVIRON PROCINFO")
#: What is written, or is written to a field, reads them.
_OF_OUTPUT = ("OFS", "ORS", "OFMT")
#: Functions and which of their arguments, from 0, they change; and fill anew.
_SET = frozenset((("split", 1), ("patsplit", 1), ("match", 2)))
_CHANGED = _SET | {("sub", 2), ("gsub", 2), ("asort", 0), ("asort", 1), ("asorti", 0), ("asorti", 1)}
#: What brackets add to the depth.
_DEPTH = {"(": 1, "[": 1, ")": -1, "]": -1}
#: Behind these, a test before them says nothing any more.
_ENDS_TEST = frozenset(("\n", ";", "}", "else", ":", "||", "++", "--", "getline", "sub", "gsub", "delete"))
_ASSIGN = frozenset(("=", "+=", "-=", "*=", "/=", "%=", "^=", "**="))


#: Values of RS, as they are typed, that end a record where a line ends; and where a NUL stands.
_LINE_ENDS = frozenset(("\n", r"\n", r"\r?\n", r"\r*\n", r"\012"))
_NULS = frozenset((r"\0", r"\00", r"\000", r"\x00"))


class _Token(NamedTuple):
    kind: str
    text: str


#: A test that only the first line passes, and one that all but it pass.
_FIRST, _LATER = _Token("first", "1"), _Token("number", "1")
_TESTS_OF_LINE_1 = {"==1": _FIRST, "<=1": _FIRST, "<2": _FIRST, "!=1": _LATER, ">1": _LATER, ">=2": _LATER}
#: What stands on both sides of a test by itself.
_BEFORE_TEST = frozenset(("\n", ";", "{", "}", "(", "&&", "||", ","))
_BEHIND_TEST = frozenset(("\n", ";", "{", "}", ")", "&&", "||", ",", "?"))


class _Use(NamedTuple):
    """A variable that is set or read."""

    name: str
    #: It is given a value whatever it was before, wherever its place is run.
    is_set: bool
    is_assigned: bool
    is_changed: bool
    is_read: bool
    #: One element of an array.
    is_element: bool
    place: Place
    #: It is asked which elements an array has: a mere mention of one makes it.
    is_tested: bool = False
    #: An element that may not have been there.
    makes_element: bool = False


def carried(script: str, below_header: bool = False) -> Carried | None:
    """What the script carries from line to line; None: nothing is seen.

    Args:
        below_header: Each part begins with the first line of the input.

    >>> carried('{ x = $1; print x }')
    >>> carried('NR == 1 { for (k = 1; k <= NF; k++) at[$k] = k; next } { print $at["id"] }', below_header=True)
    >>> for script in ('/a/ { on = 1 } on', '/a/,/b/', '/b/ { exit } 1'):
    ...     print(carried(script).why)
    keeps on from one line to the next
    has a range of patterns, which goes over lines
    has exit: what follows depends on the lines before
    """
    uses, numbers = list[_Use](), count()
    read = list(_first_line_known(list(_tokens(script)))) if below_header else list(_tokens(script))
    # A function may be called before all that stands before it.
    for pattern, action in sorted(_items(read), key=lambda item: not _is_function(item[0])):
        first = pattern[0].text if pattern else ""
        if first == "BEGIN":
            continue
        if first in ("END", "BEGINFILE", "ENDFILE"):
            return Carried(f"has {first}, which is for the whole input", is_local=False, is_counted=True)
        is_function = _is_function(pattern)
        if not is_function and _has_range(pattern):
            return Carried("has a range of patterns, which goes over lines")
        head = [] if is_function else pattern
        tokens = head if action is None else [*head, _Token("op", "{"), *action, _Token("op", "}")]
        if _leaves_a_pipe(tokens):
            return Carried("writes to a command, which ends after the last line", is_local=False, is_counted=True)
        for token in tokens:
            if token.kind == "name" and token.text in _ENDS:
                return Carried(f"has {token.text}: what follows depends on the lines before", token.text == "getline")
            if token.kind == "name" and token.text in ("NR", "FNR"):
                return Carried(f"counts lines with {token.text}", is_local=False, is_counted=True)
            if token.kind == "name" and token.text == "rand":
                return Carried("has rand(): what it draws depends on the lines before", is_local=False)
            if token.kind == "name" and token.text == "SYMTAB":
                return Carried("has SYMTAB, by which any variable may be kept from one line to the next")
        if pattern == [_FIRST]:  # run at the beginning of each part, as BEGIN is
            continue
        own = {token.text for token in pattern if is_function}
        uses += (use for use in _uses(tokens, numbers, is_always=not pattern) if use.name not in own)
        if action is None:
            uses += _output(())
    return _judged(uses)


def _first_line_known(tokens: Sequence[_Token]) -> Iterator[_Token]:
    """The tokens, with `_FIRST` for each ``NR == 1``, and a number for each ``NR > 1``, which stand by themselves."""
    at = 0
    while at < len(tokens):
        before = tokens[at - 1].text if at else "\n"
        name, *test, behind = [*(token.text for token in tokens[at : at + 4]), *["\n"] * 4][:4]
        is_alone = name in ("NR", "FNR") and before in _BEFORE_TEST and behind in _BEHIND_TEST
        if is_alone and (number := _TESTS_OF_LINE_1.get("".join(test))):
            yield number
            at += 3
        else:
            yield tokens[at]
            at += 1


def _leaves_a_pipe(tokens: Sequence[_Token]) -> bool:
    """Whether something is printed to a command that is not closed again; one that writes to standard error does no harm."""
    pipes = [after.text for token, after in pairwise(tokens) if token.text == "|" and after.text != "getline"]
    is_closed = any(token == _Token("name", "close") for token in tokens)
    return not is_closed and any(
        not re.fullmatch(r"cat\s+1?>\s*(?:&\s*2|/dev/stderr)", text.strip('"')) for text in pipes
    )


def separators(script: str) -> Iterator[Separator]:
    """The values of RS that BEGIN sets, but for those of lines.

    >>> list(separators('BEGIN { FS = RS = ";" } BEGIN { RS = "\\n" } { print }'))
    [Separator(word='RS=";"', is_nul=False)]
    """
    for pattern, action in _items(list(_tokens(script))):
        if not pattern or pattern[0].text != "BEGIN":
            continue
        texts = [token.text for token in [*(action or ()), _Token("op", ";")]]
        for at, text in enumerate(texts[:-2]):
            if text != "RS" or texts[at + 1] not in _ASSIGN:
                continue
            value = at + 2
            while texts[value + 1 : value + 2] == ["="]:  # RS = ORS = "x"
                value += 2
            is_plain = texts[at + 1] == "=" and texts[value + 1 : value + 2] in ([";"], ["\n"], ["}"])
            yield from _separator(texts[value] if is_plain else "...")


def separators_of_options(given: Arguments) -> Iterator[Separator]:
    """The values of RS that options and operands set, but for those of lines."""
    values = [value for letter, value in given.options if letter == "v"]
    for value in [*values, *given.operands]:
        if value.startswith("RS="):
            yield from _separator(value.removeprefix("RS="))


def _separator(typed: str) -> Iterator[Separator]:
    value = typed.removeprefix('"').removesuffix('"')
    if value not in _LINE_ENDS:
        yield Separator(f"RS={typed}", value in _NULS)


def _is_function(pattern: Sequence[_Token]) -> bool:
    return bool(pattern) and pattern[0].text in ("function", "func")


def _output(place: Place) -> Iterator[_Use]:
    """What is read where something is written."""
    for name in _OF_OUTPUT:
        yield _Use(name, False, False, False, is_read=True, is_element=False, place=place)


def _judged(uses: Sequence[_Use]) -> Carried | None:
    tested = {use.name for use in uses if use.is_tested}
    changed = {use.name for use in uses if use.is_changed or (use.makes_element and use.name in tested)}
    for name in sorted(changed & _FOR_THE_NEXT):
        return Carried(f"sets {name}, which holds from the next record on")
    set_at: dict[str, list[Place]] = {}
    for use in uses:
        if use.name not in changed or use.name in _OWN:
            continue
        if use.is_set:
            set_at.setdefault(use.name, []).append(use.place)
        if use.is_read and not any(use.place[: len(place)] == place for place in set_at.get(use.name, ())):
            # An array that is never emptied has what all lines before gave.
            alike = [each for each in uses if each.name == use.name]
            is_local = not any(each.is_element for each in alike) or any(each.is_set for each in alike)
            return Carried(f"keeps {use.name} from one line to the next", is_local)
    return None


def _tokens(script: str) -> Iterator[_Token]:
    at, last = 0, _Token("op", "\n")
    while at < len(script):
        is_value = last.kind in ("string", "number", "regex") or last.text in (")", "]", "$")
        is_value = is_value or (last.kind == "name" and last.text not in _WORDS)
        if script[at] == "/" and not is_value and (found := _REGEX.match(script, at)):
            last = _Token("regex", found.group())
        else:
            found = _TOKEN.match(script, at)
            assert found and found.lastgroup  # its last alternative takes anything
            if found.lastgroup != "space":
                last = _Token(found.lastgroup, found.group())
        at = found.end()
        if found.lastgroup != "space":
            yield last


def _items(tokens: Sequence[_Token]) -> Iterator[tuple[list[_Token], list[_Token] | None]]:
    """Patterns (or ``function f(x)``) and their actions; None: it prints."""
    at = 0
    while at < len(tokens):
        if tokens[at].text in ("\n", ";"):
            at += 1
            continue
        pattern, depth = list[_Token](), 0
        while at < len(tokens):
            text = tokens[at].text
            goes_on = bool(pattern) and pattern[-1].text in (",", "&&", "||")
            if depth == 0 and (text == "{" or (text in ("\n", ";") and not goes_on and not _is_function(pattern))):
                break
            depth += _DEPTH.get(text, 0)
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


def _has_range(pattern: Sequence[_Token]) -> bool:
    depth = 0
    for token in pattern:
        depth += _DEPTH.get(token.text, 0)
        if token.text == "," and depth == 0:
            return True
    return False


def _uses(tokens: Sequence[_Token], numbers: Iterator[int], *, is_always: bool) -> Iterator[_Use]:
    """Variables in the order of the text.

    Args:
        numbers: For conditions and blocks.
        is_always: What the outer braces hold is run for every record.
    """
    conditions, texts = Conditions(numbers, is_always=is_always), [token.text for token in tokens]
    waiting = list[_Use]()  # set by a statement, and not before its end
    for at, token in enumerate(tokens):
        place = conditions.place
        if _is_variable(tokens, at):
            use = _use(tokens, at, place)
            if use.is_set and use.is_assigned:
                waiting.append(use)
            else:
                yield use
        if token == _Token("name", "match"):
            yield from (_Use(name, True, True, True, False, False, place) for name in ("RSTART", "RLENGTH"))
        if _writes(tokens, at):
            yield from _output(place)
        if conditions.read(texts, at):
            yield from waiting
            waiting.clear()
    yield from waiting


def _writes(tokens: Sequence[_Token], at: int) -> bool:
    """Whether it writes, or makes the record anew, there or in a function."""
    token, behind = tokens[at], tokens[at + 1].text if at + 1 < len(tokens) else ""
    if token.kind == "name" and token.text not in _WORDS and behind == "(":
        return token.text not in _FUNCTIONS
    if token.text == "NF":
        return behind in _ASSIGN
    return token.text in ("print", "printf") or (token.text == "$" and _is_field_changed(tokens, at))


def _is_field_changed(tokens: Sequence[_Token], at: int) -> bool:
    end = at + 2
    for first, opens in ((at + 1, "("), (at + 2, "[")):
        if first < len(tokens) and tokens[first].text == opens:
            end = _closing(tokens, first)
    if _argument(tokens, min(end, len(tokens)) - 1) in _CHANGED:
        return True
    behind = tokens[end].text if end < len(tokens) else ""
    return behind in _ASSIGN or {behind, tokens[at - 1].text if at else ""} & {"++", "--"} != set()


def _is_variable(tokens: Sequence[_Token], at: int) -> bool:
    text, behind = tokens[at].text, tokens[at + 1].text if at + 1 < len(tokens) else ""
    return tokens[at].kind == "name" and text not in _WORDS and text not in _FUNCTIONS and behind != "("


def _follows_for(tokens: Sequence[_Token], at: int) -> bool:
    """``for (x = ...`` and ``for (x in ...``."""
    return [token.text for token in tokens[max(at - 2, 0) : at]] == ["for", "("]


def _use(tokens: Sequence[_Token], at: int, place: Place) -> _Use:
    before = tokens[at - 1].text if at else ""
    behind = tokens[at + 1].text if at + 1 < len(tokens) else ""
    is_element = behind == "["  # others stay what they were
    if is_element:
        end = _closing(tokens, at + 1)
        behind = tokens[end].text if end < len(tokens) else ""
    argument = None if is_element else _argument(tokens, at)
    is_loop = _follows_for(tokens, at)
    is_filled = before == "delete" or argument in _SET or (is_loop and behind == "in")
    is_set = not is_element and (is_filled or behind == "=")
    is_counted = before in ("++", "--") or behind in ("++", "--")
    is_changed = is_filled or is_counted or behind in _ASSIGN or argument in _CHANGED
    # A function of the script may change an array that it is given.
    is_changed |= argument is not None and argument[0] not in _FUNCTIONS and argument[0] not in _WORDS
    is_assigned = behind == "="
    is_read = not (is_filled or is_assigned)
    is_tested = not is_element and (before == "in" or (argument is not None and not is_filled))
    makes = is_element and not _is_there(tokens, at)
    return _Use(tokens[at].text, is_set, is_assigned, is_changed, is_read, is_element, place, is_tested, makes)


def _is_there(tokens: Sequence[_Token], at: int) -> bool:
    """Whether an element stands where ``x in array`` was found to hold just before: ``if (x in a) print a[x]``."""
    key = [token.text for token in tokens[at + 2 : _closing(tokens, at + 1) - 1]]
    test = [*key, "in", tokens[at].text]
    for k in range(at - len(test), -1, -1):
        places = range(k + len(test), at)
        between = {tokens[n].text for n in places if (tokens[n - 1].text, tokens[n].text) != ("{", "\n")}
        if between & (_ENDS_TEST | _ASSIGN):
            return False
        if [token.text for token in tokens[k : k + len(test)]] == test:
            return _holds(tokens, k, k + len(test))
    return False


def _holds(tokens: Sequence[_Token], start: int, end: int) -> bool:
    """Whether what follows a test is run only if it holds."""
    before, behind = tokens[start - 1].text if start else "{", tokens[end].text
    if before == "(" and behind == ")":
        before, behind = tokens[start - 2].text if start > 1 else "{", tokens[end + 1].text
        if before == "if":
            return behind == "{" or tokens[end + 1].kind == "name"
    return before in ("{", "}", ";", ",", "=", "if", "print") and behind in ("?", "&&", "{")


def _closing(tokens: Sequence[_Token], at: int) -> int:
    """The place behind the bracket that closes the one at ``at``."""
    depth = 0
    for k in range(at, len(tokens)):
        depth += _DEPTH.get(tokens[k].text, 0)
        if depth == 0:
            return k + 1
    return len(tokens)


def _argument(tokens: Sequence[_Token], at: int) -> tuple[str, int] | None:
    """The function of which the token is an argument by itself, and which one; None: it is in no call."""
    if at + 1 < len(tokens) and tokens[at + 1].text not in (",", ")"):
        return None
    depth = position = 0
    for k in range(at - 1, -1, -1):
        text = tokens[k].text
        depth -= _DEPTH.get(text, 0)
        if depth == 0 and text == ",":
            position += 1
        if depth < 0:
            return (tokens[k - 1].text, position) if k and tokens[k - 1].kind == "name" else None
    return None
