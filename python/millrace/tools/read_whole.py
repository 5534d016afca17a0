"""A file that is cut into batches and that the command of an unknown program also names where it is read whole.

By its name a tool sees its part of it, so a second place where the name stands is refused, or said, as far as it can be seen.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from millrace.errors import RefusedError
from millrace.model import Command, InputArg, Token

#: The option before a script in the arguments: ``sh -c``, ``bash -ec``, ``perl -ne``.
_SCRIPT = re.compile(r"-[A-Za-z]*[ce]")

#: Bytes of a script in which names are looked for.
_SCRIPT_BYTES = 1 << 16


def refuse_read_whole(path: str, form: str, command: Command, tokens: Sequence[Token], index: int) -> None:
    """Refuse a file that is to be cut and to be read whole by one name: which of them a place means cannot be told.

    Args:
        path: As the user names it.
        form: Its format.
        tokens: The arguments, marked where the file stands.
        index: Which input it is there.

    Raises:
        RefusedError: It is.
    """
    for place in _places(path, form, command, tokens, index):
        raise RefusedError(
            f"{place} is the file that --input {path} cuts into batches: it cannot be told where the tool is to see all of it",
            f"give the whole file a name of its own (ln -s {path} whole-{os.path.basename(path)}), and name that where it is read whole",
        )
    if folder := _folder(path, form, command):
        raise RefusedError(
            f"--shared {folder} has in it what --input {path} cuts into batches: tools would see their part of it there",
            "name it by its whole path, in --input and in the arguments: then they see the folder as it is; or keep it elsewhere",
        )


def _places(path: str, form: str, command: Command, tokens: Sequence[Token], index: int) -> Iterator[str]:
    named = [token for token in tokens if isinstance(token, InputArg) and token.index == index]
    if form != "files" and path not in command.outputs:  # which is refused for that
        yield from (token.prefix + path for token in named[1:])
    cut = os.path.normpath(command.cwd / path)
    spelled = [token for token in tokens[1:] if isinstance(token, str) and token] if named else []
    others = [word for token in spelled for word in (token, token.partition("=")[2]) if word]
    for option, name in (*(("--shared ", name) for name in command.shared), *(("", word) for word in others)):
        if os.path.normpath(command.cwd / name) == cut:
            yield f"{option}{name}"
    if named:
        for before, text in pairwise(tokens):
            if isinstance(before, str) and _SCRIPT.fullmatch(before) and isinstance(text, str) and _names(text, path):
                yield f"{path} in the script after {before}"


def _folder(path: str, form: str, command: Command) -> str:
    """The shared folder in which tools would see a batch in the place of the file; empty: there is none."""
    if form == "files" or path == "-" or os.path.isabs(path):
        return ""  # batches lie elsewhere, and tools see the folder as it is
    above = [str(folder) for folder in Path(os.path.normpath(command.cwd / path)).parents]
    return next((name for name in command.shared if os.path.normpath(command.cwd / name) in above), "")


def speaks_of(script: Path, path: str) -> bool:
    """Whether a file is a script in which ``path`` stands, as far as its first 64 KiB tell."""
    try:
        with script.open("rb") as file:
            text = file.read(_SCRIPT_BYTES).decode("utf-8", "surrogateescape")
    except OSError:
        return False
    is_script = text.startswith("#!") or script.suffix in (".sh", ".bash", ".py", ".pl", ".rb", ".R", ".awk")
    return is_script and "\0" not in text and _names(text, path)


def _names(text: str, path: str) -> bool:
    """Whether a path stands in a text by itself.

    >>> [_names(text, "q.faa") for text in ("x q.faa>y", "x ./q.faa", "x q.faa.gz", "x d/q.faa", "x=q.faa;")]
    [True, True, False, False, True]
    """
    return bool(re.search(rf"(?<![\w./-])(?:\./)?{re.escape(path.removeprefix('./'))}(?![\w/-]|\.\w)", text))
