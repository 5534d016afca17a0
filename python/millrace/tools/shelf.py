"""Lookup of tool descriptions: in folders of the project, the user and the site, installed packages, and our own.

The first description of a program counts. A program that has an adapter of its own
(``millrace.tools.registry.FAMILIES``) cannot be described again: a file must not change its exactness.

A description in a project may be another person's, so it counts only after the user has confirmed its content
(``millrace.tools.confirmations``).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from millrace.own import find_trust_problem
from millrace.tools import confirmations

#: Most bytes of a description.
MAX_DESCRIPTION_BYTES = 1 << 20

#: Folders of descriptions: below the working folder, below the user's configuration folder, and of the site.
IN_PROJECT, OF_USER, OF_SITE = Path("millrace-tools"), Path("millrace/tools"), Path("/etc/millrace/tools")

#: Group of entry points, each a package whose TOML files describe tools.
GROUP = "millrace.tools"


class FoundDescription(NamedTuple):
    """A description file that was found."""

    path: Path
    #: ``project``, ``user``, ``site``, ``package NAME`` or ``millrace``.
    source: str
    programs: tuple[str, ...]
    about: str
    #: Content of the file, read once, so that the confirmed content is the one that is used.
    content: bytes = b""


def list_description_folders(cwd: Path, environ: Mapping[str, str]) -> Iterator[tuple[Path, str]]:
    """Yield the folders of descriptions and their sources, in order of precedence."""
    yield cwd / IN_PROJECT, "project"
    home = environ.get("XDG_CONFIG_HOME") or os.path.join(environ.get("HOME", "/"), ".config")
    yield Path(home) / OF_USER, "user"
    yield OF_SITE, "site"
    if _has_package_descriptions(sys.path):
        from importlib.metadata import entry_points
        from importlib.resources import files

        for point in entry_points(group=GROUP):
            yield Path(str(files(point.value))), f"package {point.name}"
    yield OURS, "millrace"


def _has_package_descriptions(places: Iterable[str]) -> bool:
    """Tell whether an installed package has entry points in our group: 2 ms, where ``importlib.metadata`` takes 20."""
    for place in places:
        try:
            with os.scandir(place or ".") as entries:
                packages = [each.path for each in entries if each.name.endswith((".dist-info", ".egg-info"))]
        except OSError:
            continue  # not a folder, such as the archive of the standard library
        for package in packages:
            try:
                with open(os.path.join(package, "entry_points.txt"), "rb") as said:
                    if GROUP.encode() in said.read():
                        return True
            except OSError:
                continue  # most packages have none
    return False


OURS = Path(__file__).resolve().parent / "described"


def list_descriptions(cwd: Path, environ: Mapping[str, str]) -> Iterator[FoundDescription]:
    """Yield all descriptions, in order of precedence."""
    for folder, source in list_description_folders(cwd, environ):
        for path in _list_description_files(folder, source):
            yield inspect_description(path, source)


def inspect_description(path: Path, source: str) -> FoundDescription:
    """Read which programs a file describes, without checking the rest; an unreadable one counts by its file name."""
    return _parse_programs(path, source, _read_content(path))


def _parse_programs(path: Path, source: str, content: bytes) -> FoundDescription:
    import tomllib  # loaded here, as programs with an adapter never need it

    try:
        values = tomllib.loads(content.decode())
        said = values.get("programs", path.stem)  # a wrong type is found here too, and refused later with the reason
        programs = (said,) if isinstance(said, str) else tuple(map(str, said))
        return FoundDescription(path, source, programs, str(values.get("about", "")), content)
    except (ValueError, TypeError, RecursionError):
        return FoundDescription(path, source, (path.stem,), "cannot be read", content)


def find_description(
    program: str, cwd: Path, environ: Mapping[str, str], *, is_confirmed: bool = False
) -> FoundDescription | None:
    """Return the description of a program with the highest precedence; None: there is none.

    Args:
        is_confirmed: Whether that of the project has been confirmed already, where the run was planned.

    Raises:
        RefusedError: The description of the project may be another user's, or its content was not confirmed.
    """
    for folder, source in list_description_folders(cwd, environ):
        for path in _list_description_files(folder, source):
            content = _read_content(path)
            if not _may_describe(path, content, program):
                continue
            if program in (found := _parse_programs(path, source, content)).programs:
                if source == "project":
                    _check_project_description(found, cwd, environ, is_confirmed=is_confirmed)
                return found
    return None


def _check_project_description(
    found: FoundDescription, cwd: Path, environ: Mapping[str, str], *, is_confirmed: bool
) -> None:
    """Refuse the description of a project that is not valid, may be another user's, or was not confirmed."""
    from millrace.tools.description import parse_description

    confirmations.check_description_owner(found.path, cwd)
    parse_description(found.content, found.path)
    if not is_confirmed:
        confirmations.check_confirmation(found.content, found.path, cwd, environ)


def _read_content(path: Path) -> bytes:
    """Read a file up to ``MAX_DESCRIPTION_BYTES``; empty if it cannot be read. Does not block on a pipe."""
    try:
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
            return file.read(MAX_DESCRIPTION_BYTES)
    except OSError:
        return b""


def _may_describe(path: Path, content: bytes, program: str) -> bool:
    """Tell whether a file may describe this program; one without the name in its content need not be parsed."""
    # A backslash may spell the name in escapes.
    return path.stem == program or os.fsencode(program) in content or b"\\" in content


def _list_description_files(folder: Path, source: str) -> list[Path]:
    """List the descriptions in a folder, except those of the source ``user`` that another user may have written.

    That can be so under ``sudo``, which may keep ``HOME``.
    """
    if not folder.is_dir() or (source == "user" and find_trust_problem(folder)):
        return []
    return [path for path in sorted(folder.glob("*.toml")) if source != "user" or _is_trusted_file(path)]


def _is_trusted_file(path: Path) -> bool:
    try:
        return not find_trust_problem(path)
    except OSError:
        return False  # a link that leads nowhere
