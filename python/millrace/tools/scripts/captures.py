"""What a pattern of perl found (``$1``, ``$&``), which stays until another is found: also from line to line."""

from __future__ import annotations

import re

#: Stands for a pattern in the code.
MATCH = "MATCH"

_VARIABLE = re.compile(r"\$(?:[1-9]\d*\b|&|[-+]\[|[`'+](?![\w']))")
_NOT = re.compile(r"!|\b(?:unless|or|not)\b|\|\||//")
#: What is found, if what stands behind is run.
_FOUND = re.compile(rf"\b(?:if|elsif|while)\b.*\b{MATCH}\b|\b{MATCH}\b.*(?:&&|\band\b|\?)", re.DOTALL)
_FOUND_BEHIND = re.compile(rf"\b(?:if|while)\b.*\b{MATCH}\b", re.DOTALL)
#: Goes to the next record where nothing is found.
_LEAVES = re.compile(
    rf"^\s*(?:next|die)\b[^|]*(?:\bunless\b(?!.*(?:\|\||\bor\b|!)).*\b{MATCH}\b|\bif\s*\(?\s*!\s*{MATCH}\s*\)?\s*$|\bif\b[^|&]*!~\s*{MATCH}\s*\)?\s*$)"
    rf"|^[^!?]*\b{MATCH}\s*(?:\bor\b|\|\|)\s*(?:next|die)\b",
    re.DOTALL,
)


def kept(code: str) -> str | None:
    """The variable that may hold what a pattern found in a line before; None: none is seen.

    >>> kept("print $1 if MATCH"), kept("if (MATCH) { print $h{$1} }"), kept("next unless MATCH; print $1")
    (None, None, None)
    >>> kept("MATCH; print $1"), kept("if (MATCH) { print } else { print $1 }"), kept("print $& unless MATCH")
    ('$1', '$1', '$&')
    """
    # Of each block that is open: whether a pattern was found where it is run, from the outside.
    holds, statement = [False], ""
    for part in re.split(r"([;{}])", _without_subscripts(code)):
        if part not in (";", "{", "}"):
            statement = part
            if not holds[-1] and (found := _unsure(statement)):
                return found
        elif part == "{":
            holds.append(holds[-1] or _is_found(statement))
        else:
            holds[-1] |= bool(_LEAVES.search(statement))
            if part == "}" and len(holds) > 1:
                holds.pop()
            statement = ""
    return None


def _is_found(text: str) -> bool:
    return bool(_FOUND.search(text)) and not _NOT.search(text)


def _unsure(statement: str) -> str | None:
    """The first variable in a statement that has no pattern of its own."""
    for found in _VARIABLE.finditer(statement):
        before, behind = statement[: found.start()], statement[found.end() :]
        is_behind = _FOUND_BEHIND.search(behind) and not _NOT.search(behind)
        is_before = _is_found(before) and ":" not in before.rpartition(MATCH)[2]
        if not (is_behind or is_before):
            return found.group()
    return None


def _without_subscripts(code: str) -> str:
    """The code, whose braces are those of blocks."""
    code = re.sub(r"\$\{(\d+|&)\}", r"$\1", re.sub(r"\$\+\{\w+\}", "$1", code))
    before = ""
    while before != code:
        before, code = code, re.sub(r"((?:[$@%]\w*|\]|->)\s*)\{([^{};]*)\}", r"\1[\2]", code)
    return re.sub(r'"[^"]*"', lambda found: re.sub(r"[^\w$&+\-\[\]`']", " ", found.group()), code)
