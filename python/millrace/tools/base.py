"""What every adapter does, and the few helpers that several of them need.

Options are read by `scan` from a table of what the program knows, so that a value is never taken for a
file; files that are one record each are found by `file_records`.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

import msgspec

from millrace.errors import RefusedError
from millrace.model import Command, Frozen, InputArg, OutputArg, OutputUse, Token, ToolUse

#: What separates the names of files in an `InputUse.path` of format ``files``.
NUL = "\0"


class Adapter(Protocol):
    """One family of programs."""

    def understand(self, command: Command) -> ToolUse:
        """Find input, outputs and databases in the tool's own arguments, and how its outputs join exactly.

        May look at files and may ask the tool for its version; starts nothing else.

        Raises:
            RefusedError: The command cannot be answered exactly; says why and what to use instead.
        """
        ...


class Fragmentable(Frozen, frozen=True, kw_only=True):
    """What is known of a command's database before it is decided whether it is searched in fragments.

    What costs nothing is known at once; a database that has to be read for its ``entries`` and ``residues`` may leave
    them to ``count``, as often the queries alone decide.
    """

    #: Entries (sequences, profiles), which a fragment has whole.
    entries: int = 0
    #: Residues, or what else the time of a search grows with.
    residues: int = 0
    #: Bytes that a search of all of it reads.
    bytes: int = 0
    #: Why it cannot be searched in fragments with the same bytes as result, in words; empty: it can.
    why_not: str = ""
    #: Returns this with entries and residues, or why not after all; None: they are there.
    count: Callable[[], Fragmentable] | None = None


@runtime_checkable
class Fragmenting(Protocol):
    """An adapter that can have a database searched in fragments."""

    def fragmentable(self, use: ToolUse, command: Command) -> Fragmentable:
        """Look at the database of a command that was understood."""
        ...

    def fragment(self, use: ToolUse, command: Command, sizes: Sequence[int]) -> ToolUse:
        """Have the database searched in fragments that cost as ``sizes`` (fewer, if it has not so many entries)."""
        ...


class Word(Frozen, frozen=True, kw_only=True):
    """One option with its values, or one operand, as it stands in a command."""

    #: The option's one name, without dashes; empty for an operand.
    name: str
    #: As the user typed it.
    typed: str
    #: Position of the option itself in the arguments.
    at: int
    values: tuple[str, ...] = ()
    #: Position of the first value in the arguments; the others follow it.
    value_at: int = 0
    #: What stands before the first value in the same argument (``--in=``).
    prefix: str = ""

    @property
    def value(self) -> str:
        """The only value, or the operand."""
        return self.values[0]


class Options(Frozen, frozen=True, kw_only=True):
    """The options that a program knows and how it reads them."""

    flags: frozenset[str] = frozenset()
    #: Options that take one value.
    values: frozenset[str] = frozenset()
    #: Options that take all the arguments up to the next option.
    many: frozenset[str] = frozenset()
    #: Other spellings, without dashes: ``p`` for ``threads``.
    aliases: dict[str, str] = msgspec.field(default_factory=dict)
    #: Whether ``--name=value`` is read.
    equals: bool = False
    #: Whether ``-pvalue`` is read (for aliases of one letter).
    attached: bool = False
    #: Whether case of names does not matter.
    fold_case: bool = False
    #: Whether a name may be cut short as long as it is clear.
    shorten: bool = False


def words(text: str) -> frozenset[str]:
    """The words of a table written as running text."""
    return frozenset(text.split())


def scan(arguments: Sequence[str], options: Options, program: str) -> list[Word]:
    """Read ``arguments`` (the program's name at position 0 is passed over) as ``program`` itself would.

    Raises:
        RefusedError: An option that is not in the table, or one without its value.
    """
    return list(_scan(arguments, options, program))


def _scan(arguments: Sequence[str], options: Options, program: str) -> Iterator[Word]:
    at = 1
    while at < len(arguments):
        typed = arguments[at]
        if not typed.startswith("-") or typed in ("-", "--"):
            yield Word(name="", typed=typed, at=at, values=(typed,), value_at=at)
            at += 1
            continue
        name, prefix = _name(typed, options, program)
        if prefix:
            values: tuple[str, ...] = (typed[len(prefix) :],)
            value_at, end = at, at + 1
        elif name in options.values:
            values, value_at, end = tuple(arguments[at + 1 : at + 2]), at + 1, at + 2
        else:
            values, value_at, end = (), at + 1, at + 1
        if name in options.many:
            while end < len(arguments) and not _is_option(arguments[end]):
                values, end = (*values, arguments[end]), end + 1
        if not values and name not in options.flags:
            raise RefusedError(f"{program}: {typed} needs a value", f"see the help of {program}")
        yield Word(name=name, typed=typed, at=at, values=values, value_at=value_at, prefix=prefix)
        at = end


def _is_option(argument: str) -> bool:
    # A negative number is a value: --center_x -5.
    return len(argument) > 1 and argument[0] == "-" and not (argument[1].isdigit() or argument[1] == ".")


def _name(typed: str, options: Options, program: str) -> tuple[str, str]:
    """The one name of an option and, if the value stands in the same argument, what stands before it."""
    dashes = typed[: len(typed) - len(typed.lstrip("-"))]
    name, equal, _ = typed.removeprefix(dashes).partition("=")
    if not (equal and options.equals):
        name, equal = typed.removeprefix(dashes), ""
    known = options.flags | options.values | options.many
    spelling = name.lower() if options.fold_case else name
    spelling = options.aliases.get(spelling, spelling)
    if spelling not in known and options.shorten and dashes == "--":
        longer = [each for each in known if each.startswith(spelling)]
        spelling = longer[0] if len(longer) == 1 else spelling
    if spelling in known:
        return spelling, f"{dashes}{name}=" if equal else ""
    first = options.aliases.get(name[:1], "")
    if options.attached and dashes == "-" and first in options.values | options.many:
        return first, typed[:2]
    raise RefusedError(
        f"{program}: option {typed} is not known, nor what it does to a part of the input",
        "check its spelling, or put the command into a script and run that: "
        "millrace run --input FILE --output FILE -- ./script",
    )


class Tokens:
    """The arguments of a command, in which places of inputs and outputs are marked one after another."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self._tokens: list[Token | None] = list(arguments)

    def input(self, word: Word, index: int = 0) -> None:
        """Mark the value(s) of ``word`` as input ``index``: one place, however many names stand there."""
        self.drop_values(word)
        self._tokens[word.value_at] = InputArg(index=index, prefix=word.prefix)

    def output(self, word: Word, index: int) -> None:
        """Mark the value of ``word`` as output ``index``."""
        self._tokens[word.value_at] = OutputArg(index=index, prefix=word.prefix)

    def drop(self, word: Word) -> None:
        """Take an option with its values out."""
        self.drop_values(word)
        self._tokens[word.at] = None

    def drop_values(self, word: Word) -> None:
        """Take the values of an option out."""
        for place in range(word.value_at, word.value_at + len(word.values)):
            self._tokens[place] = None

    def insert(self, at: int, *tokens: Token) -> None:
        """Put ``tokens`` before position ``at``; do this last, as it moves positions."""
        self._tokens[at:at] = tokens

    def append(self, *tokens: Token) -> None:
        """Put ``tokens`` at the end."""
        self._tokens.extend(tokens)

    def done(self) -> tuple[Token, ...]:
        """The arguments as they are now."""
        return tuple(token for token in self._tokens if token is not None)


def last(found: Iterable[Word], name: str) -> Word | None:
    """The last use of an option, the one that counts; None if it is not there."""
    uses = [word for word in found if word.name == name]
    return uses[-1] if uses else None


def once(found: Iterable[Word], name: str, program: str) -> Word | None:
    """The only use of an option that names a file; None if it is not there."""
    uses = [word for word in found if word.name == name]
    if len(uses) > 1:
        raise RefusedError(f"{program}: {uses[1].typed} is given twice", "give it once")
    return uses[0] if uses else None


def count_of(word: Word, program: str) -> int:
    """The value of an option as a whole number."""
    try:
        return int(word.value)
    except ValueError:
        raise RefusedError(f"{program}: {word.typed} needs a whole number, found '{word.value}'") from None


def file_records(names: Sequence[str], command: Command) -> list[str] | None:
    """The files that ``names`` stand for when each file is one record; None if they name one plain file.

    ``names`` is a folder, a quoted glob, a file with one name a line, or several files. Files come in the
    order in which a shell would expand ``folder/*``: by name.
    """
    if len(names) > 1:
        return list(names)
    name, path = names[0], command.cwd / names[0]
    if path.is_dir():
        with os.scandir(path) as entries:
            names_there = sorted(each.name for each in entries if not each.name.startswith(".") and each.is_file())
        # As a path would be written: a folder of a million files is listed in no time.
        folder = "" if (typed := str(Path(name))) == "." else typed.removesuffix("/") + "/"
        return [folder + each for each in names_there]
    if not path.exists():
        found = sorted(glob.glob(name, root_dir=command.cwd))
        return found if glob.has_magic(name) and found else None
    return _names_in(path, command.cwd)


def _names_in(path: Path, cwd: Path) -> list[str] | None:
    """The names in a list of names; None if the file is something else."""
    found = []
    with path.open("rb") as lines:
        for line in lines:
            name = line.decode(errors="replace").strip()
            if not name:
                continue
            # A first line that names no file settles it: this is not a list.
            if len(name) > 4096 or NUL in name or not (cwd / name).is_file():
                return None
            found.append(name)
    return found or None


def record_output(
    name: str, typed: str, files: Sequence[str], command: Command, *, volatile: tuple[str, ...] = ()
) -> OutputUse:
    """The output of a tool that reads one file and writes one, for many files.

    A folder (or a name that ends in ``/``) gets one file per input file, of the same name; ``{name}`` and
    ``{stem}`` in the name stand for the input file's; an ordinary name gets everything, in input order.
    """
    if "{name}" in typed or "{stem}" in typed:
        template = typed
    elif typed.endswith("/") or (command.cwd / typed).is_dir():
        template = f"{typed.rstrip('/') or '/'}/{{name}}"
    else:
        return OutputUse(name=name, path=typed, volatile=volatile)
    places: dict[str, str] = {}
    for file in files:
        place = record_path(template, file)
        if place in places:
            raise RefusedError(f"{places[place]} and {file} would both be written to {place}", "rename one of them")
        if _is_same_file(os.path.join(command.cwd, place), os.path.join(command.cwd, file)):
            raise RefusedError(f"{place} would be overwritten by its own result", "name another folder")
        places[place] = file
    return OutputUse(name=name, path=template, layout="record", volatile=volatile)


def record_path(template: str, file: str) -> str:
    """The path of the output of ``file``, as the user would type it."""
    name = os.path.basename(file)
    dot = name.rfind(".")
    return template.replace("{name}", name).replace("{stem}", name[:dot] if 0 < dot < len(name) - 1 else name)


def _is_same_file(place: str, file: str) -> bool:
    try:
        return os.path.samestat(os.stat(place), os.stat(file))
    except OSError:
        return False  # mostly: nothing is there yet


def join_names(names: Sequence[str]) -> str:
    """The `InputUse.path` of names that stood in the arguments."""
    return NUL.join(names)
