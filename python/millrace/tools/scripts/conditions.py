"""Under which conditions the parts of a script of awk are run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

#: Where something stands: the numbers of the conditions and blocks that it is in, from the outside. What stands in a part of
#: another's place has been run whenever that is.
Place = tuple[int, ...]

_CLOSES = {"{": "}", "(": ")", "[": "]"}
_CONTROLS = frozenset(("if", "while", "for"))
#: A line that ends with one of these goes on.
_GOES_ON = frozenset(("{", "&&", "||", ",", "else", "do", ";", "}", "\n"))


class _Level:
    """Braces or brackets that are open, or the whole."""

    def __init__(self, own: list[int], control: str = "", *, is_implied: bool = False) -> None:
        self.own = own
        #: The word before an opening bracket, if it is one of `_CONTROLS`.
        self.control = control
        #: If the condition in brackets holds, what follows has seen all of it.
        self.is_implied = is_implied
        #: Conditions of the statement that is being read: those that it stands under; then, what was evaluated before the next
        #: operand of ``||`` or part of ``?:`` whatever came of it; then operands of ``&&``.
        self.now: list[int] = []
        self.n_above = self.n_evaluated = 0
        #: One of them need not hold for what follows the whole condition.
        self.is_either = False
        #: ``for (first; condition; next)``: how many of the semicolons were read, and the condition.
        self.n_semicolons = 0
        self.condition: list[int] = []

    def begin(self, *under: int) -> None:
        """An expression begins, under more conditions."""
        self.now += under
        self.n_above = self.n_evaluated = len(self.now)

    def either(self, number: int, n_kept: int) -> None:
        """An operand begins that is evaluated, or not, whatever became of what was read behind ``n_kept`` conditions."""
        self.is_either = True
        self.now[n_kept:] = [number]
        self.n_evaluated = len(self.now)


class Conditions:
    """Follows a script from token to token.

    Args:
        numbers: For conditions and blocks, each once.
        is_always: What the outer braces hold is run for every record.
    """

    def __init__(self, numbers: Iterator[int], *, is_always: bool) -> None:
        self._numbers, self._is_always = numbers, is_always
        self._levels = [_Level([])]
        #: The token before; of line ends, the one before them. A bracket of `_CONTROLS` that is closed is one of them.
        self._last = "\n"

    @property
    def place(self) -> Place:
        """The place of the next token."""
        return tuple(number for level in self._levels for number in [*level.own, *level.now])

    @property
    def depth(self) -> int:
        """How many braces and brackets are open."""
        return len(self._levels) - 1

    def read(self, tokens: Sequence[str], at: int) -> bool:
        """Go behind a token.

        Returns:
            Whether what was assigned so far has its value: a statement or a condition ends.
        """
        text, level = tokens[at], self._levels[-1]
        ends = False
        if text in _CLOSES:
            ends = text == "{"
            self._open(tokens, at)
        elif len(self._levels) > 1 and text in _CLOSES.values():
            ends = text == "}" or bool(level.control)
            self._close(tokens, at)
        elif text == "&&":
            level.now.append(next(self._numbers))
        elif text == "||":
            level.either(next(self._numbers), level.n_evaluated)
        elif text == "?":
            # What holds was evaluated, but for operands behind the first of ``||``.
            is_or = level.n_evaluated > level.n_above
            level.either(next(self._numbers), level.n_above if is_or else len(level.now))
        elif text == ":":
            level.either(next(self._numbers), level.n_above)
        elif text == ",":
            del level.now[level.n_above :]
            level.begin()
        elif text in ("else", "do"):
            level.begin(next(self._numbers))
        elif text == ";" or (text == "\n" and self._last not in _GOES_ON and self._last not in _CONTROLS):
            ends = True
            self._end_statement(level)
        if text != "\n":
            self._last = level.control if text == ")" and level.control else text
        return ends

    def _open(self, tokens: Sequence[str], at: int) -> None:
        text, level, before = tokens[at], self._levels[-1], tokens[at - 1] if at else ""
        if text == "{":
            self._settle(level)
            is_first = self._is_always and len(self._levels) == 1
            self._levels.append(_Level([] if is_first else [next(self._numbers)]))
        elif text == "(" and before in _CONTROLS:
            is_loop = before == "for" and list(tokens[at + 2 : at + 3]) == ["in"]
            self._levels.append(_Level([], before))
            if is_loop:  # the name has a value if there is any element
                self._levels[-1].begin(next(self._numbers))
        else:
            self._levels.append(_Level([], is_implied=before in ("", "(", "&&")))

    def _close(self, tokens: Sequence[str], at: int) -> None:
        closed = self._levels.pop()
        level, behind = self._levels[-1], tokens[at + 1] if at + 1 < len(tokens) else ""
        if tokens[at] == "}":
            self._end_statement(level)
        elif closed.control:
            self._settle(closed)
            level.begin(*(closed.condition if closed.n_semicolons else closed.now), next(self._numbers))
        elif closed.is_implied and behind in ("{", ")", "&&"):
            self._settle(closed)
            level.now += closed.now

    def _settle(self, level: _Level) -> None:
        """A condition ends, and what follows is run if it holds."""
        if level.is_either:
            level.now, level.is_either = [next(self._numbers)], False

    def _end_statement(self, level: _Level) -> None:
        if level.control:
            level.n_semicolons += 1
            self._settle(level)
            level.condition = level.now
        level.now, level.is_either = [], False
        level.begin()
        if level.n_semicolons > 1:  # what follows is run after the loop's body
            level.begin(next(self._numbers))
