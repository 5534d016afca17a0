"""Where descriptions of tools are: in the project, the user's and the site's folders, installed packages, and our own.

The first that knows a program counts. A program that has an adapter of its own (`millrace.tools.registry.FAMILIES`) cannot be
described again: its exactness is not for a file to change.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

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
        for path in _files(folder):
            yield look(path, source)


def look(path: Path, source: str) -> Found:
    """What a file describes, without looking at the rest of it; one that cannot be read, by its name."""
    import tomllib  # what has an adapter never needs it

    try:
        values = tomllib.loads(path.read_text())
        said = values.get("programs", path.stem)  # one that says it wrongly is found, and refused with the reason
        programs = (said,) if isinstance(said, str) else tuple(map(str, said))
        return Found(path, source, programs, str(values.get("about", "")))
    except (OSError, ValueError, TypeError):
        return Found(path, source, (path.stem,), "cannot be read")


def find(program: str, cwd: Path, environ: Mapping[str, str]) -> Found | None:
    """The description of a program that counts; None: there is none."""
    for folder, source in folders(cwd, environ):
        for path in _files(folder):
            if _may_describe(path, program) and program in (found := look(path, source)).programs:
                return found
    return None


def _may_describe(path: Path, program: str) -> bool:
    """Whether it can be of this program: what does not even hold the name need not be parsed."""
    if path.stem == program:
        return True
    try:
        text = path.read_bytes()
    except OSError:
        return False
    return os.fsencode(program) in text or b"\\" in text  # one that can spell a name in escapes


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.toml")) if folder.is_dir() else []
