"""What every kind of database owes to a search in fragments: the ``backend`` of a family of tools."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable

from millrace.model import Fragmented
from millrace.tasks import Rank, Slice

#: What the search of one fragment wrote: a view of the journal, never all in memory.
Found = bytes | memoryview


class SliceOfCandidates(NamedTuple):
    """The path of its database, relative to the folder, empty if there are none; lowest and highest rank."""

    database: str
    lowest: float
    highest: float


class DatabaseBackend(Protocol):
    """One kind of database. Its methods may start programs; they never change the user's files."""

    def prepare(self, fragmented: Fragmented, folder: Path, cwd: Path, environ: Mapping[str, str]) -> Sequence[str]:
        """Make what the fragments need in the empty ``folder``, once on each node.

        Returns:
            The text of `millrace.model.DatabaseArg` of each fragment: an absolute path, as a rule.

        Raises:
            MillraceError: It cannot be made.
        """
        ...

    def candidates(
        self, fragmented: Fragmented, folder: Path, cwd: Path, environ: Mapping[str, str], found: Sequence[Found]
    ) -> str:
        """Make a database of the candidates of one batch in the empty ``folder``.

        Called in a thread of its own, several at a time.

        Args:
            found: What the search of each fragment wrote, in the order of the fragments.

        Returns:
            Its path, relative to ``folder``.

        Raises:
            MillraceError: What was found cannot be understood, or the database cannot be made.
        """
        ...

    def slice(
        self, fragmented: Fragmented, folder: Path, cwd: Path, environ: Mapping[str, str], found: Sequence[Found], part: Slice | Rank,
    ) -> SliceOfCandidates | None:  # fmt: skip
        """Make a database of one slice of the candidates of one query, as `candidates` does of all, or of a share.

        Only where `millrace.model.Fragmented.ranked` is set.

        Args:
            found: What the search of each fragment wrote; for a slice, if `millrace.model.Ranked.argv` is set, what the
                search of each share wrote.

        Returns:
            None if they cannot be ranked, or are not certain to be kept all; then so it is with all slices, or it
            is seen by their rows.
        """
        ...

    def patch(self, fragmented: Fragmented, folder: Path) -> Sequence[tuple[int, str, str]]:
        """What has to be changed in the outputs of the search of the candidates in ``folder``.

        Returns:
            (index of the output, patch by name as in ``crates/millrace-core/src/join/fragment``, absolute path of
            the file that `candidates` has written for it).
        """
        ...


@runtime_checkable
class VolumeBackend(DatabaseBackend, Protocol):
    """One kind of database whose volumes may be elsewhere (`millrace.model.Fragmented.volumes`)."""

    def moved(
        self, fragmented: Fragmented, folder: Path, parts: Path, shared: Path, in_pieces: Collection[str]
    ) -> Fragmented:
        """The same with its files in ``folder``, where those of `millrace.model.Fragmented.volumes` have holes.

        Args:
            parts: Has folders ``part0``, ``part1``...: those with the files of one volume without holes.
            shared: Folder that all nodes see, where the coordinator may make what all need.
            in_pieces: Names of the files of which ``parts`` has pieces, and ``folder`` not the whole.
        """
        ...

    def looked_up(self, fragmented: Fragmented, folder: Path, found: Sequence[Found]) -> Iterable[tuple[str, int, int]]:
        """Which bytes `candidates` and `slice` will read of files with holes: (name, first, last), half-open.

        Args:
            folder: That of the candidates, still empty.
            found: What the search of each fragment wrote.
        """
        ...

    def ranges(self, folder: Path) -> Sequence[tuple[str, int, int]]:
        """Which bytes the search of the candidates in ``folder`` needs of files with holes: (name, first, last), half-open."""
        ...


def find(fragmented: Fragmented) -> DatabaseBackend:
    """The backend of the database, which has the name of the family of tools that searches it."""
    assert fragmented.about is not None  # it is to be searched
    family = fragmented.about.__struct_config__.tag
    backend: DatabaseBackend = import_module(f"millrace.tools.{family}.backend").BACKEND
    return backend
