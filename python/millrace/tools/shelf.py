"""Where descriptions of tools are: in the project, the user's and the site's folders, installed packages, and our own.

The first that knows a program counts. A program that has an adapter of its own (`millrace.tools.registry.FAMILIES`) cannot be
described again: its exactness is not for a file to change.

That of a project comes with files that others may have made, so it counts only once the user has confirmed it as it is
(`millrace.tools.confirmations`).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from millrace.own import why_not_trusted
from millrace.tools import confirmations

#: Bytes of a description at most.
MAX_BYTES = 1 << 20

#: Below the working folder, and below the user's folder of configurations.
IN_PROJECT, OF_USER, OF_SITE = Path("millrace-tools"), Path("millrace/tools"), Path("/etc/millrace/tools")

#: Group of entry points: each names a package whose TOML files describe tools.
GROUP = "millrace.tools"


class Found(NamedTuple):
    """A description that is there."""

    path: Path
    #: ``project``, ``user``, ``site``, ``package NAME`` or ``millrace``.
    source: str
    programs: tuple[str, ...]
    about: str
    #: What the file holds, read once: what was confirmed is what is done.
    content: bytes = b""


def folders(cwd: Path, environ: Mapping[str, str]) -> Iterator[tuple[Path, str]]:
    """Folders with descriptions, and whose they are; those that count first come first."""
    yield cwd / IN_PROJECT, "project"
    home = environ.get("XDG_CONFIG_HOME") or os.path.join(environ.get("HOME", "/"), ".config")
    yield Path(home) / OF_USER, "user"
    yield OF_SITE, "site"
    if _any_package(sys.path):
        from importlib.metadata import entry_points
        from importlib.resources import files

        for point in entry_points(group=GROUP):
            yield Path(str(files(point.value))), f"package {point.name}"
    yield OURS, "millrace"


def _any_package(places: Iterable[str]) -> bool:
    """Whether an installed package has entry points in our group: 2 ms, where `importlib.metadata` takes 20 to load and ask."""
    for place in places:
        try:
            with os.scandir(place or ".") as entries:
                packages = [each.path for each in entries if each.name.endswith((".dist-info", ".egg-info"))]
        except OSError:
            continue  # no folder, such as the archive of the standard library
        for package in packages:
            try:
                with open(os.path.join(package, "entry_points.txt"), "rb") as said:
                    if GROUP.encode() in said.read():
                        return True
            except OSError:
                continue  # most packages have none
    return False


OURS = Path(__file__).resolve().parent / "described"


def all_described(cwd: Path, environ: Mapping[str, str]) -> Iterator[Found]:
    """All descriptions."""
    for folder, source in folders(cwd, environ):
        for path in _files(folder, source):
            yield look(path, source)


def look(path: Path, source: str) -> Found:
    """What a file describes, without looking at the rest of it; one that cannot be read, by its name."""
    return _described(path, source, _content(path))


def _described(path: Path, source: str, content: bytes) -> Found:
    import tomllib  # what has an adapter never needs it

    try:
        values = tomllib.loads(content.decode())
        said = values.get("programs", path.stem)  # one that says it wrongly is found, and refused with the reason
        programs = (said,) if isinstance(said, str) else tuple(map(str, said))
        return Found(path, source, programs, str(values.get("about", "")), content)
    except (ValueError, TypeError, RecursionError):
        return Found(path, source, (path.stem,), "cannot be read", content)


def find(program: str, cwd: Path, environ: Mapping[str, str], *, is_confirmed: bool = False) -> Found | None:
    """The description of a program that counts; None: there is none.

    Args:
        is_confirmed: That of the project has been confirmed already, where the run was planned.

    Raises:
        RefusedError: That of the project may be another's, or was not confirmed as it is.
    """
    for folder, source in folders(cwd, environ):
        for path in _files(folder, source):
            content = _content(path)
            if not _may_describe(path, content, program):
                continue
            if program in (found := _described(path, source, content)).programs:
                if source == "project":
                    _check_project(found, cwd, environ, is_confirmed=is_confirmed)
                return found
    return None


def _check_project(found: Found, cwd: Path, environ: Mapping[str, str], *, is_confirmed: bool) -> None:
    """Refuse the description of a project that may be another's, or was not confirmed; one that is wrong with the reason."""
    from millrace.tools.description import parse

    confirmations.check_owner(found.path, cwd)
    parse(found.content, found.path)
    if not is_confirmed:
        confirmations.check(found.content, found.path, cwd, environ)


def _content(path: Path) -> bytes:
    """What a file holds, up to more than any description has; nothing of what is no file."""
    try:
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
            return file.read(MAX_BYTES)
    except OSError:
        return b""


def _may_describe(path: Path, content: bytes, program: str) -> bool:
    """Whether it can be of this program: what does not even hold the name need not be parsed."""
    # One with a backslash can spell a name in escapes.
    return path.stem == program or os.fsencode(program) in content or b"\\" in content


def _files(folder: Path, source: str) -> list[Path]:
    """The descriptions in a folder; none of the user's where another user could have put them, as where ``sudo`` keeps ``HOME``."""
    if not folder.is_dir() or (source == "user" and why_not_trusted(folder)):
        return []
    return [path for path in sorted(folder.glob("*.toml")) if source != "user" or _is_trusted(path)]


def _is_trusted(path: Path) -> bool:
    try:
        return not why_not_trusted(path)
    except OSError:
        return False  # a link that leads nowhere
