"""The scripts that a command of awk, sed or perl runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path

from millrace.tools.scripts.carried import Carried

#: The module here that reads the scripts of a program.
_KINDS = {
    **dict.fromkeys(("awk", "gawk", "mawk", "original-awk"), "awk"),
    **dict.fromkeys(("sed", "gsed"), "sed"),
    "perl": "perl",
}

#: Letters of options that take a value, and those among them that take the script and the file with it.
_VALUES = {"awk": "Fvfeilo", "sed": "efl", "perl": "eEfFiImM0ClxVD"}
_LONG = {
    "awk": {"--source": "e", "--file": "f", "--field-separator": "F", "--assign": "v", "--include": "i", "--load": "l"},
    "sed": {"--expression": "e", "--file": "f", "--line-length": "l"},
}


def carried(program: str, arguments: Sequence[str], cwd: Path) -> Carried | None:
    """What the command carries from line to line, as its scripts show it; None: nothing is seen."""
    if not (kind := _KINDS.get(program)):
        return None
    if not (texts := scripts(program, arguments, cwd)):
        return None
    reader = import_module(f"millrace.tools.scripts.{kind}")
    read: Callable[[str], Carried | None] = reader.carried
    if kind == "perl" and not any(re.match(r"-[a-zA-Z0-9]*[np]", word) for word in arguments):
        read = reader.counted  # without a loop it reads as it likes: no more is known of that
    return read("\n".join(texts))


def scripts(program: str, arguments: Sequence[str], cwd: Path) -> list[str]:
    """The texts of the scripts, one after another; of files as well, if they can be read."""
    kind = _KINDS[program]
    found, is_named = list[str](), False
    words = iter(arguments)
    for word in words:
        if word == "--":
            word = next(words, "")
        elif word.startswith("-") and word != "-":
            for letter, value in _options(kind, word, words):
                is_named |= letter in "eEf"
                if letter in "eE":
                    found.append(value)
                elif letter == "f" and kind != "perl":
                    found += _text(cwd / value)
            continue
        if not is_named and kind != "perl":
            found.append(word)
        break  # what follows are files, and options behind them are rare
    return found


def _options(kind: str, word: str, words: Iterator[str]) -> Iterator[tuple[str, str]]:
    """The letters of options in a word and their values."""
    if word.startswith("--"):
        name, equal, value = word.partition("=")
        if letter := _LONG.get(kind, {}).get(name, ""):
            yield letter, value if equal else next(words, "")
        return
    for at, letter in enumerate(word[1:], start=2):
        if letter not in _VALUES[kind]:
            continue
        if kind == "perl" and letter not in "eE":
            if letter not in "0lx" and word[at:]:
                return  # -F, -i and others take what is attached
            continue
        yield letter, word[at:] or next(words, "")
        return


def _text(path: Path) -> list[str]:
    try:
        return [path.read_text(errors="replace")]
    except OSError:
        return []
