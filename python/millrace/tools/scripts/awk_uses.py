"""Where a script of awk sets and reads its variables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from millrace.tools.scripts.awk_text import ASSIGN, DEPTH, FUNCTIONS, WORDS, Token, closing
from millrace.tools.scripts.conditions import Conditions, Place

#: What is written, or is written to a field, reads them.
_OF_OUTPUT = ("OFS", "ORS", "OFMT")
#: Functions and which of their arguments, from 0, they change; and fill anew.
_SET = frozenset((("split", 1), ("patsplit", 1), ("match", 2)))
_CHANGED = _SET | {("sub", 2), ("gsub", 2), ("asort", 0), ("asort", 1), ("asorti", 0), ("asorti", 1)}
#: Behind these, a test before them says nothing any more.
_ENDS_TEST = frozenset(("\n", ";", "}", "else", ":", "||", "++", "--", "getline", "sub", "gsub", "delete"))


class Use(NamedTuple):
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


def uses(tokens: Sequence[Token], numbers: Iterator[int], *, is_always: bool) -> Iterator[Use]:
    """Variables in the order of the text.

    Args:
        numbers: For conditions and blocks.
        is_always: What the outer braces hold is run for every record.
    """
    conditions, texts = Conditions(numbers, is_always=is_always), [token.text for token in tokens]
    waiting = list[Use]()  # set by a statement, and not before its end
    filled = list[tuple[int, Use]]()  # set by a call, and not before its bracket is closed
    for at, token in enumerate(tokens):
        place = conditions.place
        if _is_variable(tokens, at):
            use = _use(tokens, at, place)
            if use.is_set and use.is_assigned:
                waiting.append(use)
            elif use.is_set and _argument(tokens, at, at + 1):
                filled.append((conditions.depth, use))
            else:
                yield use
        if token == Token("name", "match"):
            found = (Use(name, True, True, True, False, False, place) for name in ("RSTART", "RLENGTH"))
            filled += ((conditions.depth + 1, use) for use in found)
        if _writes(tokens, at):
            yield from output(place)
        ends = conditions.read(texts, at)
        yield from (use for depth, use in filled if depth > conditions.depth)
        filled = [each for each in filled if each[0] <= conditions.depth]
        if ends:
            yield from waiting
            waiting.clear()
    yield from waiting


def output(place: Place) -> Iterator[Use]:
    """What is read where something is written."""
    for name in _OF_OUTPUT:
        yield Use(name, False, False, False, is_read=True, is_element=False, place=place)


def _writes(tokens: Sequence[Token], at: int) -> bool:
    """Whether it writes, or makes the record anew, there or in a function."""
    token, behind = tokens[at], tokens[at + 1].text if at + 1 < len(tokens) else ""
    if token.kind == "call":
        return True
    if token.text == "NF":
        return behind in ASSIGN
    return token.text in ("print", "printf") or (token.text == "$" and _is_field_changed(tokens, at))


def _is_field_changed(tokens: Sequence[Token], at: int) -> bool:
    end = at + 2
    for first, opens in ((at + 1, "("), (at + 2, "[")):
        if first < len(tokens) and tokens[first].text == opens:
            end = closing(tokens, first)
    if _argument(tokens, at, end) in _CHANGED:
        return True
    behind = tokens[end].text if end < len(tokens) else ""
    return behind in ASSIGN or {behind, tokens[at - 1].text if at else ""} & {"++", "--"} != set()


def _is_variable(tokens: Sequence[Token], at: int) -> bool:
    text = tokens[at].text
    return tokens[at].kind == "name" and text not in WORDS and text not in FUNCTIONS


def _follows_for(tokens: Sequence[Token], at: int) -> bool:
    """``for (x = ...`` and ``for (x in ...``."""
    return [token.text for token in tokens[max(at - 2, 0) : at]] == ["for", "("]


def _use(tokens: Sequence[Token], at: int, place: Place) -> Use:
    before = tokens[at - 1].text if at else ""
    behind = tokens[at + 1].text if at + 1 < len(tokens) else ""
    is_element, end = behind == "[", at + 1  # others stay what they were
    while behind == "[":  # gawk: an element may be an array
        end = closing(tokens, end)
        behind = tokens[end].text if end < len(tokens) else ""
    if before == "$":  # what is changed is the field
        return Use(tokens[at].text, False, False, False, True, is_element, place, makes_element=is_element)
    argument = _argument(tokens, at, end)
    is_loop = _follows_for(tokens, at)
    is_filled = before == "delete" or argument in _SET or (is_loop and behind == "in")
    is_set = not is_element and (is_filled or behind == "=")
    is_counted = before in ("++", "--") or behind in ("++", "--")
    is_changed = is_filled or is_counted or behind in ASSIGN or argument in _CHANGED
    # A function of the script may change an array that it is given.
    is_changed |= argument is not None and argument[0] not in FUNCTIONS
    is_assigned = behind == "="
    is_read = not (is_filled or is_assigned)
    is_tested = before == "in" or (not is_element and argument is not None and not is_filled)
    makes = is_element and not _is_there(tokens, at)
    return Use(tokens[at].text, is_set, is_assigned, is_changed, is_read, is_element, place, is_tested, makes)


def _is_there(tokens: Sequence[Token], at: int) -> bool:
    """Whether an element stands where ``x in array`` was found to hold just before: ``if (x in a) print a[x]``."""
    key = [token.text for token in tokens[at + 2 : closing(tokens, at + 1) - 1]]
    test = [*key, "in", tokens[at].text]
    for k in range(at - len(test), -1, -1):
        places = range(k + len(test), at)
        between = {tokens[n].text for n in places if (tokens[n - 1].text, tokens[n].text) != ("{", "\n")}
        if between & (_ENDS_TEST | ASSIGN):
            return False
        if [token.text for token in tokens[k : k + len(test)]] == test:
            return _holds(tokens, k, k + len(test))
    return False


def _holds(tokens: Sequence[Token], start: int, end: int) -> bool:
    """Whether what follows a test is run only if it holds."""
    before, behind = tokens[start - 1].text if start else "{", tokens[end].text
    if before == "(" and behind == ")":
        before, behind = tokens[start - 2].text if start > 1 else "{", tokens[end + 1].text
        if before == "if":
            return behind == "{" or tokens[end + 1].kind == "name"
    return before in ("{", "}", ";", ",", "=", "if", "print") and behind in ("?", "&&", "{")


def _argument(tokens: Sequence[Token], at: int, end: int) -> tuple[str, int] | None:
    """The function of which the tokens from ``at`` to ``end`` are an argument, and which one; None: it is in no call."""
    if end < len(tokens) and tokens[end].text not in (",", ")"):
        return None
    depth = position = 0
    for k in range(at - 1, -1, -1):
        text = tokens[k].text
        depth -= DEPTH.get(text, 0)
        if depth == 0 and text == ",":
            position += 1
        if depth < 0:
            is_call = k > 0 and (tokens[k - 1].kind == "call" or tokens[k - 1].text in FUNCTIONS)
            return (tokens[k - 1].text, position) if is_call else None
    return None
