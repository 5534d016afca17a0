"""What a program of jq does beyond one value (the manual of jq 1.6 and 1.7)."""

from __future__ import annotations

import re

from millrace.tools.calls import Call

#: Options, and how many words each takes.
_WORDS = {"--indent": 1, "-L": 1, **dict.fromkeys(("--arg", "--argjson", "--slurpfile", "--rawfile"), 2)}

#: A text without code in it, or a comment.
_NO_CODE = re.compile(r'"(?:[^"\\]|\\[^(])*"|#[^\n]*')

#: Calls of what knows of other values than the one at hand: no field (``.input``), variable, key or ``{input}``.
_READS_ON = re.compile(r"(?<![\w.$@{])(?:inputs?|input_line_number|halt|halt_error)(?!\w|\s*:(?!:))")


def reads_on(call: Call) -> bool:
    """Whether the program takes the next values, counts lines, or ends before the last value.

    >>> def of(*arguments: str) -> bool:
    ...     return reads_on(Call("jq", arguments, (), read=lambda name: "[., input]"))
    >>> of("-c", "[., input]"), of("input_line_number"), of("if .x then halt else . end"), of("-rf", "p.jq", "in.json")
    (True, True, True, True)
    >>> of(".input"), of("{input, inputs: 1}"), of('select(.t == "input")'), of("--arg", "a", "input", ".x"), of("$input")
    (False, False, False, False, False)
    >>> of(r'"line \\(input_line_number)"'), of(". # input"), of("-c", ".x", "input")
    (True, False, False)
    """
    program = _program(call)
    return _READS_ON.search(_NO_CODE.sub(" ", program)) is not None


def _program(call: Call) -> str:
    """Its text: the first operand, or what is in the file of that name."""
    words = iter(call.arguments)
    is_file = any(re.match("--from-file$|-[A-Za-z]*f", word) for word in call.arguments)
    for word in words:
        if not word.startswith("-"):
            return call.read(word) if is_file else word
        for _ in range(_WORDS.get(word, 0)):
            next(words, None)
    return ""
