"""Parts of a script between delimiters."""

from __future__ import annotations


def behind(text: str, at: int, close: str, opens: str = "") -> int:
    r"""The place behind the next ``close`` from ``at`` on that is not escaped, or the end of the text.

    Args:
        opens: Begins a part within, which has a ``close`` of its own.

    >>> behind(r"a\/b/c", 0, "/"), behind("a{b}c}d", 0, "}", "{")
    (5, 6)
    """
    depth = 1
    while at < len(text) and depth:
        if text[at] == "\\":
            at += 1
        elif text[at] == close:
            depth -= 1
        elif text[at] == opens:
            depth += 1
        at += 1
    return at
