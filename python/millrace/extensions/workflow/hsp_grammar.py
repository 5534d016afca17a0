"""The grammar of HSP-Wrap's job files, and a parser of it.

Source: P. Giblock, HSP-Wrap (thesis, University of Tennessee, 2015), section 3.5.8. Further spellings are accepted: the
end of a line for ``;``, ``KEY = VALUE``, ``exe`` and ``args``, words without quotes, ``type input``, a direction beside
the name of a stream, and comments that begin with ``//`` or stand between ``/*`` and ``*/``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import NamedTuple

from millrace.core.errors import RefusedError
from millrace.core.job import check_known_keys
from millrace.core.tool_use import FrozenValue

#: Most characters of a token in a message.
MAX_SHOWN = 60

#: Tokens. Blanks and comments come first, so that no word begins with ``//``.
_TOKEN = re.compile(
    r"""(?P<blank>[ \t\r\f\n]+ | \#[^\n]* | //[^\n]* | /\*(?s:.*?)\*/)
      | (?P<sign>[{};=])
      | "(?P<double>(?:\\.|[^"\\\n])*)" | '(?P<single>[^'\n]*)'
      | (?P<word>(?!/\*)[^\s{};="'\#]+)""",
    re.VERBOSE,
)
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0e-\x1f\x7f]")

#: NUMBER and SIZE of the grammar.
NUMBER, SIZE = re.compile(r"[0-9]+(\.[0-9]+)?"), re.compile(r"[0-9]+[KkMmGg]?")


class StatementRule(NamedTuple):
    """The form of a statement."""

    min_values: int = 1
    #: None: any number, on one line.
    max_values: int | None = 1
    #: Whether the statement may stand more than once in a block.
    repeats: bool = False
    #: Whether it has a block of statements of its own: ``must``, ``may`` or ``no``.
    block: str = "no"


_PROGRAM = {"exe-file": StatementRule(), "exe-args": StatementRule(max_values=None)}

#: Statements by the block in which they stand; the job itself has no name.
GRAMMAR = {
    "": {
        "master": StatementRule(0, 0, block="must"),
        "phase": StatementRule(repeats=True, block="must"),
    },
    "master": {"bcast-chunk-size": StatementRule()},
    "phase": {
        **_PROGRAM,
        "depends-on": StatementRule(max_values=None, repeats=True),
        "arch": StatementRule(repeats=True, block="must"),
        "stream": StatementRule(max_values=2, repeats=True, block="may"),
        "file": StatementRule(repeats=True, block="may"),
    },
    "arch": _PROGRAM,
    "stream": {
        "path": StatementRule(),
        "input": StatementRule(0, 0),
        "output": StatementRule(0, 0),
        "type": StatementRule(),
        "format": StatementRule(),
        "prefetch-ratio": StatementRule(),
    },
    "file": {"path": StatementRule()},
}

#: Further spellings of statements.
ALIASES = {"exe": "exe-file", "args": "exe-args"}


class HspText:
    """The text of a job file, and the errors at its places.

    Args:
        where: The file, for messages.
    """

    def __init__(self, where: str, text: str) -> None:
        self.where, self.text = where, text

    def build_error(self, at: int, message: str, hint: str) -> RefusedError:
        """Build an error with the line and column of the character number ``at``."""
        line, column = self.text.count("\n", 0, at) + 1, at - self.text.rfind("\n", 0, at)
        return RefusedError(f"{self.where}:{line}:{column}: {message}", hint)

    def check_key(self, at: int, key: str, known: Collection[str]) -> None:
        """Refuse an unknown key, and offer the nearest known one."""
        try:
            check_known_keys([key[:MAX_SHOWN]], known)
        except RefusedError as error:
            raise self.build_error(at, error.message, error.hint) from error


class HspToken(NamedTuple):
    """A token: its kind (``sign``, ``double``, ``single``, ``word`` or ``end``), its value and its place."""

    kind: str
    value: str
    at: int
    #: Whether it is the first of its line.
    is_first: bool

    @property
    def is_value(self) -> bool:
        """Whether it can be a value of a statement."""
        return self.kind in ("double", "single", "word")

    @property
    def shown(self) -> str:
        """The token in a message."""
        return "the end" if self.kind == "end" else repr(self.value[:MAX_SHOWN])


class HspStatement(FrozenValue, frozen=True):
    """A statement ``KEY VALUE... { STATEMENTS }``, with the places of its key and values."""

    key: str
    values: tuple[str, ...]
    inner: tuple[HspStatement, ...]
    at: int
    places: tuple[int, ...]

    def list_inner(self, key: str) -> list[HspStatement]:
        """List the inner statements with this key."""
        return [each for each in self.inner if each.key == key]

    def find_inner(self, key: str) -> HspStatement | None:
        """Find the inner statement with this key, which stands there at most once."""
        return next(iter(self.list_inner(key)), None)

    def get_value(self, key: str) -> str:
        """Return the value of an inner statement; empty if there is none."""
        found = self.find_inner(key)
        return found.values[0] if found else ""


