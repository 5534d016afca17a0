"""Confirmations of tool descriptions by the user (`millrace tool allow`), kept by digest of their content.

A description in a working folder came with the data and may be another person's. It decides how programs are started,
so it counts only after the user has confirmed it, and only while its content stays the same.
"""

from __future__ import annotations

import os
import shlex
from _blake2 import blake2b  # as hashlib has it, which would load OpenSSL at each start
from collections.abc import Mapping
from pathlib import Path

from millrace import own, state
from millrace.errors import RefusedError

#: Name of the folder in the user's state folder.
FOLDER = "tools"


def check_description_owner(path: Path, cwd: Path) -> None:
    """Check that only this user or root can have written a description in the working folder ``cwd``.

    Raises:
        RefusedError: Another user can.
    """
    for place in (cwd, path.parent, path):
        try:
            why = own.find_trust_problem(place)
        except OSError as error:
            why = (error.strerror or str(error)).lower()
        if why:
            raise RefusedError(
                f"{place}: {why}, so the description {path.name} is not believed",
                f"read it, and keep a copy of your own in ~/.config/millrace/tools; or remove {path}",
            )


def check_confirmation(content: bytes, path: Path, cwd: Path, environ: Mapping[str, str]) -> None:
    """Check that the user has confirmed this content of a description.

    Raises:
        RefusedError: They have not; the hint is the command that confirms it.
    """
    if not is_content_confirmed(content, environ):
        raise RefusedError(
            f"{path}: this description of a tool has not been confirmed as it is now",
            f"read it, and if you trust it: {format_allow_command(path, cwd)}",
        )


def format_allow_command(path: Path, cwd: Path) -> str:
    """Return the command that confirms a description, as typed in ``cwd``."""
    return shlex.join(["millrace", "tool", "allow", os.path.relpath(path, cwd)])


def is_content_confirmed(content: bytes, environ: Mapping[str, str]) -> bool:
    """Tell whether the user has confirmed this content."""
    try:
        folder = _open_confirmations(environ)
    except OSError:
        return False
    try:
        os.stat(_digest_content(content), dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    finally:
        os.close(folder)
    return True


def confirm_content(content: bytes, environ: Mapping[str, str]) -> None:
    """Keep the user's confirmation of this content.

    Raises:
        RefusedError: There is no folder of the user's alone in which it can be kept.
    """
    try:
        folder = _open_confirmations(environ, make=True)
    except OSError as error:
        raise RefusedError(
            f"what you confirm cannot be kept: {error.strerror or error}",
            "set XDG_STATE_HOME to a folder of yours that is closed to others",
        ) from error
    try:
        os.close(
            os.open(
                _digest_content(content), os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder
            )
        )
    except OSError as error:
        raise RefusedError(
            f"what you confirm cannot be kept: {error.strerror}", "make room, or set XDG_STATE_HOME"
        ) from error
    finally:
        os.close(folder)


def _digest_content(content: bytes) -> str:
    return blake2b(content, digest_size=32).hexdigest()


def _open_confirmations(environ: Mapping[str, str], *, make: bool = False) -> int:
    """Open the folder of confirmations.

    Raises:
        OSError: It does not exist, or other users can write there.
    """
    base = state.find_state_folder(environ)
    if not base:
        raise FileNotFoundError(0, "there is no home of your own")
    if make:
        base.mkdir(mode=0o700, parents=True, exist_ok=True)
        (base / FOLDER).mkdir(mode=0o700, exist_ok=True)
    return own.open_private_folder(base / FOLDER)
