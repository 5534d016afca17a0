"""HMMER's targets: files of sequences, and pressed profiles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from millrace import _core
from millrace.errors import CorruptError, MillraceError
from millrace.model import Fragmented, HmmerTargets
from millrace.tasks import Rank, Slice
from millrace.tools.backend import Found

#: In the folder of candidates: the database, and what the pipelines of all fragments counted.
DATABASE, COUNTS = "candidates", "counts"


class Hmmer:
    """Targets of HMMER.

    Both kinds keep the places of all names beside the fragments, as the search of a fragment says names alone.
    """

    def __init__(self) -> None:
        #: Where `prepare` has left the places of the names.
        self._prepared = Path()

    def prepare(self, fragmented: Fragmented, folder: Path, cwd: Path, environ: Mapping[str, str]) -> Sequence[str]:
        """Index the targets: for sequences one index file serves all fragments; profiles get a database each."""
        targets, n = _targets(fragmented), len(fragmented.fragments)
        self._prepared = folder
        try:
            if targets.profiles:
                _core.prepare_profiles(targets.source, cuts(fragmented), folder)
                return [str(folder / f"fragment-{k:05}") for k in range(n)]
            _core.prepare_sequences(targets.source, cuts(fragmented), folder)
        except ValueError as error:
            raise CorruptError(str(error), "start again with --fresh, if the database has changed") from error
        return [str(folder / "starts.ssi")] * n

    def candidates(
        self, fragmented: Fragmented, folder: Path, cwd: Path, environ: Mapping[str, str], found: Sequence[Found]
    ) -> str:
        """Write a database of all targets, of which those that no fragment reports are empty."""
        targets = _targets(fragmented)
        write = _core.profile_candidates if targets.profiles else _core.sequence_candidates
        try:
            write(
                targets.source,
                self._prepared,
                cuts(fragmented),
                found,
                folder / DATABASE,
                folder / COUNTS,
            )
        except ValueError as error:
            raise MillraceError(str(error), "search without fragments: --fragments 1") from error
        return DATABASE

    def slice(
        self, fragmented: Fragmented, folder: Path, cwd: Path, environ: Mapping[str, str], found: Sequence[Found], part: Slice | Rank,
    ) -> None:  # fmt: skip
        """See `DatabaseBackend.slice`. A report is one whole, and its statistics are those of all targets."""

    def patch(self, fragmented: Fragmented, folder: Path) -> Sequence[tuple[int, str, str]]:
        """The statistics in the report."""
        report = _targets(fragmented).report
        return [] if report is None else [(report, "hmmer-report", str(folder / COUNTS))]


def _targets(fragmented: Fragmented) -> HmmerTargets:
    assert isinstance(fragmented.about, HmmerTargets)  # by which this backend was found
    return fragmented.about


def cuts(fragmented: Fragmented) -> list[int]:
    """Where fragments begin, and the number of all targets."""
    return [fragment.first for fragment in fragmented.fragments] + [fragmented.fragments[-1].last]


#: The backend of this family.
BACKEND = Hmmer()
