"""Detection of inputs that the command of an unknown program also reads whole, by another argument or a script.

In a task, the name of an input is its batch. So a second use of the name in the arguments is refused, and one in a
script is reported, as far as it can be seen.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from millrace.errors import RefusedError
from millrace.model import ArgumentToken, InputArg, UserCommand

#: Option before a script in the arguments: ``sh -c``, ``bash -ec``, ``perl -ne``.
_SCRIPT = re.compile(r"-[A-Za-z]*[ce]")

#: Bytes of a script that are searched for names.
_SCRIPT_BYTES = 1 << 16


def refuse_whole_reads(path: str, form: str, command: UserCommand, tokens: Sequence[ArgumentToken], index: int) -> None:
    """Refuse a file that is cut and read whole under one name: Millrace cannot know which of both an argument means.

    Args:
        path: The file, as the user names it.
        form: Its format.
        tokens: The arguments, with the file marked as input.
        index: Its number among the inputs.

    Raises:
        RefusedError: The arguments or a shared folder name it a second time.
    """
    for place in _find_whole_reads(path, form, command, tokens, index):
        raise RefusedError(
            f"{place} is the file that --input {path} cuts into batches: it cannot be told where the tool is to see all of it",
            f"give the whole file a name of its own (ln -s {path} whole-{os.path.basename(path)}), and name that where it is read whole",
        )
    if folder := _find_shared_folder(path, form, command):
        raise RefusedError(
            f"--shared {folder} has in it what --input {path} cuts into batches: tools would see their part of it there",
            "name it by its whole path, in --input and in the arguments: then they see the folder as it is; or keep it elsewhere",
        )


def _find_whole_reads(
    path: str, form: str, command: UserCommand, tokens: Sequence[ArgumentToken], index: int
) -> Iterator[str]:
    named = [token for token in tokens if isinstance(token, InputArg) and token.index == index]
    if form != "files" and path not in command.outputs:  # an output of this name is refused elsewhere
        yield from (token.prefix + path for token in named[1:])
    cut = os.path.normpath(command.cwd / path)
    spelled = [token for token in tokens[1:] if isinstance(token, str) and token] if named else []
    others = [word for token in spelled for word in (token, token.partition("=")[2]) if word]
    for option, name in (*(("--shared ", name) for name in command.shared), *(("", word) for word in others)):
        if os.path.normpath(command.cwd / name) == cut:
            yield f"{option}{name}"
    if named:
        for before, text in pairwise(tokens):
            if (
                isinstance(before, str)
                and _SCRIPT.fullmatch(before)
                and isinstance(text, str)
                and _is_path_in_text(text, path)
            ):
                yield f"{path} in the script after {before}"


def _find_shared_folder(path: str, form: str, command: UserCommand) -> str:
    """Return the shared folder in which tools would see a batch in place of the file; empty: none."""
    if form == "files" or path == "-" or os.path.isabs(path):
        return ""  # batches lie elsewhere, and tools see the unchanged folder
    above = [str(folder) for folder in Path(os.path.normpath(command.cwd / path)).parents]
    return next((name for name in command.shared if os.path.normpath(command.cwd / name) in above), "")


def is_path_in_script(script: Path, path: str) -> bool:
    """Tell whether a file is a script that contains ``path`` in its first 64 KiB."""
    try:
        with script.open("rb") as file:
            text = file.read(_SCRIPT_BYTES).decode("utf-8", "surrogateescape")
    except OSError:
        return False
    is_script = text.startswith("#!") or script.suffix in (".sh", ".bash", ".py", ".pl", ".rb", ".R", ".awk")
    return is_script and "\0" not in text and _is_path_in_text(text, path)


def _is_path_in_text(text: str, path: str) -> bool:
    """Tell whether a text contains a path as a separate word.

    >>> [_is_path_in_text(text, "q.faa") for text in ("x q.faa>y", "x ./q.faa", "x q.faa.gz", "x d/q.faa", "x=q.faa;")]
    [True, True, False, False, True]
    """
    return bool(re.search(rf"(?<![\w./-])(?:\./)?{re.escape(path.removeprefix('./'))}(?![\w/-]|\.\w)", text))
