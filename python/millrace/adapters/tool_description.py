"""Descriptions of tools: TOML files that name the options for input, output, database and threads.

`docs/tool-files.md` is the reference, ``millrace.adapters.described_tool`` the adapter that is made of a description.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from millrace.adapters import joins
from millrace.adapters.option_reader import OptionTable, split_aliases, split_words
from millrace.adapters.program_identity import is_interpreter
from millrace.core.errors import RefusedError

#: Most words, and form of each, with which a description may ask a program for its version.
MAX_VERSION_WORDS = 2
VERSION_WORD = re.compile(r"-{0,2}[A-Za-z][A-Za-z0-9]*(?:-[A-Za-z0-9]+)*")


class _DescriptionTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab"):
    """Base of all tables: unknown keys are refused."""


class DescribedInput(_DescriptionTable, frozen=True, kw_only=True):
    """One input that is cut into records: an option's value, an operand, or standard input."""

    #: Names of the option, separated by spaces.
    option: str = ""
    #: Position of the operand, from 1; negative: from the end.
    operand: int = 0
    #: Its record format; empty: detected from the file.
    format: str = ""
    #: Whether each file is one record: the user names a folder, a quoted glob or a list.
    each_file: bool = False
    #: Reason to refuse one plain file; empty: one is accepted.
    why_not_one: str = ""


class DescribedOutput(_DescriptionTable, frozen=True, kw_only=True):
    """One file that the tool writes."""

    option: str = ""
    operand: int = 0
    #: Joins, each as `--join` has them.
    join: tuple[str, ...] = ()


class DescribedDatabase(_DescriptionTable, frozen=True, kw_only=True):
    """One database, which every task reads whole."""

    option: str = ""
    operand: int = 0
    #: Text that may stand before the name, such as a sign that changes the meaning of the file.
    prefix: str = ""
    #: Files beside it, as a glob in which ``{}`` is the name; empty: the file itself.
    files: str = ""
    #: Glob of the same form: if a file matches, the database is refused with ``why`` and ``instead``.
    refused_with: str = ""
    why: str = ""
    instead: str = ""


class DescribedRefusal(_DescriptionTable, frozen=True, kw_only=True):
    """An option that is refused, with the reason and an alternative."""

    #: The refused options, separated by spaces.
    option: str
    #: Accepted if its value matches this regular expression.
    unless: str = ""
    #: Accepted beside one of these options.
    unless_with: str = ""
    #: Regular expression for the value of that other option.
    with_value: str = ""
    why: str
    instead: str = "leave it out"


class DescribedNeed(_DescriptionTable, frozen=True, kw_only=True):
    """An option without which the result is not exact."""

    #: The options, of which one is needed, separated by spaces.
    option: str
    #: Regular expression for its value, if it takes one.
    value: str = ""
    why: str
    instead: str


class DescribedUse(_DescriptionTable, frozen=True, kw_only=True):
    """Options and operands of a program, or of one of its verbs."""

    #: Options without a value, with one, and with many, separated by spaces, besides those of the places below.
    flags: str = ""
    values: str = ""
    many: str = ""
    #: ``SHORT=LONG``, separated by spaces: two names of one option.
    names: str = ""
    input: tuple[DescribedInput, ...] = ()
    output: tuple[DescribedOutput, ...] = ()
    database: tuple[DescribedDatabase, ...] = ()
    #: Joins of standard output.
    stdout: tuple[str, ...] = ()
    #: Option for the number of threads.
    threads: str = ""
    #: Positions, from 1, of operands that are no files, such as a pattern.
    operands: tuple[int, ...] = ()
    refuse: tuple[DescribedRefusal, ...] = ()
    need: tuple[DescribedNeed, ...] = ()


class ToolDescription(_DescriptionTable, frozen=True, kw_only=True):
    """Content of one description file."""

    #: Names of the program.
    programs: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
    about: str = ""
    #: Arguments that print its version, and the releases that were compared.
    version: tuple[str, ...] = ()
    tested: tuple[str, ...] = ()
    #: Its option syntax: see ``millrace.adapters.option_reader.OptionTable``.
    dashes: Literal["alike", "tell", "one"] = "tell"
    equals: bool = True
    attached: bool = False
    #: Only with ``tell``.
    together: bool = True
    #: Reason to refuse the program altogether; empty: it is accepted.
    refused: str = ""
    instead: str = "run it by itself"
    #: CPU seconds of a start.
    startup_seconds: Annotated[float, msgspec.Meta(ge=0)] = 0.01
    #: Words on standard error that mean failure.
    failures_said: tuple[str, ...] = ()
    use: DescribedUse = DescribedUse()
    #: Uses by the first argument, each in addition to ``use``.
    verb: dict[str, DescribedUse] = {}

    def merge_verb_use(self, verb: str) -> DescribedUse:
        """Return ``use`` merged with that of a verb; for any other word, ``use`` alone."""
        if verb not in self.verb:
            return self.use
        pairs = [
            (name, getattr(self.use, name), getattr(self.verb[verb], name)) for name in DescribedUse.__struct_fields__
        ]
        joined = {name: f"{of_all} {own}" if isinstance(own, str) else of_all + own for name, of_all, own in pairs}
        return msgspec.structs.replace(self.use, **joined | {"threads": self.verb[verb].threads or self.use.threads})


