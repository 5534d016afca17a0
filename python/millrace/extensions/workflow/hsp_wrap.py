"""A reader of HSP-Wrap job files: ``phase``, ``stream``, ``file``, ``arch``, ``depends-on``, ``master``.

Source: P. Giblock, HSP-Wrap (thesis, University of Tennessee, 2015), which describes the file; its published code reads
none. So the reader is lenient where the description is open: ``;``, ``=`` and quotes of names are optional.
"""

from __future__ import annotations

import glob
import os
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millrace.adapters import registry
from millrace.core import record_formats
from millrace.core.errors import RefusedError
from millrace.core.job import check_known_keys
from millrace.core.tool_use import FrozenValue

if TYPE_CHECKING:
    from lark import Token, Tree

GRAMMAR = r"""
start: (statement | _END)*
statement: NAME value* (block | _END)
block: _OPEN (statement | _END)* last? _CLOSE
last: NAME value*
value: "="? (STRING | NAME)
NAME: /[^\s{};="'#]+/
STRING: /"(\\.|[^"\\\n])*"/ | /'[^'\n]*'/
_OPEN.2: /\s*\{/
_CLOSE: "}"
_END: /[;\n]/
COMMENT.3: /#[^\n]*/ | /\/\/[^\n]*/ | /\/\*(.|\n)*?\*\//
%ignore /[ \t\r\f]+/
%ignore COMMENT
"""


class HspSetting(FrozenValue, frozen=True):
    """A setting ``key value... { settings }``, with its line and column."""

    key: str
    values: tuple[str, ...]
    inner: tuple[HspSetting, ...]
    line: int
    column: int

    def find_settings(self, *keys: str) -> list[HspSetting]:
        """Return the inner settings with these keys."""
        return [each for each in self.inner if each.key in keys]

    def get_text(self, *keys: str) -> str:
        """Return the values of the last inner setting with these keys, joined by spaces; empty if there is none."""
        found = self.find_settings(*keys)
        return " ".join(found[-1].values) if found else ""


