"""Lookup of tool descriptions: of the project, the user, the site, packages, and our own.

The first description of a program counts. A program that has an adapter of its own
(``millrace.adapters.registry.FAMILIES``) cannot be described again: a file must not change its exactness.

A description in a working folder came with the data and may be another person's. It decides how programs are started,
so it counts only after the user has confirmed it (``millrace tool allow``), and only while its content stays the
same: confirmations are kept by digest of the content.
"""

from __future__ import annotations

import functools
import os
import shlex
import sys
from _blake2 import blake2b  # as hashlib has it, which would load OpenSSL at each start
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from millrace.core.errors import RefusedError
from millrace.host import permissions
from millrace.host.permissions import find_trust_problem

if TYPE_CHECKING:
    from millrace.adapters.adapter_base import ToolAdapter

#: Name of the folder in the user's state folder.
FOLDER = "tools"


def check_description_owner(path: Path, cwd: Path) -> None:
    """Check that only this user or root can have written a description in the working folder ``cwd``.

    Raises:
        RefusedError: Another user can.
    """
    for place in (cwd, path.parent, path):
        try:
            why = permissions.find_trust_problem(place)
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


def copy_confirmations(environ: Mapping[str, str], other: Mapping[str, str]) -> None:
    """Let all that the user has confirmed count in another environment, which has a state folder of its own."""
    try:
        folder = _open_confirmations(environ)
    except OSError:
        return  # nothing was confirmed
    try:
        digests = os.listdir(folder)
    finally:
        os.close(folder)
    copy = _open_confirmations(other, make=True)
    try:
        for digest in digests:
            os.close(os.open(digest, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=copy))
    finally:
        os.close(copy)


def _digest_content(content: bytes) -> str:
    return blake2b(content, digest_size=32).hexdigest()


def _open_confirmations(environ: Mapping[str, str], *, make: bool = False) -> int:
    """Open the folder of confirmations.

    Raises:
        OSError: It does not exist, or other users can write there.
    """
    base = permissions.find_state_folder(environ)
    if not base:
        raise FileNotFoundError(0, "there is no home of your own")
    if make:
        base.mkdir(mode=0o700, parents=True, exist_ok=True)
        (base / FOLDER).mkdir(mode=0o700, exist_ok=True)
    return permissions.open_private_folder(base / FOLDER)


#: Most bytes of a description.
MAX_DESCRIPTION_BYTES = 1 << 20

#: Folders of descriptions: below the working folder, below the user's configuration folder, and of the site.
IN_PROJECT, OF_USER, OF_SITE = Path("millrace-tools"), Path("millrace/tools"), Path("/etc/millrace/tools")

#: Group of entry points, each a package whose TOML files describe tools.
GROUP = "millrace.tools"

#: Group of entry points, each the adapter of the program that it is named after.
ADAPTER_GROUP = "millrace.adapters"


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
    if GROUP in find_entry_point_groups(tuple(sys.path)):
        from importlib.metadata import entry_points
        from importlib.resources import files

        for point in entry_points(group=GROUP):
            yield Path(str(files(point.value))), f"package {point.name}"
    yield OURS, "millrace"


@functools.cache
def find_entry_point_groups(places: tuple[str, ...]) -> frozenset[str]:
    """Find our groups in which installed packages have entry points: 2 ms, where ``importlib.metadata`` takes 20."""
    found: set[str] = set()
    for place in places:
        try:
            with os.scandir(place or ".") as entries:
                packages = [each.path for each in entries if each.name.endswith((".dist-info", ".egg-info"))]
        except OSError:
            continue  # not a folder, such as the archive of the standard library
        for package in packages:
            try:
                with open(os.path.join(package, "entry_points.txt"), "rb") as said:
                    content = said.read()
            except OSError:
                continue  # most packages have none
            found.update(group for group in (GROUP, ADAPTER_GROUP) if f"[{group}]".encode() in content)
    return frozenset(found)


def load_installed_adapter(program: str) -> ToolAdapter | None:
    """Load the adapter that an installed package has for a program, by the name of its entry point; None: there is none.

    Raises:
        RefusedError: It cannot be loaded, or is no adapter.
    """
    if ADAPTER_GROUP not in find_entry_point_groups(tuple(sys.path)):
        return None
    from importlib.metadata import entry_points

    for point in entry_points(group=ADAPTER_GROUP, name=program):
        package = point.dist.name if point.dist else "a package"
        hint = f"repair or remove {package}; --input and --output say what an unknown program reads and writes"
        try:
            adapter: ToolAdapter = point.load()
        except Exception as error:
            raise RefusedError(
                f"{program}: the adapter of {package}, {point.value}, cannot be loaded: {error}", hint
            ) from error
        if not callable(getattr(adapter, "understand_command", None)):
            raise RefusedError(
                f"{program}: {point.value} of {package} is no adapter: it has no understand_command", hint
            )
        return adapter
    return None


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
    from millrace.adapters.tool_description import parse_description

    check_description_owner(found.path, cwd)
    parse_description(found.content, found.path)
    if not is_confirmed:
        check_confirmation(found.content, found.path, cwd, environ)


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
