"""The private folder of a round: it has links to the files of the user's working folder, and receives the outputs."""

from __future__ import annotations

import os
from collections.abc import Set
from pathlib import Path

from millrace.errors import RefusedError
from millrace.model import ToolUse
from millrace.tools.base import is_stream_path


def is_file_path(path: str) -> bool:
    """Tell whether the path of an input or output is a file, so neither a standard stream nor a device."""
    return path != "-" and not is_stream_path(path)


def refuse_uncheckable(use: ToolUse) -> None:
    """Refuse a command that cannot be checked, before anything runs.

    Raises:
        RefusedError: An input or output is outside the working folder, or each file is a record.
    """
    for item in (each for each in use.inputs if each.format == "files"):
        words = item.path.replace("\0", " ")[:60]
        raise RefusedError(
            f"each file of {words} is a record, and no batch cuts it: there is nothing to compare",
            "millrace run -- ... does what a shell loop over the files does",
        )
    for output in use.outputs:
        if output.layout != "file":
            raise RefusedError(f"{output.path} is more than one file, which is not compared", "check a single output")
    for path in [*(each.path for each in use.inputs), *(each.path for each in use.outputs)]:
        if is_file_path(path) and (os.path.isabs(path) or os.path.normpath(path).startswith("..")):
            raise RefusedError(
                f"{path} is outside the working folder, and a check writes its own version of it",
                "go to a folder that has the sample in it, and name inputs and outputs from there",
            )


def link_user_folder(folder: Path, work: Path, outputs: Set[str], inputs: Set[str]) -> None:
    """Make ``work`` with links to the entries of ``folder``, but real folders on the way to each input and output.

    Args:
        outputs: Normalized paths below ``folder`` that get no link; their parent folders are made.
        inputs: Normalized paths below ``folder`` whose links can be replaced in ``work``.
    """
    work.mkdir(parents=True)
    for entry in os.scandir(folder):
        written, read = _select_paths_below(entry.name, outputs), _select_paths_below(entry.name, inputs)
        if (written or read) and entry.is_dir():
            link_user_folder(Path(entry.path), work / entry.name, written, read)
        elif entry.name not in outputs and not entry.name.endswith((".millrace", ".millrace-failed")):
            (work / entry.name).symlink_to(entry.path)
    for path in outputs:
        (work / path).parent.mkdir(parents=True, exist_ok=True)


def _select_paths_below(name: str, paths: Set[str]) -> set[str]:
    return {path[len(name) + 1 :] for path in paths if path.startswith(f"{name}/")}
