"""Defaults of a site and of a user: small files that the settings of a job override."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from millrace.errors import RefusedError
from millrace.job import check_known, from_toml, from_values
from millrace.own import is_own
from millrace.replicas import Replica

#: The site's file, and the environment variable that names another in its place; empty: none.
FILE, VARIABLE = Path("/etc/millrace.toml"), "MILLRACE_CONFIG"

#: Name of the user's file, in their folder of configurations.
OF_USER = "millrace.toml"

#: Allowed keys.
KEYS = frozenset({"nice", "replica", "slots", "stage", "work-dir"})


class Defaults(NamedTuple):
    """The content of one file."""

    file: str
    values: dict[str, Any]


def defaults(environ: Mapping[str, str]) -> list[Defaults]:
    """Read the site's file and the user's, in this order; the later one takes precedence. Missing files are left out.

    Raises:
        RefusedError: A file cannot be read, or has another key or a wrong value.
    """
    return [*_of_site(environ), *_of_user(environ)]


def merged(layers: list[Defaults]) -> dict[str, Any]:
    """Merge the values of all files: later ones take precedence, except that replicas add up."""
    found: dict[str, Any] = {}
    for layer in layers:
        found |= layer.values
    said = [layer.values["replica"] for layer in reversed(layers) if "replica" in layer.values]
    if said and all(isinstance(rules, list) for rules in said):  # else the last one is refused
        found["replica"] = [rule for rules in said for rule in rules]
    return found


def replicas(environ: Mapping[str, str]) -> tuple[Replica, ...]:
    """Return the replicas of files that site and user declare.

    Raises:
        RefusedError: A file cannot be read, or is wrong.
    """
    return from_values({**merged(defaults(environ)), "command": ["none"]}).replica


def _of_site(environ: Mapping[str, str]) -> list[Defaults]:
    named = environ.get(VARIABLE)
    path = FILE if named is None else Path(named)
    if named == "" or (named is None and not os.path.lexists(path)):
        return []
    whose = f"it is named by {VARIABLE}" if named else "it is this machine's"
    hint = f"{whose}: correct it, or pass it over with {VARIABLE}="
    return [_read(path, hint)]


def _of_user(environ: Mapping[str, str]) -> list[Defaults]:
    try:
        path = Path(environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / OF_USER
    except RuntimeError:
        return []
    # Where ``sudo`` keeps HOME, it is another user's, who could write anything there.
    if not path.is_absolute() or not os.path.lexists(path) or not is_own(path):
        return []
    return [_read(path, "it is your own: correct it")]


def _read(path: Path, hint: str) -> Defaults:
    try:
        found = from_toml(path)
    except RefusedError as error:
        raise RefusedError(error.message, hint) from error
    check_known(found, KEYS, str(path))
    try:
        from_values({**found, "command": ["none"]}, str(path))
    except RefusedError as error:
        raise RefusedError(error.message, f"{hint}; {error.hint}") from error
    place = str(found.get("work-dir", ""))
    if place and not place.startswith("/"):
        raise RefusedError(
            f"{path}: work-dir = {place!r} is not an absolute path", f"{hint}; it counts in every folder"
        )
    return Defaults(str(path), found)