class HspParser:
    """A recursive-descent parser of one job file."""

    def __init__(self, text: HspText) -> None:
        self._text = text
        self._tokens = list(self._list_tokens())
        self._next = 0

    def parse(self) -> tuple[HspStatement, ...]:
        """Parse the whole text.

        Raises:
            RefusedError: It does not follow the grammar; with line and column.
        """
        found = self._parse_block("")
        if self._token.kind != "end":
            raise self._build_unexpected_error("each '}' closes a block that '{' has opened")
        return found

    def _list_tokens(self) -> Iterator[HspToken]:
        text, at, is_first = self._text.text, 0, True
        if control := _CONTROL.search(text):
            raise self._text.build_error(control.start(), f"unexpected {control[0]!r}", "a job file is plain text")
        while at < len(text):
            found = _TOKEN.match(text, at)
            if not found:
                hint = "close quotations on their line, and comments"
                raise self._text.build_error(at, f"unexpected {text[at]!r}", hint)
            kind = found.lastgroup or ""
            if kind == "blank":
                is_first = is_first or "\n" in found[0]
            else:
                value = found[kind]
                if kind == "double":
                    value = re.sub(r'\\(["\\])', r"\1", value)
                yield HspToken(kind, value, at, is_first)
                is_first = False
            at = found.end()
        yield HspToken("end", "", len(text.rstrip()), True)

    @property
    def _token(self) -> HspToken:
        return self._tokens[self._next]

    def _accept_sign(self, sign: str) -> bool:
        """Step over the next token if it is this sign; tell whether it was."""
        is_it = self._token.kind == "sign" and self._token.value == sign
        self._next += is_it
        return is_it

    def _build_unexpected_error(self, hint: str) -> RefusedError:
        return self._text.build_error(self._token.at, f"unexpected {self._token.shown}", hint)

    def _parse_block(self, name: str) -> tuple[HspStatement, ...]:
        """Parse the statements of a block, up to its end, which is not read."""
        rules, found = GRAMMAR[name], dict[str, list[HspStatement]]()
        every: list[HspStatement] = []
        while True:
            while self._accept_sign(";"):
                pass
            token = self._token
            if token.kind == "end" or token[:2] == ("sign", "}"):
                return tuple(every)
            if token.kind != "word":
                raise self._build_unexpected_error(f"a statement begins with one of {', '.join(sorted(rules))}")
            key = ALIASES.get(token.value.lower(), token.value.lower())
            if key not in rules:
                self._text.check_key(token.at, token.value, sorted(rules))
            statement = self._parse_statement(key, rules[key])
            if key in found and not rules[key].repeats:
                raise self._text.build_error(token.at, f"{key} is there twice", "say it once")
            found.setdefault(key, []).append(statement)
            every.append(statement)

    def _parse_statement(self, key: str, rule: StatementRule) -> HspStatement:
        at = self._token.at
        self._next += 1
        self._accept_sign("=")
        values = list(self._parse_values(key, rule))
        inner: tuple[HspStatement, ...] = ()
        if rule.block != "no" and self._accept_sign("{"):
            inner = self._parse_block(key)
            if not self._accept_sign("}"):
                raise self._build_unexpected_error(f"close the block of {key} with }}")
        elif rule.block == "must":
            raise self._build_unexpected_error(f"{key} has a block: {{ ... }}")
        elif not self._is_statement_end():
            raise self._build_unexpected_error(f"end {key} with ; (values with blanks or signs stand in quotes)")
        return HspStatement(key, tuple(each.value for each in values), inner, at, tuple(each.at for each in values))

    def _parse_values(self, key: str, rule: StatementRule) -> Iterator[HspToken]:
        """Yield the values of a statement; those that it must have may stand on further lines."""
        number, before = 0, ""
        while self._token.is_value and (rule.max_values is None or number < rule.max_values):
            is_needed = number < rule.min_values or (key == "depends-on" and before == "phase")
            if self._token.is_first and not is_needed:
                return
            if not self._token.value and key != "exe-args":
                raise self._text.build_error(
                    self._token.at, f"{key}: an empty value", "write a name between the quotes"
                )
            yield self._token
            before, number, self._next = self._token.value, number + 1, self._next + 1
        if number < rule.min_values:
            raise self._build_unexpected_error(f"{key} has a value")

    def _is_statement_end(self) -> bool:
        return self._token.is_first or self._token[:2] in (("sign", ";"), ("sign", "}"))
