"""Reader of command lines, by a table of a program's options and of its rules for reading them.

Options that are not in the table are refused. So a value is never taken for a file, and no option is passed on whose
effect on a part of the input is unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

import msgspec

from millrace.core.errors import RefusedError
from millrace.core.tool_use import ArgumentToken, FrozenValue, InputArg, OutputArg


class CommandWord(FrozenValue, frozen=True, kw_only=True):
    """One option with its values, or one operand, of a command."""

    #: The option's canonical name, without dashes; empty for an operand.
    name: str
    #: As the user typed it.
    typed: str
    #: Index of the option itself in the arguments.
    at: int
    values: tuple[str, ...] = ()
    #: Index of the first value in the arguments; the others follow it.
    value_at: int = 0
    #: Text before the first value in the same argument (``--in=``).
    prefix: str = ""

    @property
    def value(self) -> str:
        """The only value, or the operand."""
        return self.values[0]


class OptionErrorTexts(FrozenValue, frozen=True, kw_only=True):
    """Messages for options that cannot be read: problem and hint, with ``{program}``, ``{typed}`` and ``{name}``."""

    unknown: tuple[str, str] = (
        "{program}: option {typed} is not known to millrace, nor what it does to a part of the input",
        "check its spelling, or put the command into a script and run that: "
        "millrace run --input FILE --output FILE -- ./script",
    )
    no_value: tuple[str, str] = ("{program}: {typed} needs a value", "see the help of {program}")
    twice: tuple[str, str] = ("{program}: {typed} is given twice", "give it once")


class OptionTable(FrozenValue, frozen=True, kw_only=True):
    """Table of the options of a program, and its rules for reading them."""

    flags: frozenset[str] = frozenset()
    #: Options that take one value.
    values: frozenset[str] = frozenset()
    #: Options that take all the arguments up to the next option.
    many: frozenset[str] = frozenset()
    #: Options that take a value only behind ``=``, and need none.
    optional: frozenset[str] = frozenset()
    #: Other spellings, without dashes: ``p`` for ``threads``.
    aliases: dict[str, str] = msgspec.field(default_factory=dict)
    #: Whether ``--name=value`` is read.
    equals: bool = False
    #: Whether ``-pvalue`` is read (for names of one letter).
    attached: bool = False
    #: Whether several options of one letter may stand behind one dash, of which the last one may take a value.
    together: bool = False
    #: Dashes before a name: ``alike``, any number; ``tell``, one before a letter and two before a longer name; ``one``,
    #: one before any name.
    dashes: Literal["alike", "tell", "one"] = "alike"
    #: Whether names are read without regard to case.
    fold_case: bool = False
    #: Whether a name may be shortened as long as it is unique.
    shorten: bool = False
    #: Whether an unknown name is an option with a value, which the program itself checks.
    others: bool = False
    #: Whether each option may be given only once.
    once: bool = False
    #: Whether ``--`` ends the options.
    ends: bool = False
    #: Whether the first operand ends the options.
    leading: bool = False
    #: Whether an option that is neither in ``flags`` nor in ``values``, known or not, takes all the arguments up to the
    #: next dash; behind one dash, the first letter alone is the name then.
    greedy: bool = False
    #: Fewest letters of an attached value, where one is not enough, of ``greedy`` options.
    least_attached: dict[str, int] = msgspec.field(default_factory=dict)
    #: Beginnings of operands that look like options.
    operands: tuple[str, ...] = ()
    complaints: OptionErrorTexts = OptionErrorTexts()

    @property
    def known_names(self) -> frozenset[str]:
        """Names of all options in the table."""
        return self.flags | self.values | self.many | self.optional


def split_words(text: str) -> frozenset[str]:
    """Split a table that is written as running text into its words."""
    return frozenset(text.split())


def split_ordered_words(text: str) -> tuple[str, ...]:
    """Split such a table into its words, in order."""
    return tuple(text.split())


def split_aliases(text: str) -> dict[str, str]:
    """Split a table of ``alias=name`` into the names, by alias."""
    return dict(pair.split("=") for pair in text.split())


def scan_options(arguments: Sequence[str], options: OptionTable, program: str, *, first: int = 1) -> list[CommandWord]:
    """Read ``arguments`` from index ``first`` as ``program`` itself would.

    Raises:
        RefusedError: An option is not in the table, or has no value.
    """
    return list(scan_options_lazily(arguments, options, program, first=first))


def scan_options_lazily(
    arguments: Sequence[str], options: OptionTable, program: str, *, first: int = 1
) -> Iterator[CommandWord]:
    """Read as ``scan_options`` does, but word by word, so that a caller may refuse a word before the next one is read."""
    reader = _OptionReader(arguments, options, program)
    at, is_over = first, False
    while at < len(arguments):
        typed = arguments[at]
        if typed == "--" and options.ends and not is_over:
            is_over, at = True, at + 1
        elif is_over or _is_operand(typed, options):
            is_over |= options.leading
            yield CommandWord(name="", typed=typed, at=at, values=(typed,), value_at=at)
            at += 1
        else:
            found, at = reader.read_option(at)
            yield from found


class _OptionReader:
    """Reader of the options of one command."""

    def __init__(self, arguments: Sequence[str], options: OptionTable, program: str) -> None:
        self.arguments, self.options, self.program = arguments, options, program
        self.known = options.known_names
        self.seen: set[str] = set()

    def read_option(self, at: int) -> tuple[list[CommandWord], int]:
        """Read the option at ``at``, or several behind one dash. Return them and the index of the next argument."""
        typed = self.arguments[at]
        if self.options.greedy:
            return self._read_greedy(at)
        if self.options.together and not typed.startswith("--"):
            return self._read_letters(at)
        name, prefix = self._split_name(typed)
        self._check_once(name, typed)
        word, end = self._read_values(name, at, prefix)
        return [word], end

    def _read_letters(self, at: int) -> tuple[list[CommandWord], int]:
        typed = self.arguments[at]
        found: list[CommandWord] = []
        for place, letter in enumerate(typed[1:], start=1):
            name = self.options.aliases.get(letter, letter)
            if name not in self.known:
                raise self._make_refusal(self.options.complaints.unknown, f"-{letter}", name)
            self._check_once(name, typed)
            if name in self.options.flags:
                found.append(CommandWord(name=name, typed=typed, at=at))
                continue
            word, end = self._read_values(name, at, typed[: place + 1] if typed[place + 1 :] else "")
            return [*found, word], end
        return found, at + 1

    def _read_greedy(self, at: int) -> tuple[list[CommandWord], int]:
        typed, options = self.arguments[at], self.options
        is_long = typed.startswith("--")
        name = typed.lstrip("-") if is_long else typed[1]
        if not is_long and name in options.flags:
            return [CommandWord(name=name, typed=typed, at=at)], at + 1
        if not is_long and name in options.values:
            attached = len(typed) - 2 >= options.least_attached.get(name, 1)
            word, end = self._read_values(name, at, typed[:2] if attached else "")
            return [word], end
        end = at + 1
        while end < len(self.arguments) and not self.arguments[end].startswith("-"):
            end += 1
        return [
            CommandWord(name=name, typed=typed, at=at, values=tuple(self.arguments[at + 1 : end]), value_at=at + 1)
        ], end

    def _read_values(self, name: str, at: int, prefix: str) -> tuple[CommandWord, int]:
        """Read option ``name`` with its values, the first behind ``prefix``, and the index of the next argument."""
        typed, options = self.arguments[at], self.options
        if prefix:
            values, value_at, end = [typed[len(prefix) :]], at, at + 1
        elif name in options.values or name not in self.known:
            values, value_at, end = list(self.arguments[at + 1 : at + 2]), at + 1, at + 2
        else:
            values, value_at, end = [], at + 1, at + 1
        if name in options.many:
            while end < len(self.arguments) and not _is_option(self.arguments[end]):
                values.append(self.arguments[end])
                end += 1
        if not values and name not in options.flags | options.optional:
            raise self._make_refusal(options.complaints.no_value, typed, name)
        word = CommandWord(name=name, typed=typed, at=at, values=tuple(values), value_at=value_at, prefix=prefix)
        return word, end

    def _split_name(self, typed: str) -> tuple[str, str]:
        """Split off an option's canonical name and, if a value stands in the same argument, the text before it."""
        options = self.options
        dashes = "-" if options.dashes == "one" else typed[: len(typed) - len(typed.lstrip("-"))]
        name, equal, _ = typed.removeprefix(dashes).partition("=")
        if not (equal and options.equals):
            name, equal = typed.removeprefix(dashes), ""
        spelling = name.lower() if options.fold_case else name
        spelling = options.aliases.get(spelling, spelling)
        if spelling not in self.known and options.shorten and dashes == "--":
            longer = [each for each in self.known if len(each) > 1 and each.startswith(spelling)]
            spelling = longer[0] if len(longer) == 1 else spelling
        tells = len(spelling) > 1 if dashes == "--" else len(name) == 1
        fits = {"alike": True, "tell": tells, "one": not name.startswith("-")}
        if (spelling in self.known or options.others) and fits[options.dashes]:
            return spelling, f"{dashes}{name}=" if equal else ""
        letter = options.aliases.get(name[:1], name[:1])
        if options.attached and dashes == "-" and letter in options.values | options.many:
            return letter, typed[:2]
        raise self._make_refusal(options.complaints.unknown, typed, name)

    def _check_once(self, name: str, typed: str) -> None:
        if self.options.once and name in self.seen:
            raise self._make_refusal(self.options.complaints.twice, typed, name)
        self.seen.add(name)

    def _make_refusal(self, complaint: tuple[str, str], typed: str, name: str) -> RefusedError:
        problem, hint = (each.format(program=self.program, typed=typed, name=name) for each in complaint)
        return RefusedError(problem, hint)


