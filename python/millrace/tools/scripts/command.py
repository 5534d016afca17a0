"""The scripts that a command of awk, sed or perl runs."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from itertools import chain
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from millrace.tools.scripts.arguments import Arguments, read
from millrace.tools.scripts.carried import Carried, Separator

#: The module here that reads the scripts of a program.
_KINDS = {
    **dict.fromkeys(("awk", "gawk", "mawk", "nawk", "original-awk"), "awk"),
    **dict.fromkeys(("sed", "gsed"), "sed"),
    "perl": "perl",
}

#: Options that name the script, so that no operand is one, and those that name a file of it.
_NAMED = {"awk": "efE", "sed": "ef", "perl": "eE"}
_FILES = {"awk": "fEi", "sed": "f", "perl": ""}
#: Options that have perl run the script for each record.
_LOOPS = "npaF"


class Scripts(NamedTuple):
    """The scripts of a command, and what is seen of them."""

    kind: str
    given: Arguments
    #: One after another; of files as well, if they can be read.
    texts: list[str]

    def carried(self, *, below_header: bool = False, path: str | None = None) -> Carried | None:
        """What the command carries from line to line, as its scripts show it; None: nothing is seen.

        Args:
            below_header: Each part begins with the first line of the input, so that it may be asked for.
            path: The file that is cut, as it stands in the arguments; None: it is not known which one that is.
        """
        if not self.texts:
            return None
        # Without a loop perl reads as it likes: no more is known of that than what it counts.
        is_looped = self.kind != "perl" or self.given.has(_LOOPS)
        if not is_looped:
            counted: Callable[[str], Carried | None] = self._reader.counted
            return counted("\n".join(self.texts))
        text = "\n".join(self.texts)
        values = [*(value for letter, value in self.given.options if letter == "v"), *self.given.operands]
        below_header = below_header and not any(re.match("F?NR=(?!=)", value) for value in values)
        others = [file for file in self._files if file != path] if path else []
        is_looked_up = self.kind == "awk" and self._files == [*others[:1], path] and self._reader.has_lookup(text)
        if others and not is_looked_up:
            why = f"reads {others[0]} as well, and would write of it with each part of the input"
            return Carried(why, is_local=False)
        carried: Callable[[str, bool], Carried | None] = self._reader.carried
        return carried(text, below_header)

    @property
    def _files(self) -> list[str]:
        """The files that it reads one after the other."""
        is_named = self.given.has(_NAMED[self.kind])
        files = self.given.operands if is_named else self.given.operands[1:]
        return [file for file in files if self.kind != "awk" or not re.match(r"[A-Za-z_]\w*=", file)]

    def separator(self) -> Separator | None:
        """What the command takes for the end of a record; None: that of a line."""
        of_script: Callable[[str], Iterator[Separator]] = self._reader.separators
        of_options: Callable[[Arguments], Iterator[Separator]] = self._reader.separators_of_options
        found = [*chain.from_iterable(map(of_script, self.texts)), *of_options(self.given)]
        return next((each for each in found if not each.is_nul), next(iter(found), None))

    @property
    def _reader(self) -> ModuleType:
        return import_module(f"millrace.tools.scripts.{self.kind}")


def scripts_of(program: str, arguments: Sequence[str], cwd: Path) -> Scripts | None:
    """The scripts of a command; None: it is none of awk, sed or perl."""
    if not (kind := _KINDS.get(program)):
        return None
    given = _given(kind, arguments, cwd)
    return Scripts(kind, given, _scripts(kind, given, cwd))


def _given(kind: str, arguments: Sequence[str], cwd: Path) -> Arguments:
    """The arguments; of perl, with those that the first line of its script has."""
    given = read(kind, arguments)
    if kind == "perl" and given.operands and not given.has(_NAMED[kind]):
        for text in _text(kind, given.operands[0], cwd):
            if found := re.match(r"#!.*?perl\S*[ \t]+(-.*)", text):
                given.options.extend(read(kind, found[1].split()).options)
    return given


def _scripts(kind: str, given: Arguments, cwd: Path) -> list[str]:
    """The scripts that the arguments name, and behind them those that they include."""
    found, names = list(_named(kind, given, cwd)), set[str]()
    for text in found if kind == "awk" else ():  # grows on the way
        for name in re.findall(r'^\s*@include\s+"([^"]+)"', text, re.MULTILINE):
            if name not in names:
                names.add(name)
                found += _text(kind, name, cwd)
    return found


def _named(kind: str, given: Arguments, cwd: Path) -> Iterator[str]:
    for letter, value in given.options:
        if letter in _FILES[kind] and value != "inplace":
            yield from _text(kind, value, cwd)
        elif letter in _NAMED[kind]:
            yield value
    if not given.operands or given.has(_NAMED[kind]):
        return
    if kind != "perl":
        yield given.operands[0]
    elif given.has(_LOOPS):
        yield from _text(kind, given.operands[0], cwd)


def _text(kind: str, name: str, cwd: Path) -> Iterator[str]:
    """The text of a file; nothing, if it cannot be read."""
    folders, names = [""], [name]
    if kind == "awk":
        folders += os.environ.get("AWKPATH", "").split(":")
        names += [f"{name}.awk"]
    for path in (cwd / folder / each for folder in folders for each in names):
        try:
            text = path.read_text(errors="replace")
        except OSError:
            continue
        yield text
        return
