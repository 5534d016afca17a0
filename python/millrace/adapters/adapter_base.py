"""Protocols of adapters, and the paths of inputs and outputs in which each file is one record."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable

from millrace.core.errors import RefusedError
from millrace.core.tool_use import FetchedFile, FrozenValue, OutputUse, ToolUse, UserCommand

#: Suffix of a folder that another phase still fills, in an ``InputUse.path`` of format ``files``.
EACH = "/*"

#: Path of an open file descriptor, with its number, such as a shell passes for ``<(...)``.
OPENED = re.compile(r"/(?:dev|proc/self)/fd/(\d+)")

#: Separator of the names of files in an ``InputUse.path`` of format ``files``.
NUL = "\0"


class ToolAdapter(Protocol):
    """Protocol of an adapter: the knowledge of one family of programs."""

    def understand_command(self, command: UserCommand) -> ToolUse:
        """Find input, outputs and databases in the tool's own arguments, and how its outputs join exactly.

        May read files, and may run the tool for its version or help; starts nothing else.

        Raises:
            RefusedError: The output would not be exact; says why and what to use instead.
        """
        ...


#: Letters of queries times letters of a database that take about a second to search; see ``DatabaseFacts.least``.
MIN_FRAGMENT_CELLS = 2e10


class DatabaseFacts(FrozenValue, frozen=True, kw_only=True):
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
    least: float = MIN_FRAGMENT_CELLS
    #: CPU time of the search in fragments, candidates included, relative to that of the whole database.
    work: float = 1.0
    #: CPU time of the finish of a query with its candidates alone, relative to its search, at most.
    finish: float = 0.25
    #: Why a search in fragments would not give the same bytes, in words; empty: it gives them.
    why_not: str = ""
    #: Returns the same with entries and residues, or with ``why_not``; None: they are known already.
    count: Callable[[], DatabaseFacts] | None = None


@runtime_checkable
class FragmentingAdapter(Protocol):
    """Protocol of an adapter that can search a database in fragments."""

    def examine_database(self, use: ToolUse, command: UserCommand) -> DatabaseFacts:
        """Measure the database of a command, or say why it is not searched in fragments."""
        ...

    def plan_fragments(
        self, use: ToolUse, command: UserCommand, sizes: Sequence[int], later: Sequence[FetchedFile] = ()
    ) -> ToolUse:
        """Return ``use`` with its database searched in fragments.

        Args:
            sizes: Relative costs of the fragments; there are fewer if the database has fewer entries. Empty: the
                volumes are the fragments.
            later: The files of the volumes, which nodes fetch when they first search them.

        Raises:
            RefusedError: These are not volumes of one database.
        """
        ...


class QueryCandidates(NamedTuple):
    """What is known of one query: a superset of the entries that the search of a database could report."""

    #: Ordinals of the entries, ascending.
    entries: Sequence[int]
    #: What else the search counted in all entries of the database; empty: nothing, or it is not known.
    counts: tuple[int, ...] = ()
    #: The same of the entries that were not new, where a run has searched these again; empty: it has not.
    old_counts: tuple[int, ...] = ()


#: Reads what the searches of all fragments found for the queries of one batch; None for a query whose list may be incomplete.
CandidateListReader = Callable[[Sequence[bytes]], Sequence[QueryCandidates | None]]


class ReusableSearch(FrozenValue, frozen=True, kw_only=True):
    """What a search in fragments is known by, so that its candidates can be kept for searches of other databases."""

    #: All that what is found for a query and an entry depends on, other than these two and the depth.
    key: str = ""
    #: Depth down to which this search needs candidates: greater is deeper.
    needed_depth: float = 0.0
    #: Whether the output shows what was counted in all entries, so that none of those that were searched may be gone.
    needs_counts: bool = False
    #: Most comparisons of known queries with the candidates of all in their batch; 0: any number.
    batch_comparisons: int = 0
    #: Why candidates are not kept, in words; empty: they are.
    why_not: str = ""


@runtime_checkable
class ReusingAdapter(FragmentingAdapter, Protocol):
    """Protocol of an adapter whose candidates can be kept and used again with another database."""

    def describe_reusable_search(self, use: ToolUse, command: UserCommand) -> ReusableSearch:
        """Describe the search of ``use``, which is in fragments."""
        ...

    def plan_reuse(
        self, use: ToolUse, command: UserCommand, new: Sequence[tuple[int, int]] | None, known_depth: float, *, is_kept: bool,
    ) -> ToolUse:  # fmt: skip
        """Return ``use`` searched down to its ``FragmentPlan.depth``, which is ``known_depth`` at most, and finished with what is known.

        Args:
            new: Ranges of entries that are searched by themselves, as fragment 2; empty: all are one fragment; None: the
                fragments stay as they are.
            known_depth: Depth down to which the candidates that are known are all there, ``ReusableSearch.needed_depth`` or more;
                infinite: none are known.
            is_kept: Whether what is found is kept for later searches; else it need only have what this one needs.
        """
        ...

    def format_candidates(self, queries: Sequence[QueryCandidates]) -> bytes:
        """Format what is known of the queries of a batch as its search would write it, for ``DatabaseBackend.make_candidates``."""
        ...

    def make_list_reader(self, use: ToolUse, command: UserCommand) -> CandidateListReader:
        """Return the reader of what a run has found, which is searched as ``use``."""
        ...


class FileNamePatterns(FrozenValue, frozen=True, kw_only=True):
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
class MultiFileAdapter(Protocol):
    """Protocol of an adapter with arguments that stand for several files each."""

    def describe_argument_files(self, argv: Sequence[str], at: int, name: str) -> FileNamePatterns | None:
        """Describe the files of the argument at index ``at``, with ``name`` as its last part; None: one such file."""
        ...

    def read_file_references(self, name: str, read: Callable[[], bytes]) -> dict[str, FileNamePatterns]:
        """Describe the other files that the file ``name`` refers to, by name; ``read`` returns its bytes."""
        ...


def match_one_file(name: str) -> FileNamePatterns:
    """Describe a plain file."""
    return FileNamePatterns(needed=re.escape(name), pattern=re.escape(name), usual=(name,))


def match_with_suffixes(name: str, suffixes: Sequence[str]) -> FileNamePatterns:
    """Describe a file and its companion files, whose names are longer by a suffix."""
    endings = "|".join(map(re.escape, suffixes))
    return FileNamePatterns(
        needed=f"{re.escape(name)}({endings})?",
        pattern=f"{re.escape(name)}({endings})?",
        usual=(name, *(f"{name}{each}" for each in suffixes)),
    )


def expand_file_records(names: Sequence[str], command: UserCommand) -> list[str] | None:
    """List the files that ``names`` stand for, each of them one record; None: it is one plain file.

    ``names`` is a folder, a quoted glob, a file with one name a line, or several files. The order is that in which a
    shell expands ``folder/*``: by name.
    """
    if len(names) > 1:
        return list(names)
    name, path = names[0], command.cwd / names[0]
    if is_still_growing(name, command):
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
    return _read_name_list(path, command.cwd)


def is_stream_path(path: str) -> bool:
    """Tell whether a path as typed is a device or an open file descriptor (``/dev/stdout``, ``/proc/self/fd/1``)."""
    return path.startswith(("/dev/", "/proc/"))


def parse_fd_path(path: str) -> int | None:
    """Return the file descriptor that a path such as ``/dev/stdin`` stands for; None: it is another path.

    >>> parse_fd_path("/dev/stdin"), parse_fd_path("/proc/self/fd/1"), parse_fd_path("/dev/fd/63"), parse_fd_path("/dev/null")
    (0, 1, 63, None)
    """
    numbered = OPENED.fullmatch(path)
    return int(numbered[1]) if numbered else {"/dev/stdin": 0, "/dev/stdout": 1, "/dev/stderr": 2}.get(path)


def is_still_growing(name: str, command: UserCommand) -> bool:
    """Tell whether another phase of the job still writes this file, or files into this folder."""
    return os.path.normpath(name.removesuffix(EACH)) in command.growing


def _read_name_list(path: Path, cwd: Path) -> list[str] | None:
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


def describe_record_output(
    name: str, typed: str, files: Sequence[str], command: UserCommand, *, volatile: tuple[str, ...] = ()
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
        place = expand_record_path(template, file)
        if _is_same_file(os.path.join(command.cwd, place), os.path.join(command.cwd, file)):
            raise RefusedError(f"{place} would be overwritten by its own result", "name another folder")
    return OutputUse(name=name, path=template, layout="record", volatile=volatile)


def expand_record_path(template: str, file: str) -> str:
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
