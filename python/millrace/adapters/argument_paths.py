"""Paths in the arguments of a command: their positions, and other files and folders that are named there."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from millrace.core.errors import RefusedError
from millrace.core.tool_use import ArgumentToken, InputArg, InputUse, ToolUse, UserCommand

_SCRIPTS = (".py", ".pl", ".rb", ".R", ".r", ".sh", ".awk", ".sed", ".jl", ".js", ".jq")


def is_per_record_path(path: str) -> bool:
    """Tell whether each record has its own output at this path, which then contains ``{name}`` or ``{stem}``."""
    return "{name}" in path or "{stem}" in path


def find_path_places(path: str, tokens: Sequence[ArgumentToken]) -> list[tuple[int, str]]:
    """Return the index of each argument that is ``path``, and the ``--option=`` before it, if any."""
    found = []
    for at, token in enumerate(tokens):
        if at == 0 or not isinstance(token, str):
            continue
        before, equal, after = token.partition("=")
        if token == path:
            found.append((at, ""))
        elif equal and after == path:
            found.append((at, before + equal))
    return found


def find_path_beginnings(path: str, tokens: Sequence[ArgumentToken]) -> Iterator[tuple[int, str, str]]:
    """Yield arguments that are the beginning of an output path for each record, to which the tool adds the end.

    Yields:
        (index, ``--option=`` before it or empty, end that the tool adds).

    >>> list(find_path_beginnings("out/{stem}.treefile", ["iqtree2", "--prefix=out/{stem}", "{stem}", "out"]))
    [(1, '--prefix=', '.treefile')]
    """
    for at, token in enumerate(tokens[1:], start=1):
        if not isinstance(token, str):
            continue
        before, equal, after = token.partition("=")
        for prefix, word in (("", token), (before + equal, after)):
            cut = path.removeprefix(word) if word and path.startswith(word) else ""
            # A bare placeholder may be part of the tool's own language, as in jq '{name}'.
            if cut and is_per_record_path(word) and word not in ("{name}", "{stem}") and not is_per_record_path(cut):
                yield at, prefix, cut


def refuse_other_spelling(path: str, command: UserCommand, tokens: Sequence[ArgumentToken], option: str) -> None:
    """Refuse a file of ``option`` if the arguments name it by another path.

    Raises:
        RefusedError: They do.
    """
    wanted = resolve_real_path(command, path)
    for token in tokens[1:]:
        if isinstance(token, str) and token and resolve_real_path(command, token.rpartition("=")[2]) == wanted:
            raise RefusedError(
                f"{option} {path}: the arguments spell it '{token}'", "spell it the same way in both places"
            )


def resolve_real_path(command: UserCommand, path: str) -> str:
    """Resolve all links in ``path``. Unlike ``Path.resolve``, this does not fail on circular links."""
    return os.path.realpath(command.cwd / path)


def refuse_absolute_path(path: str, option: str) -> None:
    """Refuse an absolute path for a file of ``option`` that is not in the arguments.

    Raises:
        RefusedError: It is absolute.
    """
    # A relative path leads into the private directory of each task; an absolute one to the user's own file.
    if Path(path).is_absolute():
        raise RefusedError(
            f"{option} {path} is not in the arguments, so the tool cannot be told of a part of it",
            "name it by a relative path, or put it into the arguments",
        )


def list_unnamed_inputs(inputs: Sequence[InputUse], tokens: Sequence[ArgumentToken]) -> list[InputUse]:
    """List the inputs that the arguments do not name: each task has its batch at that relative path."""
    named = {token.index for token in tokens if isinstance(token, InputArg)}
    return [each for index, each in enumerate(inputs) if not each.stdin and index not in named]


def list_argument_files(tokens: Sequence[ArgumentToken], command: UserCommand) -> list[Path]:
    """List the files in the arguments that are neither inputs nor outputs, such as a script: parts of the command."""
    own = {
        resolve_real_path(command, path)
        for path in (*command.outputs, *(each.partition(":")[0] for each in command.inputs))
    }
    found = (command.cwd / word for word in _split_path_words(tokens))
    return [path for path in found if os.path.isfile(path) and os.path.realpath(path) not in own]


def add_argument_files(use: ToolUse, command: UserCommand) -> ToolUse:
    """Return ``use`` with all files that its arguments name, whatever the option: results depend on what is in them."""
    known = [os.path.normpath(command.cwd / path) for path in use.databases]
    attached = [token[2:] for token in use.argv[1:] if isinstance(token, str) and re.match("-[A-Za-z].", token)]
    found: dict[str, Path] = {}
    for path in list_argument_files((*use.argv, *attached), command):
        place = os.path.normpath(path)
        # A number is a value, even if a file has that name; a name with which those of a database begin is that database.
        if not _is_number(path.name) and not any(each == place or each.startswith(f"{place}.") for each in known):
            found.setdefault(place, path)
    return msgspec.structs.replace(use, databases=(*use.databases, *found.values())) if found else use


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def list_data_files(command: UserCommand) -> list[str]:
    """List the files in the arguments, as typed, except scripts, which are known by their suffixes."""
    words = dict.fromkeys(_split_path_words(command.argv))
    return [word for word in words if not word.endswith(_SCRIPTS) and os.path.isfile(command.cwd / word)]


def list_unwatched_folders(tokens: Sequence[ArgumentToken], command: UserCommand) -> list[str]:
    """List the folders in the arguments that the user has declared neither shared nor outputs."""
    said = {resolve_real_path(command, path) for path in (*command.shared, *command.outputs)}
    folders = [word for word in _split_path_words(tokens) if os.path.isdir(command.cwd / word)]
    return [word for word in dict.fromkeys(folders) if os.path.realpath(command.cwd / word) not in said]


def _split_path_words(tokens: Sequence[ArgumentToken]) -> list[str]:
    """List the words in the arguments that may be paths: arguments, and their parts after ``=``."""
    texts = (token for token in tokens[1:] if isinstance(token, str) and "\0" not in token)
    return [word for text in texts for word in (text, text.partition("=")[2]) if word]
