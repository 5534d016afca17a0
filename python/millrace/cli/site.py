"""Defaults of a site: a small file for all users of a machine, below everything that they say themselves."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from millrace.errors import RefusedError
from millrace.job import check_known, from_toml, from_values

#: The file, and the environment variable that names another in its place; empty: none.
FILE, VARIABLE = Path("/etc/millrace.toml"), "MILLRACE_CONFIG"

#: What it may say.
KEYS = frozenset({"nice", "slots", "stage", "work-dir"})


def defaults(environ: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
    """(file, what it says); both empty if there is none.

    Raises:
        RefusedError: It cannot be read, or says something else.
    """
    named = environ.get(VARIABLE)
    path = FILE if named is None else Path(named)
    if named == "" or (named is None and not os.path.lexists(path)):
        return "", {}
    whose = f"it is named by {VARIABLE}" if named else "it is this machine's"
    hint = f"{whose}: correct it, or pass it over with {VARIABLE}="
    try:
        found = from_toml(path)
    except RefusedError as error:
        raise RefusedError(error.message, hint) from error
    check_known(found, KEYS, str(path))
    try:
        from_values({**found, "command": ["none"]}, str(path))
    except RefusedError as error:
        raise RefusedError(error.message, f"{hint}; {error.hint}") from error
    return str(path), found
