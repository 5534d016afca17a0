"""How a program is called, and the rules that speak of it: see `millrace.tools.everyday`."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple


class Call(NamedTuple):
    """How a program is called."""

    program: str
    arguments: Sequence[str]
    #: Names of the joins that the user asks for.
    joins: Collection[str]
    #: Finds the formats of the records of its inputs, for which files may have to be read.
    formats: Callable[[], Collection[str]] = frozenset
    #: The text of a file that an argument names; empty if it cannot be read.
    read: Callable[[str], str] = lambda name: ""

    @property
    def verb(self) -> str:
        """The first argument that is no option, nor a number behind one."""
        return next((word for word in self.arguments if not word.startswith("-") and not word.isdigit()), "")

    @property
    def pairs(self) -> Iterator[tuple[str, str]]:
        """Each argument behind the one before it; behind nothing, the first."""
        return pairwise(["", *self.arguments])


class Rule(NamedTuple):
    """A way to call a program that depends on the whole input."""

    #: Completes "PROGRAM ...".
    why: str
    #: What works instead.
    instead: str
    when: Callable[[Call], bool] = lambda call: True
    #: With these joins, and an input of one of these formats, it is exact after all; both empty: it is not.
    joins: frozenset[str] = frozenset()
    formats: frozenset[str] = frozenset()

    def applies(self, call: Call) -> bool:
        """Whether ``call`` depends on the whole input."""
        return self.when(call) and not ((self.joins or self.formats) and self._is_met(call))

    def _is_met(self, call: Call) -> bool:
        return self.joins.issubset(call.joins) and not (self.formats and self.formats.isdisjoint(call.formats()))


# When a rule applies


def verb(*names: str) -> Callable[[Call], bool]:
    """One of these sub-commands."""
    return lambda call: call.verb in names


def option(*names: str, others: Sequence[str] = ()) -> Callable[[Call], bool]:
    """One of these options; one of a single dash and letter also among others behind one dash, a long one also cut short.

    Args:
        others: Long options of the program that are as if cut short, and are not.
    """
    letters = "".join(name[1] for name in names if len(name) == 2)
    attached = f"-[A-Za-z]*[{letters}]" if letters else None

    def given(call: Call) -> bool:
        return any(
            word.partition("=")[0] in names
            or (word.partition("=")[0] not in others and is_short_for(word.partition("=")[0], names))
            or (attached is not None and re.match(attached, word) is not None)
            for word in call.arguments
        )

    return given


def is_short_for(word: str, names: Sequence[str]) -> bool:
    """Whether GNU programs take ``word`` for one of the long options.

    >>> is_short_for("--max", ("-m", "--max-count")), is_short_for("--m", ("--max-count",)), is_short_for("--", ("--x",))
    (True, True, False)
    """
    return word != "--" and word.startswith("--") and any(name.startswith(word) for name in names)


def exactly(*names: str) -> Callable[[Call], bool]:
    """One of these words, as it is or before ``=``."""
    return lambda call: any(word in names or word.partition("=")[0] in names for word in call.arguments)


def operand(*takes_a_word: str) -> Callable[[Call], bool]:
    """An argument that is no option, nor the word that one of these options takes."""
    return lambda call: any(not word.startswith("-") and before not in takes_a_word for before, word in call.pairs)


def text(pattern: str) -> Callable[[Call], bool]:
    """An argument in which ``pattern`` is found."""
    return lambda call: any(re.search(pattern, word) for word in call.arguments)


def both(*conditions: Callable[[Call], bool]) -> Callable[[Call], bool]:
    return lambda call: all(condition(call) for condition in conditions)


def either(*conditions: Callable[[Call], bool]) -> Callable[[Call], bool]:
    return lambda call: any(condition(call) for condition in conditions)


def without(condition: Callable[[Call], bool]) -> Callable[[Call], bool]:
    return lambda call: not condition(call)


def value(names: tuple[str, ...], pattern: str) -> Callable[[Call], bool]:
    """A value that is ``pattern`` as a whole, in the word behind one of these options."""
    return lambda call: any(before in names and re.fullmatch(pattern, word) is not None for before, word in call.pairs)
