"""Calls of programs, and rules for calls that depend on the whole input; used by ``millrace.tools.everyday``."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple


class ProgramCall(NamedTuple):
    """A program with its arguments, joins and inputs."""

    program: str
    arguments: Sequence[str]
    #: Names of the joins that the user names.
    joins: Collection[str]
    #: Finds the record formats of its inputs; may read files.
    formats: Callable[[], Collection[str]] = frozenset
    #: Reads a file that an argument names; empty if it cannot be read.
    read: Callable[[str], str] = lambda name: ""

    @property
    def verb(self) -> str:
        """The first argument that is neither an option nor a number."""
        return next((word for word in self.arguments if not word.startswith("-") and not word.isdigit()), "")

    @property
    def pairs(self) -> Iterator[tuple[str, str]]:
        """Each argument with the one before it: (before, argument); empty before the first."""
        return pairwise(["", *self.arguments])


class CallRule(NamedTuple):
    """A way to call a program that depends on the whole input."""

    #: Completes "PROGRAM ...".
    why: str
    #: The alternative that works.
    instead: str
    when: Callable[[ProgramCall], bool] = lambda call: True
    #: With these joins, and an input of one of these formats, the call is exact; both empty: it never is.
    joins: frozenset[str] = frozenset()
    formats: frozenset[str] = frozenset()

    def should_refuse(self, call: ProgramCall) -> bool:
        """Tell whether the rule refuses ``call``, as it depends on the whole input."""
        return self.when(call) and not ((self.joins or self.formats) and self._has_joins_and_formats(call))

    def _has_joins_and_formats(self, call: ProgramCall) -> bool:
        return self.joins.issubset(call.joins) and not (self.formats and self.formats.isdisjoint(call.formats()))


# Conditions of rules: each function makes a predicate of calls


def has_verb(*names: str) -> Callable[[ProgramCall], bool]:
    """Match calls with one of these sub-commands."""
    return lambda call: call.verb in names


def has_option(*names: str, others: Sequence[str] = ()) -> Callable[[ProgramCall], bool]:
    """Match calls with one of these options: a letter also in a group (``-xvf``), a long one also abbreviated.

    Args:
        others: Other long options of the program that would look like abbreviations of these.
    """
    letters = "".join(name[1] for name in names if len(name) == 2)
    attached = f"-[A-Za-z]*[{letters}]" if letters else None

    def given(call: ProgramCall) -> bool:
        return any(
            word.partition("=")[0] in names
            or (word.partition("=")[0] not in others and is_abbreviated_option(word.partition("=")[0], names))
            or (attached is not None and re.match(attached, word) is not None)
            for word in call.arguments
        )

    return given


def is_abbreviated_option(word: str, names: Sequence[str]) -> bool:
    """Tell whether GNU programs take ``word`` as an abbreviation of one of the long options.

    >>> is_abbreviated_option("--max", ("-m", "--max-count")), is_abbreviated_option("--m", ("--max-count",)), is_abbreviated_option("--", ("--x",))
    (True, True, False)
    """
    return word != "--" and word.startswith("--") and any(name.startswith(word) for name in names)


def has_exact_word(*names: str) -> Callable[[ProgramCall], bool]:
    """Match calls with one of these words, alone or before ``=``."""
    return lambda call: any(word in names or word.partition("=")[0] in names for word in call.arguments)


def has_operand(*takes_a_word: str) -> Callable[[ProgramCall], bool]:
    """Match calls with an argument that is neither an option nor the value of one of these options."""
    return lambda call: any(not word.startswith("-") and before not in takes_a_word for before, word in call.pairs)


def has_pattern(pattern: str) -> Callable[[ProgramCall], bool]:
    """Match calls with an argument in which ``pattern`` is found."""
    return lambda call: any(re.search(pattern, word) for word in call.arguments)


def has_all(*conditions: Callable[[ProgramCall], bool]) -> Callable[[ProgramCall], bool]:
    return lambda call: all(condition(call) for condition in conditions)


def has_any(*conditions: Callable[[ProgramCall], bool]) -> Callable[[ProgramCall], bool]:
    return lambda call: any(condition(call) for condition in conditions)


def has_not(condition: Callable[[ProgramCall], bool]) -> Callable[[ProgramCall], bool]:
    return lambda call: not condition(call)


def has_option_value(names: tuple[str, ...], pattern: str) -> Callable[[ProgramCall], bool]:
    """Match calls in which the word behind one of these options matches ``pattern`` as a whole."""
    return lambda call: any(before in names and re.fullmatch(pattern, word) is not None for before, word in call.pairs)
