"""Protocols of adapters, and the paths of inputs and outputs in which each file is one record."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

from millrace.errors import RefusedError
from millrace.model import Command, Frozen, OutputUse, ToolUse

#: Suffix of a folder that another phase still fills, in an ``InputUse.path`` of format ``files``.
EACH = "/*"

#: Path of an open file descriptor, with its number, such as a shell passes for ``<(...)``.
OPENED = re.compile(r"/(?:dev|proc/self)/fd/(\d+)")

#: Separator of the names of files in an ``InputUse.path`` of format ``files``.
NUL = "\0"


class Adapter(Protocol):
    """Protocol of an adapter: the knowledge of one family of programs."""

    def understand(self, command: Command) -> ToolUse:
        """Find input, outputs and databases in the tool's own arguments, and how its outputs join exactly.

        May read files, and may run the tool for its version or help; starts nothing else.

        Raises:
            RefusedError: The output would not be exact; says why and what to use instead.
        """
        ...


#: Letters of queries times letters of a database that take about a second to search; see ``Fragmentable.least``.
LEAST_CELLS = 2e10


class Fragmentable(Frozen, frozen=True, kw_only=True):
    """Facts on a command's database, by which Millrace decides whether it is searched in fragments.

    If a database has to be read for its ``entries`` and ``residues``, these may be left to ``count``: often the queries
    alone decide.
    """

    #: Entries (sequences, profiles); a fragment never has a part of one.
    entries: int = 0
    #: Residues, or another unit to which the time of a search is proportional.
    residues: int = 0
    #: Bytes that a search of the whole database reads.
    bytes: int = 0
    #: Units of queries times ``residues`` below which a search of a fragment is mostly the tool's start.
    least: float = LEAST_CELLS
    #: CPU time of the search in fragments, candidates included, relative to that of the whole database.
    work: float = 1.0
    #: Why a search in fragments would not give the same bytes, in words; empty: it gives them.
    why_not: str = ""
    #: Returns the same with entries and residues, or with ``why_not``; None: they are known already.
    count: Callable[[], Fragmentable] | None = None


@runtime_checkable
class Fragmenting(Protocol):
    """Protocol of an adapter that can search a database in fragments."""

    def fragmentable(self, use: ToolUse, command: Command) -> Fragmentable:
        """Measure the database of a command, or say why it is not searched in fragments."""
        ...

    def fragment(self, use: ToolUse, command: Command, sizes: Sequence[int]) -> ToolUse:
        """Return ``use`` with its database searched in fragments.

        Args:
            sizes: Relative costs of the fragments; there are fewer if the database has fewer entries. Empty: the
                volumes are the fragments, and their files are fetched later (``millrace.model.View.later``).
        """
        ...


class Parts(Frozen, frozen=True, kw_only=True):
    """Patterns of the names of files in a folder that one argument stands for.

    The patterns are regular expressions; an empty one matches no file.
    """

    #: Names of which at least one must be there.
    needed: str
    #: Names of all files that belong to the argument.
    pattern: str
    #: Names to try one by one, where a folder cannot be listed.
    usual: tuple[str, ...] = ()
    #: Archives with these files, which are used if the files themselves are missing.
    packed: str = ""
    #: Files that only the search of their volume reads, so that they may be fetched later.
    apart: str = ""
    #: Files of which a node may fetch only the pieces that it searches, after the coordinator has read them.
    in_pieces: str = ""
    #: Files that no search of separate volumes reads.
    unread: str = ""


@runtime_checkable
class Gathering(Protocol):
    """Protocol of an adapter with arguments that stand for several files each."""

    def parts(self, argv: Sequence[str], at: int, name: str) -> Parts | None:
        """Describe the files of the argument at index ``at``, with ``name`` as its last part; None: one such file."""
        ...

    def named_in(self, name: str, read: Callable[[], bytes]) -> dict[str, Parts]:
        """Describe the other files that the file ``name`` refers to, by name; ``read`` returns its bytes."""
        ...


def one_file(name: str) -> Parts:
    """Describe a plain file."""
    return Parts(needed=re.escape(name), pattern=re.escape(name), usual=(name,))


def with_suffixes(name: str, suffixes: Sequence[str]) -> Parts:
    """Describe a file and its companion files, whose names are longer by a suffix."""
    endings = "|".join(map(re.escape, suffixes))
    return Parts(
        needed=f"{re.escape(name)}({endings})?",
        pattern=f"{re.escape(name)}({endings})?",
        usual=(name, *(f"{name}{each}" for each in suffixes)),
    )


def file_records(names: Sequence[str], command: Command) -> list[str] | None:
    """List the files that ``names`` stand for, each of them one record; None: it is one plain file.

    ``names`` is a folder, a quoted glob, a file with one name a line, or several files. The order is that in which a
    shell expands ``folder/*``: by name.
    """
    if len(names) > 1:
        return list(names)
    name, path = names[0], command.cwd / names[0]
    if grows(name, command):
        return [name.removesuffix(EACH).rstrip("/") + EACH] if path.is_dir() or name.endswith(EACH) else None
    if path.is_dir():
        with os.scandir(path) as entries:
            names_there = sorted(each.name for each in entries if not each.name.startswith(".") and each.is_file())
        # Strings, not paths: a folder of a million files is listed much faster.
        folder = "" if (typed := str(Path(name))) == "." else typed.removesuffix("/") + "/"
        return [folder + each for each in names_there]
    if not path.exists():
        found = sorted(glob.glob(name, root_dir=command.cwd))
        return found if glob.has_magic(name) and found else None
    return _names_in(path, command.cwd)


def is_stream(path: str) -> bool:
    """Tell whether a path as typed is a device or an open file descriptor (``/dev/stdout``, ``/proc/self/fd/1``)."""
    return path.startswith(("/dev/", "/proc/"))


def opened(path: str) -> int | None:
    """Return the file descriptor that a path such as ``/dev/stdin`` stands for; None: it is another path.

    >>> opened("/dev/stdin"), opened("/proc/self/fd/1"), opened("/dev/fd/63"), opened("/dev/null")
    (0, 1, 63, None)
    """
    numbered = OPENED.fullmatch(path)
    return int(numbered[1]) if numbered else {"/dev/stdin": 0, "/dev/stdout": 1, "/dev/stderr": 2}.get(path)


def grows(name: str, command: Command) -> bool:
    """Tell whether another phase of the job still writes this file, or files into this folder."""
    return os.path.normpath(name.removesuffix(EACH)) in command.growing


def _names_in(path: Path, cwd: Path) -> list[str] | None:
    """Read the names of files from a list, one a line; None: the file is no such list."""
    found = []
    with path.open("rb") as lines:
        for line in lines:
            name = line.decode(errors="replace").strip()
            if not name:
                continue
            # One line that names no file is enough: this is not a list.
            if len(name) > 4096 or NUL in name or not (cwd / name).is_file():
                return None
            found.append(name)
    return found or None


def record_output(
    name: str, typed: str, files: Sequence[str], command: Command, *, volatile: tuple[str, ...] = ()
) -> OutputUse:
    """Describe the output for many files of a tool that reads one file and writes one.

    A folder (or a name that ends in ``/``) gets one file for each input file, of the same name; ``{name}`` and
    ``{stem}`` stand for those of the input file; any other name gets all results, in input order.

    Raises:
        RefusedError: A result would overwrite its own input file.
    """
    if "{name}" in typed or "{stem}" in typed:
        template = typed
    elif typed.endswith("/") or (command.cwd / typed).is_dir():
        template = f"{typed.rstrip('/') or '/'}/{{name}}"
    else:
        return OutputUse(name=name, path=typed, volatile=volatile)
    for file in files:
        place = record_path(template, file)
        if _is_same_file(os.path.join(command.cwd, place), os.path.join(command.cwd, file)):
            raise RefusedError(f"{place} would be overwritten by its own result", "name another folder")
    return OutputUse(name=name, path=template, layout="record", volatile=volatile)


def record_path(template: str, file: str) -> str:
    """Return the path of the output of ``file``, as the user would type it."""
    name = os.path.basename(file)
    dot = name.rfind(".")
    return template.replace("{name}", name).replace("{stem}", name[:dot] if 0 < dot < len(name) - 1 else name)


def _is_same_file(place: str, file: str) -> bool:
    try:
        return os.path.samestat(os.stat(place), os.stat(file))
    except OSError:
        return False  # mostly: there is no output yet


def join_names(names: Sequence[str]) -> str:
    """Join names from the arguments into an ``InputUse.path``."""
    return NUL.join(names)