def _is_operand(argument: str, options: OptionTable) -> bool:
    is_dash = argument == "-" or (argument == "--" and options.dashes != "one")
    return is_dash or not argument.startswith("-") or argument.startswith(options.operands)


def _is_option(argument: str) -> bool:
    # A negative number is a value: --center_x -5.
    return len(argument) > 1 and argument[0] == "-" and not (argument[1].isdigit() or argument[1] == ".")


class CommandTokens:
    """Arguments of a command, in which the places of inputs and outputs are marked one after another."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self._tokens: list[ArgumentToken | None] = list(arguments)

    def mark_input(self, word: CommandWord, index: int = 0) -> None:
        """Mark the values of ``word`` as input ``index``: one place for all of them."""
        self.drop_values(word)
        self._tokens[word.value_at] = InputArg(index=index, prefix=word.prefix)

    def mark_output(self, word: CommandWord, index: int) -> None:
        """Mark the value of ``word`` as output ``index``."""
        self._tokens[word.value_at] = OutputArg(index=index, prefix=word.prefix)

    def replace_value(self, word: CommandWord, token: ArgumentToken) -> None:
        """Put ``token`` in the place of the value of ``word``, or of the operand."""
        self._tokens[word.value_at] = token

    def drop_option(self, word: CommandWord) -> None:
        """Remove an option and its values."""
        self.drop_values(word)
        self._tokens[word.at] = None

    def drop_values(self, word: CommandWord) -> None:
        """Remove the values of an option."""
        for place in range(word.value_at, word.value_at + len(word.values)):
            self._tokens[place] = None

    def insert(self, at: int, *tokens: ArgumentToken) -> None:
        """Insert ``tokens`` before index ``at``. Do this last, as it shifts the indexes of words."""
        self._tokens[at:at] = tokens

    def append(self, *tokens: ArgumentToken) -> None:
        """Append ``tokens``."""
        self._tokens.extend(tokens)

    def build_arguments(self) -> tuple[ArgumentToken, ...]:
        """Return the arguments as they are now."""
        return tuple(token for token in self._tokens if token is not None)


def find_last_use(found: Iterable[CommandWord], name: str) -> CommandWord | None:
    """Return the last use of an option, which is the valid one; None: it is not used."""
    uses = [word for word in found if word.name == name]
    return uses[-1] if uses else None


def find_only_use(found: Iterable[CommandWord], name: str, program: str) -> CommandWord | None:
    """Return the only use of an option that names a file; None: it is not used.

    Raises:
        RefusedError: It is used twice.
    """
    uses = [word for word in found if word.name == name]
    if len(uses) > 1:
        raise RefusedError(f"{program}: {uses[1].typed} is given twice", "give it once")
    return uses[0] if uses else None


def parse_count(word: CommandWord, program: str) -> int:
    """Read the value of an option as a whole number.

    Raises:
        RefusedError: It is none.
    """
    try:
        return int(word.value)
    except ValueError:
        raise RefusedError(f"{program}: {word.typed} needs a whole number, found '{word.value}'") from None
