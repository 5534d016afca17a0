"""Defaults of a site and of a user: small files that the settings of a job override."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from millrace.core.errors import RefusedError
from millrace.core.job import JobSpec, check_known_keys, expand_home, make_job, read_job_file
from millrace.host.permissions import is_own_folder

#: The site's file, and the environment variable that names another in its place; empty: none.
FILE, VARIABLE = Path("/etc/millrace.toml"), "MILLRACE_CONFIG"

#: Name of the user's file, in their folder of configurations.
OF_USER = "millrace.toml"

#: Allowed keys.
KEYS = frozenset({"costs", "nice", "replica", "slots", "stage", "store", "work-dir"})

#: The environment variable that names the store.
STORE_VARIABLE = "MILLRACE_STORE"


class SiteDefaults(NamedTuple):
    """The content of one file."""

    file: str
    values: dict[str, Any]


def read_defaults(environ: Mapping[str, str]) -> list[SiteDefaults]:
    """Read the site's file and the user's, in this order; the later one takes precedence. Missing files are left out.

    Raises:
        RefusedError: A file cannot be read, or has another key or a wrong value.
    """
    return [*_read_site_defaults(environ), *_read_user_defaults(environ)]


def merge_defaults(layers: list[SiteDefaults]) -> dict[str, Any]:
    """Merge the values of all files: later ones take precedence, except that replicas add up."""
    found: dict[str, Any] = {}
    for layer in layers:
        found |= layer.values
    said = [layer.values["replica"] for layer in reversed(layers) if "replica" in layer.values]
    if said and all(isinstance(rules, list) for rules in said):  # else the last one is refused
        found["replica"] = [rule for rules in said for rule in rules]
    return found


def read_settings(environ: Mapping[str, str]) -> JobSpec:
    """Return the settings of site and user, as those of a job.

    Raises:
        RefusedError: A file cannot be read, or is wrong.
    """
    return make_job({**merge_defaults(read_defaults(environ)), "command": ["none"]})


def find_store(environ: Mapping[str, str]) -> str:
    """Return the store that the environment names, else that of the user, else that of the site; empty: there is none.

    Raises:
        RefusedError: A file cannot be read, or is wrong.
    """
    named = environ.get(STORE_VARIABLE)
    return expand_home(named) if named else read_settings(environ).store


def _read_site_defaults(environ: Mapping[str, str]) -> list[SiteDefaults]:
    named = environ.get(VARIABLE)
    path = FILE if named is None else Path(named)
    if named == "" or (named is None and not os.path.lexists(path)):
        return []
    whose = f"it is named by {VARIABLE}" if named else "it is this machine's"
    hint = f"{whose}: correct it, or pass it over with {VARIABLE}="
    return [_read_defaults_file(path, hint)]


def _read_user_defaults(environ: Mapping[str, str]) -> list[SiteDefaults]:
    try:
        path = Path(environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / OF_USER
    except RuntimeError:
        return []
    # Where ``sudo`` keeps HOME, it is another user's, who could write anything there.
    if not path.is_absolute() or not os.path.lexists(path) or not is_own_folder(path):
        return []
    return [_read_defaults_file(path, "it is your own: correct it")]


def _read_defaults_file(path: Path, hint: str) -> SiteDefaults:
    try:
        found = read_job_file(path)
    except RefusedError as error:
        raise RefusedError(error.message, hint) from error
    check_known_keys(found, KEYS, str(path))
    try:
        job = make_job({**found, "command": ["none"]}, str(path))
    except RefusedError as error:
        message = error.message if error.message.startswith(str(path)) else f"{path}: {error.message}"
        raise RefusedError(message, f"{hint}; {error.hint}") from error
    places = {"work-dir": job.work_dir, "store": "" if "://" in job.store else job.store}
    for key, place in places.items():
        if place and not place.startswith("/"):
            raise RefusedError(
                f"{path}: {key} = {place!r} is not an absolute path", f"{hint}; it counts in every folder"
            )
    return SiteDefaults(str(path), found)
