"""What a script of awk carries from record to record (POSIX awk, and what gawk adds)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import count, pairwise

from millrace.tools.options import words
from millrace.tools.scripts.arguments import Arguments
from millrace.tools.scripts.awk_text import ASSIGN, DEPTH, Rule, Token, is_function, rules, tokens
from millrace.tools.scripts.awk_uses import Use, output, uses
from millrace.tools.scripts.carried import Carried, Separator
from millrace.tools.scripts.conditions import Place

#: The variables that number the lines.
_NUMBERS = ("NR", "FNR")
#: A rule that reads another file has none of these.
_DOES_MORE = words("print printf system getline close exit nextfile switch rand srand SYMTAB RS")
#: What is said of a script that has one of these words, whatever stands around it.
_PLAINLY = {
    **{
        word: Carried(f"has {word}: what follows depends on the lines before", is_local=False)
        for word in ("exit", "nextfile")
    },
    "getline": Carried("has getline: what follows depends on the lines before"),
    **{word: Carried(f"counts lines with {word}", is_local=False, is_counted=True) for word in _NUMBERS},
    **{
        word: Carried(f"has {word}(): what it gives depends on the lines before", is_local=False)
        for word in ("rand", "srand")
    },
    "systime": Carried("has systime(): each part is run at another time", is_local=False),
    "SYMTAB": Carried("has SYMTAB, by which any variable may be kept from one line to the next"),
    "switch": Carried("has switch, whose cases are not looked at: any variable may be kept from one line to the next"),
    "@": Carried("calls functions by names that it makes: any variable may be kept from one line to the next"),
}
#: Variables of awk's own that hold nothing over from the record before unless they are assigned.
_OWN = words("NF RT")
#: Assigned in the midst, they hold for the next record.
_FOR_THE_NEXT = words("FS RS FIELDWIDTHS FPAT IGNORECASE CONVFMT SUBSEP ENVIRON PROCINFO")
#: Values of RS, as they are typed, that end a record where a line ends; and where a NUL stands.
_LINE_ENDS = frozenset(("\n", r"\n", r"\r?\n", r"\r*\n", r"\012"))
_NULS = frozenset((r"\0", r"\00", r"\000", r"\x00"))

#: A test that only the first line passes, and one that all but it pass.
_FIRST, _LATER = Token("first", "1"), Token("number", "1")
_TESTS_OF_LINE_1 = {"==1": _FIRST, "<=1": _FIRST, "<2": _FIRST, "!=1": _LATER, ">1": _LATER, ">=2": _LATER}
#: What stands on both sides of a test by itself.
_BEFORE_TEST = frozenset(("\n", ";", "{", "}", "(", "&&", "||"))
_BEHIND_TEST = frozenset(("\n", ";", "{", "}", ")", "&&", "||", ",", "?"))


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
    found, numbers = list[Use](), count()
    read = tokens(script)
    if below_header and not any(word.text in _NUMBERS and behind.text in ASSIGN for word, behind in pairwise(read)):
        read = list(_first_line_known(read))
    is_closing = Token("name", "close") in read
    every = list(rules(read))
    lookup = _lookup(every)
    # A function may be called before all that stands before it.
    for pattern, action in sorted(every, key=lambda rule: not is_function(rule[0])):
        if lookup and pattern is lookup[0]:
            continue
        first = pattern[0].text if pattern else ""
        if first == "BEGIN":
            if _reads_records(action or ()):
                return Carried("reads records in BEGIN", is_local=False, is_counted=True)
            continue
        if first == "@" and pattern[1:2] and pattern[1].text in ("include", "load", "namespace"):
            continue
        if first in ("END", "BEGINFILE", "ENDFILE"):
            return Carried(f"has {first}, which is for the whole input", is_local=False, is_counted=True)
        is_call = is_function(pattern)
        if not is_call and _has_range(pattern):
            return Carried("has a range of patterns, which goes over lines")
        head = [] if is_call else pattern
        rule = head if action is None else [*head, Token("op", "{"), *action, Token("op", "}")]
        if _leaves_a_pipe(rule):
            return Carried("writes to a command, which ends after the last line", is_local=False, is_counted=True)
        if is_closing and _writes_a_file(rule):
            return Carried("closes a file, which is written anew then", is_local=False, is_counted=True)
        if plainly := next(
            (_PLAINLY[token.text] for token in rule if token.kind != "string" and token.text in _PLAINLY), None
        ):
            return plainly
        if pattern == [_FIRST] and Token("name", "RS") not in rule:  # run at the beginning of each part, as BEGIN is
            continue
        own = {token.text for token in pattern if is_call}
        found += (use for use in uses(rule, numbers, is_always=not pattern) if use.name not in own)
        if action is None:
            found += output(())
    return _judged(found)


def has_lookup(script: str) -> bool:
    """Whether the first rule reads another file, and nothing more: ``NR == FNR { names[$1]; next }``.

    >>> has_lookup('NR == FNR { names[$1]; next } $2 in names'), has_lookup('NR == FNR { print; next } $2 in names')
    (True, False)
    """
    return _lookup(list(rules(tokens(script)))) is not None


def _lookup(every: Sequence[Rule]) -> Rule | None:
    """The rule that reads another file: each part reads that file as the whole does. None: there is none.

    Where there is no other file, or nothing in it, it has all records, and nothing is written.
    """
    first = next((rule for rule in every if not _is_aside(rule[0])), None)
    return first if first and _reads_only(first[0], first[1] or ()) else None


def _is_aside(pattern: Sequence[Token]) -> bool:
    """Whether no record is asked for."""
    return is_function(pattern) or (bool(pattern) and pattern[0].text in ("BEGIN", "@"))


def _reads_only(pattern: Sequence[Token], action: Sequence[Token]) -> bool:
    """Whether a rule is for the first file alone, and writes nothing."""
    return (
        [token.text for token in pattern] in (["NR", "==", "FNR"], ["FNR", "==", "NR"])
        and _always_leaves(action)
        and not any(token.kind == "call" or (token.kind == "name" and token.text in _DOES_MORE) for token in action)
    )


def _always_leaves(action: Sequence[Token]) -> bool:
    """Whether an action ends with ``next``, whatever it has seen."""
    texts = [*(token.text for token in action), "\n"]
    while len(texts) > 1 and texts[-1] in (";", "\n"):
        texts.pop()
    before = next((text for text in reversed(texts[:-1]) if text != "\n"), "")
    is_alone = before in ("", ";", "}") or (texts[-2] == "\n" and before not in (")", "else", "do"))
    return texts[-1] == "next" and is_alone


def _first_line_known(tokens: Sequence[Token]) -> Iterator[Token]:
    """The tokens, with `_FIRST` for each ``NR == 1``, and a number for each ``NR > 1``, which stand by themselves."""
    at = 0
    while at < len(tokens):
        before = tokens[at - 1].text if at else "\n"
        name, *test, behind = [*(token.text for token in tokens[at : at + 4]), *["\n"] * 4][:4]
        is_alone = name in _NUMBERS and before in _BEFORE_TEST and behind in _BEHIND_TEST
        if is_alone and (number := _TESTS_OF_LINE_1.get("".join(test))):
            yield number
            at += 3
        else:
            yield tokens[at]
            at += 1


def _reads_records(action: Sequence[Token]) -> bool:
    """Whether it has a ``getline`` of the input, not of a command or of another file."""
    texts = ["", *(token.text for token in action), "", "", ""]
    return any(
        text == "getline" and texts[at - 1] != "|" and "<" not in (texts[at + 1], texts[at + 2])
        for at, text in enumerate(texts)
    )


def _leaves_a_pipe(rule: Sequence[Token]) -> bool:
    """Whether something is printed to a command that is not closed at once; one that writes to standard error does no harm."""
    for at, (token, behind) in enumerate(pairwise(rule)):
        if token.text != "|" or behind.text == "getline":
            continue
        end = next(k for k in range(at, len(rule) + 1) if k == len(rule) or rule[k].text in (";", "\n", "}"))
        command = rule[at + 1 : end]
        closed = [each for each in rule[end:] if each.text not in (";", "\n")][: len(command) + 3]
        is_closed = [each.text for each in closed] == ["close", "(", *(each.text for each in command), ")"]
        is_for_errors = re.fullmatch(r"cat\s+1?>\s*(?:&\s*2|/dev/stderr)", behind.text.strip('"'))
        if not is_closed and not is_for_errors:
            return True
    return False


def _writes_a_file(rule: Sequence[Token]) -> bool:
    """Whether it prints into a file that begins anew when it is opened again."""
    depth, is_printing = 0, False
    for at, token in enumerate(rule):
        depth += DEPTH.get(token.text, 0)
        if token.text in ("print", "printf"):
            is_printing, depth = True, 0
        elif token.text in (";", "\n", "}"):
            is_printing = False
        elif is_printing and depth == 0 and token.text == ">":
            around = {each.text for each in (rule[at - 1], *rule[at + 1 : at + 2])}
            if ">" not in around and not any("/dev/std" in text for text in around):
                return True
    return False


def separators(script: str) -> Iterator[Separator]:
    """The values of RS that BEGIN sets, but for those of lines.

    >>> list(separators('BEGIN { FS = RS = ";" } BEGIN { RS = "\\n" } { print }'))
    [Separator(word='RS=";"', is_nul=False)]
    """
    for pattern, action in rules(tokens(script)):
        if not pattern or pattern[0].text != "BEGIN":
            continue
        texts = [token.text for token in [*(action or ()), Token("op", ";")]]
        for at, text in enumerate(texts[:-2]):
            if text != "RS" or texts[at + 1] not in ASSIGN:
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


def _judged(uses: Sequence[Use]) -> Carried | None:
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


def _has_range(pattern: Sequence[Token]) -> bool:
    depth = 0
    for token in pattern:
        depth += DEPTH.get(token.text, 0)
        if token.text == "," and depth == 0:
            return True
    return False