class HspReader:
    """A reader of one job file.

    Args:
        where: The file, for messages.
    """

    def __init__(self, where: str, cwd: Path) -> None:
        self._where, self._cwd = where, cwd
        #: Notes on settings of the file that have no effect here, with the reason.
        self.notes: list[str] = []

    def read_values(self, text: str) -> dict[str, Any]:
        """Return the job as the values of an equal TOML file.

        Raises:
            RefusedError: The text is invalid, or a setting is not supported; with line and column.
        """
        settings = self.parse_settings(text)
        self._check_keys(settings, ("phase", "master"))
        for master in [each for each in settings if each.key == "master"]:
            self._check_keys(master.inner, ("bcast-chunk-size",))
            self.notes.append("master: bcast-chunk-size has no effect: copies go in pieces of measured size")
        phases = [each for each in settings if each.key == "phase"]
        if not phases:
            raise RefusedError(f"{self._where}:1:1: no phase", "say: phase NAME { arch ... stream ... }")
        tables: dict[str, Any] = {}
        for number, phase in enumerate(phases, 1):
            name = " ".join(phase.values) or f"phase{number}"
            if name in tables:
                raise self._build_error(phase, f"phase {name} is there twice", "give it another name")
            tables[name] = self._read_phase(phase)
        return {"phase": tables}

    def parse_settings(self, text: str) -> tuple[HspSetting, ...]:
        """Parse a text into settings.

        Raises:
            RefusedError: The syntax is invalid.
        """
        from lark import Lark  # few jobs need this import
        from lark.exceptions import UnexpectedInput

        try:
            tree = Lark(GRAMMAR, parser="lalr", lexer="contextual", propagate_positions=True).parse(text + "\n")
        except UnexpectedInput as error:
            lines = text.splitlines() or [""]
            line, column = (error.line, error.column) if error.line > 0 else (len(lines), len(lines[-1]) + 1)
            found = (
                repr(lines[line - 1][column - 1 : column])
                if line <= len(lines) and column <= len(lines[line - 1])
                else "the end"
            )
            raise RefusedError(
                f"{self._where}:{line}:{column}: unexpected {found}",
                "a setting is: KEY VALUE; a group: KEY NAME { ... }",
            ) from error
        return tuple(_build_settings(tree))

    def _read_phase(self, phase: HspSetting) -> dict[str, Any]:
        """Return the table of one phase."""
        self._check_keys(phase.inner, ("stream", "file", "arch", "depends-on", "exe", "args"))
        exes, args = self._read_programs(phase)
        words = self._split_arguments(args)
        table: dict[str, Any] = {}
        inputs, outputs, renamed = list[str](), list[str](), dict[str, str]()
        for stream in phase.find_settings("stream"):
            typed, path, form, is_input = self._read_stream(stream)
            renamed[typed] = path
            (inputs if is_input else outputs).append(f"{path}:{form}" if form and is_input else path)
        shared = [path for file in phase.find_settings("file") for path in self._find_shared_files(file, renamed)]
        machine = os.uname().machine
        exe = exes.get(machine) or exes.get("") or next(iter(exes.values()))
        table["command"] = [exe, *(renamed.get(word, word) for word in words)]
        if named := {name: {"exe": path} for name, path in exes.items() if name}:
            table["arch"] = named
        if not registry.has_adapter(Path(exe).name):
            table |= {"input": inputs, "output": outputs, "shared": shared}
        if after := [name for each in phase.find_settings("depends-on") for name in each.values]:
            table["after"] = after
        return table

    def _read_programs(self, phase: HspSetting) -> tuple[dict[str, str], HspSetting]:
        """Return the program by architecture (empty: any), and the setting with the arguments."""
        arches = phase.find_settings("arch")
        for arch in arches:
            self._check_keys(arch.inner, ("exe", "args"))
        places = {" ".join(arch.values): arch for arch in arches} or {"": phase}
        for place in places.values():
            if not place.get_text("exe"):
                raise self._build_error(place, f"{place.key}: no exe", 'say: exe "PROGRAM"')
        given = [args for place in (*places.values(), phase) for args in place.find_settings("args")]
        if len({" ".join(args.values) for args in given}) > 1:
            raise self._build_error(
                given[1],
                "other args for another architecture",
                "the output would depend on the node: give all the same",
            )
        if not given:
            raise self._build_error(phase, "no args", 'say: args "OPTIONS"')
        return {name: place.get_text("exe") for name, place in places.items()}, given[0]

    def _split_arguments(self, args: HspSetting) -> list[str]:
        """Split the arguments of a program into words."""
        if len(args.values) > 1:
            return list(args.values)
        try:
            return shlex.split(args.values[0] if args.values else "")
        except ValueError as error:
            raise self._build_error(args, f"args: {error}", "close the quotation") from error

    def _read_stream(self, stream: HspSetting) -> tuple[str, str, str, bool]:
        """Return the name in the arguments, the file, its format, and whether it is an input."""
        self._check_keys(stream.inner, ("path", "format", "prefetch-ratio", "type"))
        names, said = list(stream.values), stream.get_text("type").lower()
        if len(names) == 2 and not said:
            said = names.pop(0 if names[0].lower() in WAYS else 1).lower()
        if len(names) != 1 or said not in ("", *WAYS):
            raise self._build_error(
                stream,
                "a stream has one name and one direction",
                'say: stream "NAME" { type input; path "FILE"; format fasta }',
            )
        if stream.find_settings("prefetch-ratio"):
            self.notes.append("prefetch-ratio has no effect: what is read ahead follows from measured times")
        name, form = names[0], stream.get_text("format").lower()
        if form and form not in record_formats.FORMATS:
            at = stream.find_settings("format")[-1]
            raise self._build_error(
                at, f"unknown record format '{form}'", f"formats are {', '.join(record_formats.FORMATS)}"
            )
        path = stream.get_text("path") or name
        is_input = WAYS[said] if said else bool(form) or (self._cwd / path).exists()
        return name, path, form, is_input

    def _find_shared_files(self, file: HspSetting, renamed: dict[str, str]) -> list[str]:
        """Return the shared files of a setting; add a file with ``path`` to ``renamed``."""
        self._check_keys(file.inner, ("path",))
        if not file.values:
            raise self._build_error(file, "a file has a name", 'say: file "db/*"')
        pattern = file.get_text("path") or file.values[0]
        found = sorted(glob.glob(pattern, root_dir=self._cwd)) if glob.has_magic(pattern) else [pattern]
        if not found:
            raise self._build_error(
                file, f"{pattern}: no files there", "check the path, relative to the working folder"
            )
        if file.get_text("path"):
            renamed[file.values[0]] = pattern
        return found

    def _check_keys(self, settings: Sequence[HspSetting], known: Sequence[str]) -> None:
        """Refuse settings with unknown keys."""
        for each in settings:
            try:
                check_known_keys([each.key], known)
            except RefusedError as error:
                raise self._build_error(each, error.message, error.hint) from error

    def _build_error(self, at: HspSetting, message: str, hint: str) -> RefusedError:
        """Build an error with the line and column of a setting."""
        return RefusedError(f"{self._where}:{at.line}:{at.column}: {message}", hint)


#: Words for the direction of a stream: whether the tool reads it.
WAYS = {"in": True, "input": True, "read": True, "out": False, "output": False, "write": False}


def read_hsp_job(path: Path, cwd: Path) -> tuple[dict[str, Any], list[str]]:
    """Read a job file of HSP-Wrap: values named as in a TOML file, and notes on settings without effect.

    Raises:
        RefusedError: The file cannot be read, is invalid or asks for something unsupported.
    """
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise RefusedError(
            f"{path}: {getattr(error, 'strerror', None) or error}", "check the path of the job file"
        ) from error
    reader = HspReader(str(path), cwd)
    return reader.read_values(text), reader.notes


def _build_settings(tree: Tree[Token]) -> Iterator[HspSetting]:
    """Yield the settings of a parsed tree, with their inner ones."""
    for statement in tree.children:
        assert not isinstance(statement, str)  # by the grammar
        word, *rest = statement.children
        parts = [each for each in rest if not isinstance(each, str)]
        values = tuple(_unquote_value(str(each.children[-1])) for each in parts if each.data == "value")
        inner = tuple(setting for each in parts if each.data == "block" for setting in _build_settings(each))
        assert isinstance(word, str)
        yield HspSetting(word.lower(), values, inner, word.line or 0, word.column or 0)


def _unquote_value(text: str) -> str:
    """Remove the quotes of a value, and its escapes in double quotes."""
    if text[:1] == '"':
        return text[1:-1].replace('\\"', '"').replace("\\\\", "\\")
    return text[1:-1] if text[:1] == "'" else text