def build_options(description: ToolDescription, use: DescribedUse) -> OptionTable:
    """Build the option table that parses a command of this use."""
    aliases = split_aliases(use.names)
    every: tuple[DescribedInput | DescribedOutput | DescribedDatabase, ...] = (*use.input, *use.output, *use.database)
    places = " ".join(each.option for each in every)
    flags, many = _resolve_aliases(use.flags, aliases), _resolve_aliases(use.many, aliases)
    values = _resolve_aliases(f"{use.values} {places} {use.threads}", aliases)
    refused = _resolve_aliases(_list_refused_options(use), aliases)
    return OptionTable(
        flags=flags | (refused - values - many),
        values=values,
        many=many,
        aliases=aliases,
        dashes=description.dashes,
        equals=description.equals,
        attached=description.attached,
        together=description.together and description.dashes == "tell",
    )


def _list_refused_options(use: DescribedUse) -> str:
    """List the options that are refused in any case, so that it does not matter whether they take a value."""
    return " ".join(rule.option for rule in use.refuse if not rule.unless and not rule.unless_with)


def _resolve_aliases(text: str, aliases: dict[str, str]) -> frozenset[str]:
    return frozenset(aliases.get(name, name) for name in split_words(text))


def read_description(path: Path) -> ToolDescription:
    """Read and check a description.

    Raises:
        RefusedError: It cannot be read, or is not valid.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise RefusedError(f"{path}: no description of a tool: {error}", "see docs/tool-files.md") from error
    return parse_description(content, path)


def parse_description(content: bytes, path: Path) -> ToolDescription:
    """Parse and check the content of a description.

    Args:
        path: The file, for messages.

    Raises:
        RefusedError: It is not valid.
    """
    import tomllib  # loaded here, as programs with an adapter never need it

    try:
        found = msgspec.convert(tomllib.loads(content.decode()), ToolDescription)
    except msgspec.ValidationError as error:
        text, _, place = str(error).partition(" - at `$.")
        place = place.rstrip("`")
        where = f"{place}: " if place else ""
        raise RefusedError(f"{path}: {where}{text[:1].lower()}{text[1:]}", _suggest_correction(text, place)) from error
    except (ValueError, RecursionError) as error:
        raise RefusedError(f"{path}: no description of a tool: {error}", "see docs/tool-files.md") from error
    _check_version_words(found, path)
    for use in (found.use, *found.verb.values()):
        _check_use(use, path)
    return found


#: Tables by their names in a file.
_TABLES: dict[str, type[_DescriptionTable]] = {
    "": ToolDescription, "use": DescribedUse, "verb": DescribedUse, "input": DescribedInput, "output": DescribedOutput, "database": DescribedDatabase, "refuse": DescribedRefusal,
    "need": DescribedNeed,
}  # fmt: skip


def _suggest_correction(text: str, place: str) -> str:
    """Return a hint for a validation error at a place such as ``use.input[0]``."""
    name = re.sub(r"\[[^]]*\]", "", place).rpartition(".")[2]
    if text == "Expected `array`, got `str`":
        return f'write a list: {name} = ["..."]; see docs/tool-files.md'
    unknown = re.search(r"unknown field `(.*)`", text)
    if unknown and name in _TABLES:
        import difflib  # only for the refusal

        known = _TABLES[name].__struct_encode_fields__
        if near := difflib.get_close_matches(unknown[1], known, n=1):
            return f"did you mean {near[0]!r}? see docs/tool-files.md"
        return f"known keys: {', '.join(known)}; see docs/tool-files.md"
    return "see docs/tool-files.md"


def _check_version_words(description: ToolDescription, path: Path) -> None:
    """Refuse words that may do more than ask for a version: ``millrace plan`` starts the program with them."""
    words_ = description.version
    if len(words_) > MAX_VERSION_WORDS or not all(VERSION_WORD.fullmatch(word) for word in words_):
        raise RefusedError(
            f"{path}: version: {list(words_)!r} are not plain words that ask for a version",
            f'write at most {MAX_VERSION_WORDS} words of letters and digits, as in version = ["--version"]',
        )
    if words_ and (runner := next(filter(is_interpreter, description.programs), "")):
        raise RefusedError(
            f"{path}: version: {runner} runs what its arguments name, so it is never asked for its version",
            "leave out version",
        )


def _check_use(use: DescribedUse, path: Path) -> None:
    every: tuple[DescribedInput | DescribedOutput | DescribedDatabase, ...] = (*use.input, *use.output, *use.database)
    for place in every:
        if bool(place.option) == bool(place.operand) and not (isinstance(place, DescribedInput) and not place.option):
            raise RefusedError(
                f"{path}: a place has either an option or the number of an operand", "see docs/tool-files.md"
            )
    for join in (*use.stdout, *(each for output in use.output for each in output.join)):
        try:
            joins.check_join(join, join)
        except RefusedError as error:
            raise RefusedError(f"{path}: {error.message}", error.hint) from error
    for text in (
        *(each.unless for each in use.refuse),
        *(each.with_value for each in use.refuse),
        *(each.value for each in use.need),
    ):
        try:
            re.compile(text)
        except re.error as error:
            raise RefusedError(f"{path}: {text!r}: {error}", "write a regular expression") from error
    for pair in use.names.split():
        if pair.count("=") != 1:
            raise RefusedError(f"{path}: names: {pair!r}", 'write SHORT=LONG, as in names = "o=out t=threads"')
