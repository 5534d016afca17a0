"""Lookup of programs, by path or on ``PATH``, as the shell finds them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from millrace.errors import RefusedError, ToolError
from millrace.plan.first_word import suggest_missing_program


def find_program(name: str, cwd: Path, environ: Mapping[str, str], argv: Sequence[str] = ()) -> Path:
    """Return the path of the program that the shell would start.

    Args:
        argv: The command that begins with it, for the hint.

    Raises:
        RefusedError: The name is empty.
        ToolError: There is no such program, or it is not executable.
    """
    if not name:
        raise RefusedError("the first word of the command is empty", "write the program's name after --")
    if "/" in name:
        path = cwd / name
        if path.is_dir() or not path.exists():
            raise ToolError(
                f"{name}: {'is a folder' if path.is_dir() else 'no such program'}",
                "check the path of the program after --",
            )
        if not os.access(path, os.X_OK):
            raise ToolError(f"{name}: not executable", f"make it so with: chmod +x {name}")
        return Path(os.path.normpath(path))
    found = shutil.which(name, path=environ.get("PATH"))
    if not found:
        raise ToolError(f"{name}: program not found on PATH", suggest_missing_program(name, argv or [name], environ))
    return Path(os.path.normpath(cwd / found))
