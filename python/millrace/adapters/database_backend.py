"""Protocols of database backends, which make fragments and candidates for one family of tools."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable

from millrace.core.tasks import RankTask, SliceTask
from millrace.core.tool_use import FragmentPlan

#: Output of the search of one fragment: a view of the journal, never all in memory.
FragmentOutput = bytes | memoryview


class CandidateSlice(NamedTuple):
    """Path of a slice's database, relative to its folder (empty: no candidates), with its lowest and highest rank."""

    database: str
    lowest: float
    highest: float


class DatabaseBackend(Protocol):
    """Protocol of one kind of database. Methods may start programs; they never change the user's files."""

    def prepare_fragments(
        self, fragmented: FragmentPlan, folder: Path, cwd: Path, environ: Mapping[str, str]
    ) -> Sequence[str]:
        """Write the files that the fragments need into the empty ``folder``, once on each node.

        Returns:
            The text of ``millrace.core.tool_use.DatabaseArg`` for each fragment: usually an absolute path.

        Raises:
            MillraceError: They cannot be written.
        """
        ...

    def make_candidates(
        self,
        fragmented: FragmentPlan,
        folder: Path,
        cwd: Path,
        environ: Mapping[str, str],
        found: Sequence[FragmentOutput],
        n_records: int,
    ) -> str:
        """Make a database of the candidates of one batch in the empty ``folder``.

        Called from several threads at a time.

        Args:
            found: Outputs of the searches of the fragments, in the order of the fragments.
            n_records: Number of the batch's records.

        Returns:
            Its path, relative to ``folder``.

        Raises:
            MillraceError: An output cannot be parsed, or the database cannot be made.
        """
        ...

    def make_slice(
        self, fragmented: FragmentPlan, folder: Path, cwd: Path, environ: Mapping[str, str], found: Sequence[FragmentOutput], part: SliceTask | RankTask,
    ) -> CandidateSlice | None:  # fmt: skip
        """Make a database of a part of the candidates of one query: of a slice, or of a share that is to be ranked.

        Only called if ``millrace.core.tool_use.FragmentPlan.ranked`` is set.

        Args:
            found: Outputs of the searches of the fragments; of the shares, for a slice if
                ``millrace.core.tool_use.RankColumns.argv`` is set.

        Returns:
            None: the candidates cannot be ranked, or the search may not keep them all. Then the same holds for all
            slices, or their rows show it.
        """
        ...

    def list_patches(self, fragmented: FragmentPlan, folder: Path) -> Sequence[tuple[int, str, str]]:
        """Return the patches for the outputs of the search of the candidates in ``folder``.

        Returns:
            (index of the output, name of the patch as in ``crates/millrace-core/src/join/fragment``, absolute path of
            the file that ``make_candidates`` has written for it).
        """
        ...


@runtime_checkable
class VolumeBackend(DatabaseBackend, Protocol):
    """Protocol of a kind of database whose volumes a node may fetch (``millrace.core.tool_use.FragmentPlan.volumes``)."""

    def relocate_files(
        self, fragmented: FragmentPlan, folder: Path, parts: Path, shared: Path, in_pieces: Collection[str]
    ) -> FragmentPlan:
        """Return ``fragmented`` with its files in ``folder``, where files of ``FragmentPlan.volumes`` have holes.

        Args:
            parts: Folder with a folder ``part0``, ``part1``... for each volume, with its files without holes.
            shared: Folder that all nodes see, for files that the coordinator makes for all.
            in_pieces: Names of the files of which ``parts`` has pieces and ``folder`` has no complete copy.
        """
        ...

    def list_lookup_ranges(
        self, fragmented: FragmentPlan, folder: Path, found: Sequence[FragmentOutput]
    ) -> Iterable[tuple[str, int, int]]:
        """Return the ranges of files with holes that ``make_candidates`` and ``make_slice`` will read.

        Args:
            folder: Folder of the candidates, still empty.
            found: Outputs of the searches of the fragments.

        Returns:
            (name, first, last) of each range, half-open.
        """
        ...

    def list_search_ranges(self, folder: Path) -> Sequence[tuple[str, int, int]]:
        """Return the ranges (name, first, last), half-open, of files with holes that the candidates' search reads."""
        ...


def find_backend(fragmented: FragmentPlan) -> DatabaseBackend:
    """Return the backend of the database: the plan's own, or that of the family named by the tag of ``FragmentPlan.about``."""
    assert fragmented.about is not None  # it is to be searched
    family = fragmented.about.__struct_config__.tag
    backend: DatabaseBackend = import_module(fragmented.backend or f"millrace.adapters.{family}.backend").BACKEND
    return backend
