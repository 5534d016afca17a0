"""What every adapter does, and how files that are one record each are found and named."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

from millrace.errors import RefusedError
from millrace.model import Command, Frozen, OutputUse, ToolUse

#: What follows the name of a folder that another phase still fills, in an `InputUse.path` of format ``files``.
EACH = "/*"

#: What a shell has opened for a command, wherever it stands in an argument; with its number.
OPENED = re.compile(r"/(?:dev|proc/self)/fd/(\d+)")

#: What separates the names of files in an `InputUse.path` of format ``files``.
NUL = "\0"


class Adapter(Protocol):
    """One family of programs."""

    def understand(self, command: Command) -> ToolUse:
        """Find input, outputs and databases in the tool's own arguments, and how its outputs join exactly.

        May look at files and may ask the tool for its version; starts nothing else.

        Raises:
            RefusedError: The command cannot be answered exactly; says why and what to use instead.
        """
        ...


#: Letters of queries times those of a database that take about a second to search; see `Fragmentable.least`.
LEAST_CELLS = 2e10


class Fragmentable(Frozen, frozen=True, kw_only=True):
    """What is known of a command's database before it is decided whether it is searched in fragments.

    What costs nothing is known at once; a database that has to be read for its ``entries`` and ``residues`` may leave
    them to ``count``, as often the queries alone decide.
    """

    #: Entries (sequences, profiles), which a fragment has whole.
    entries: int = 0
    #: Residues, or what else the time of a search grows with.
    residues: int = 0
    #: Bytes that a search of all of it reads.
    bytes: int = 0
    #: Units of queries times ``residues`` below which a search of a fragment is mostly the tool's start.
    least: float = LEAST_CELLS
    #: CPU that the search in fragments takes, with the search of what was found in them, of that of the search of the whole.
    work: float = 1.0
    #: Why it cannot be searched in fragments with the same bytes as result, in words; empty: it can.
    why_not: str = ""
    #: Returns this with entries and residues, or why not after all; None: they are there.
    count: Callable[[], Fragmentable] | None = None


@runtime_checkable
class Fragmenting(Protocol):
    """An adapter that can have a database searched in fragments."""

    def fragmentable(self, use: ToolUse, command: Command) -> Fragmentable:
        """Look at the database of a command that was understood."""
        ...

    def fragment(self, use: ToolUse, command: Command, sizes: Sequence[int]) -> ToolUse:
        """Have the database searched in fragments that cost as ``sizes`` (fewer, if it has not so many entries).

        Where there are none, in its volumes, whose files are fetched later (`millrace.model.View.later`).
        """
        ...


class Parts(Frozen, frozen=True, kw_only=True):
    """Which files of a folder are what one argument names."""

    #: Regular expression of names of which one must be there.
    needed: str
    #: Regular expression of the names of all that belong to it.
    pattern: str
    #: Names that are asked for one by one, where a folder cannot be listed.
    usual: tuple[str, ...] = ()
    #: Regular expression of the archives that hold them, where they are not there themselves; empty: there are none.
    packed: str = ""
    #: Regular expression of the names of files that only searches of a volume read, and nothing before; empty: there are none.
    apart: str = ""
    #: Regular expression of the names of files of which nodes may fetch the pieces that they search, once the coordinator has
    #: read them; empty: there are none.
    in_pieces: str = ""
    #: Regular expression of the names of files that no search reads whose volumes are left apart; empty: there are none.
    unread: str = ""


@runtime_checkable
class Gathering(Protocol):
    """An adapter of which one argument may name several files."""

    def parts(self, argv: Sequence[str], at: int, name: str) -> Parts | None:
        """The files that the argument at ``at`` names; ``name``: its last part. None: one file of that name."""
        ...

    def named_in(self, name: str, read: Callable[[], bytes]) -> dict[str, Parts]:
        """What else a file that was found names; ``read`` gives its bytes."""
        ...


def one_file(name: str) -> Parts:
    """What an argument names that is a plain file."""
    return Parts(needed=re.escape(name), pattern=re.escape(name), usual=(name,))


def with_suffixes(name: str, suffixes: Sequence[str]) -> Parts:
    """What an argument names that is a file with others beside it, whose names are longer by a suffix."""
    endings = "|".join(map(re.escape, suffixes))
    return Parts(
        needed=f"{re.escape(name)}({endings})?",
        pattern=f"{re.escape(name)}({endings})?",
        usual=(name, *(f"{name}{each}" for each in suffixes)),
    )


def file_records(names: Sequence[str], command: Command) -> list[str] | None:
    """The files that ``names`` stand for when each file is one record; None if they name one plain file.

    ``names`` is a folder, a quoted glob, a file with one name a line, or several files. Files come in the
    order in which a shell would expand ``folder/*``: by name.
    """
    if len(names) > 1:
        return list(names)
    name, path = names[0], command.cwd / names[0]
    if grows(name, command):
        return [name.removesuffix(EACH).rstrip("/") + EACH] if path.is_dir() or name.endswith(EACH) else None
    if path.is_dir():
        with os.scandir(path) as entries:
            names_there = sorted(each.name for each in entries if not each.name.startswith(".") and each.is_file())
        # As a path would be written: a folder of a million files is listed in no time.
        folder = "" if (typed := str(Path(name))) == "." else typed.removesuffix("/") + "/"
        return [folder + each for each in names_there]
    if not path.exists():
        found = sorted(glob.glob(name, root_dir=command.cwd))
        return found if glob.has_magic(name) and found else None
    return _names_in(path, command.cwd)


def is_stream(path: str) -> bool:
    """Whether a path, as it was typed, is that of a device, or of what a process has open (``/dev/stdout``, ``/proc/self/fd/1``)."""
    return path.startswith(("/dev/", "/proc/"))


def opened(path: str) -> int | None:
    """The number of what each process has open under a name, such as ``/dev/stdin``; None: it is no such name.

    >>> opened("/dev/stdin"), opened("/proc/self/fd/1"), opened("/dev/fd/63"), opened("/dev/null")
    (0, 1, 63, None)
    """
    numbered = OPENED.fullmatch(path)
    return int(numbered[1]) if numbered else {"/dev/stdin": 0, "/dev/stdout": 1, "/dev/stderr": 2}.get(path)


def grows(name: str, command: Command) -> bool:
    """Whether another phase still writes the file, or the files of the folder, of this name."""
    return os.path.normpath(name.removesuffix(EACH)) in command.growing


def _names_in(path: Path, cwd: Path) -> list[str] | None:
    """The names in a list of names; None if the file is something else."""
    found = []
    with path.open("rb") as lines:
        for line in lines:
            name = line.decode(errors="replace").strip()
            if not name:
                continue
            # A first line that names no file settles it: this is not a list.
            if len(name) > 4096 or NUL in name or not (cwd / name).is_file():
                return None
            found.append(name)
    return found or None


def record_output(
    name: str, typed: str, files: Sequence[str], command: Command, *, volatile: tuple[str, ...] = ()
) -> OutputUse:
    """The output of a tool that reads one file and writes one, for many files.

    A folder (or a name that ends in ``/``) gets one file per input file, of the same name; ``{name}`` and
    ``{stem}`` in the name stand for the input file's; an ordinary name gets everything, in input order.
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
    """The path of the output of ``file``, as the user would type it."""
    name = os.path.basename(file)
    dot = name.rfind(".")
    return template.replace("{name}", name).replace("{stem}", name[:dot] if 0 < dot < len(name) - 1 else name)


def _is_same_file(place: str, file: str) -> bool:
    try:
        return os.path.samestat(os.stat(place), os.stat(file))
    except OSError:
        return False  # mostly: nothing is there yet


def join_names(names: Sequence[str]) -> str:
    """The `InputUse.path` of names that stood in the arguments."""
    return NUL.join(names)
