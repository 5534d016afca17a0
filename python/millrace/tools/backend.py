"""Protocols of database backends, which make fragments and candidates for one family of tools."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable

from millrace.model import Fragmented
from millrace.tasks import Rank, Slice

#: Output of the search of one fragment: a view of the journal, never all in memory.
Found = bytes | memoryview


class SliceOfCandidates(NamedTuple):
    """Path of a slice's database, relative to its folder (empty: no candidates), with its lowest and highest rank."""

    database: str
    lowest: float
    highest: float


class DatabaseBackend(Protocol):
    """Protocol of one kind of database. Methods may start programs; they never change the user's files."""

    def prepare(self, fragmented: Fragmented, folder: Path, cwd: Path, environ: Mapping[str, str]) -> Sequence[str]:
        """Write the files that the fragments need into the empty ``folder``, once on each node.

        Returns:
            The text of ``millrace.model.DatabaseArg`` for each fragment: usually an absolute path.

        Raises:
            MillraceError: They cannot be written.
        """
        ...

    def candidates(
        self, fragmented: Fragmented, folder: Path, cwd: Path, environ: Mapping[str, str], found: Sequence[Found]
    ) -> str:
        """Make a database of the candidates of one batch in the empty ``folder``.

        Called from several threads at a time.

        Args:
            found: Outputs of the searches of the fragments, in the order of the fragments.

        Returns:
            Its path, relative to ``folder``.

        Raises:
            MillraceError: An output cannot be parsed, or the database cannot be made.
        """
        ...

    def slice(
        self, fragmented: Fragmented, folder: Path, cwd: Path, environ: Mapping[str, str], found: Sequence[Found], part: Slice | Rank,
    ) -> SliceOfCandidates | None:  # fmt: skip
        """Make a database of a part of the candidates of one query: of a slice, or of a share that is to be ranked.

        Only called if ``millrace.model.Fragmented.ranked`` is set.

        Args:
            found: Outputs of the searches of the fragments; of the shares, for a slice if
                ``millrace.model.Ranked.argv`` is set.

        Returns:
            None: the candidates cannot be ranked, or the search may not keep them all. Then the same holds for all
            slices, or their rows show it.
        """
        ...

    def patch(self, fragmented: Fragmented, folder: Path) -> Sequence[tuple[int, str, str]]:
        """Return the patches for the outputs of the search of the candidates in ``folder``.

        Returns:
            (index of the output, name of the patch as in ``crates/millrace-core/src/join/fragment``, absolute path of
            the file that ``candidates`` has written for it).
        """
        ...


@runtime_checkable
class VolumeBackend(DatabaseBackend, Protocol):
    """Protocol of a kind of database whose volumes a node may fetch (``millrace.model.Fragmented.volumes``)."""

    def moved(
        self, fragmented: Fragmented, folder: Path, parts: Path, shared: Path, in_pieces: Collection[str]
    ) -> Fragmented:
        """Return ``fragmented`` with its files in ``folder``, where files of ``Fragmented.volumes`` have holes.

        Args:
            parts: Folder with a folder ``part0``, ``part1``... for each volume, with its files without holes.
            shared: Folder that all nodes see, for files that the coordinator makes for all.
            in_pieces: Names of the files of which ``parts`` has pieces and ``folder`` has no complete copy.
        """
        ...

    def looked_up(self, fragmented: Fragmented, folder: Path, found: Sequence[Found]) -> Iterable[tuple[str, int, int]]:
        """Return the ranges of files with holes that ``candidates`` and ``slice`` will read.

        Args:
            folder: Folder of the candidates, still empty.
            found: Outputs of the searches of the fragments.

        Returns:
            (name, first, last) of each range, half-open.
        """
        ...

    def ranges(self, folder: Path) -> Sequence[tuple[str, int, int]]:
        """Return the ranges (name, first, last), half-open, of files with holes that the candidates' search reads."""
        ...


def find(fragmented: Fragmented) -> DatabaseBackend:
    """Return the backend of the database: that of the family of tools named by the tag of ``Fragmented.about``."""
    assert fragmented.about is not None  # it is to be searched
    family = fragmented.about.__struct_config__.tag
    backend: DatabaseBackend = import_module(f"millrace.tools.{family}.backend").BACKEND
    return backend
