"""Fragments and candidates of HMMER's targets: files of sequences, and pressed profiles."""

from __future__ import annotations

import shutil
from _blake2 import blake2b  # as hashlib has it, which would load OpenSSL at each start
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from msgspec.structs import replace

from millrace import _core
from millrace.adapters.database_backend import FragmentOutput
from millrace.core.errors import CorruptError, MillraceError
from millrace.core.tasks import RankTask, SliceTask
from millrace.core.tool_use import ArgumentToken, DatabaseArg, FragmentPlan, HmmerTargets

#: Files in the folder of candidates: the database, and the summed pipeline statistics of all fragments.
DATABASE, COUNTS = "candidates", "counts"

#: Index of where the fragments of a file of sequences start.
INDEX = "starts.ssi"


class HmmerBackend:
    """Backend for the target databases of HMMER.

    Both kinds keep an index of all names beside the fragments, as the search of a fragment reports names only.
    """

    def __init__(self) -> None:
        #: Folder in which ``prepare_fragments`` has written the index of the names.
        self._prepared = Path()

    def prepare_fragments(
        self, fragmented: FragmentPlan, folder: Path, cwd: Path, environ: Mapping[str, str]
    ) -> Sequence[str]:
        """Index the targets: one index file for all fragments of sequences, a database for each fragment of profiles."""
        targets, n = _get_targets(fragmented), len(fragmented.fragments)
        self._prepared = Path(targets.names) if targets.names else folder
        if targets.parts:
            return [str(Path(targets.parts) / f"part{k}" / Path(targets.source).name) for k in range(n)]
        self._prepared.mkdir(parents=True, exist_ok=True)
        try:
            if targets.profiles:
                _core.prepare_profiles(targets.source, list_cuts(fragmented), folder)
                return [str(folder / f"fragment-{k:05}") for k in range(n)]
            if targets.names:
                _prepare_shared_index(targets.source, list_cuts(fragmented), self._prepared)
                # Tools do not see the run directory, in which the index of all nodes is.
                folder.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(self._prepared / INDEX, folder / INDEX)
            else:
                _core.prepare_sequences(targets.source, list_cuts(fragmented), folder)
        except ValueError as error:
            raise CorruptError(str(error), "start again with --fresh, if the database has changed") from error
        return [str(folder / INDEX)] * n

    def relocate_files(
        self, fragmented: FragmentPlan, folder: Path, parts: Path, shared: Path, in_pieces: Collection[str]
    ) -> FragmentPlan:
        """See ``VolumeBackend.relocate_files``. The process that has the whole file writes the index of names for all nodes."""
        targets = _get_targets(fragmented)
        name = Path(targets.source).name
        # A resumed run may have other fragments while processes of this one still run.
        names = shared / blake2b(repr(list_cuts(fragmented)).encode(), digest_size=8).hexdigest()
        if name not in in_pieces:
            return replace(fragmented, about=replace(targets, names=str(names)))
        about = replace(targets, source=str(folder / name), parts=str(parts), names=str(names))
        fragments = tuple(replace(each, argv=_build_piece_arguments(each.argv)) for each in fragmented.fragments)
        return replace(fragmented, about=about, fragments=fragments)

    def list_lookup_ranges(
        self, fragmented: FragmentPlan, folder: Path, found: Sequence[FragmentOutput]
    ) -> Iterator[tuple[str, int, int]]:
        """See ``VolumeBackend.list_lookup_ranges``: the candidates."""
        targets = _get_targets(fragmented)
        if targets.parts:
            ranges = _core.sequence_ranges(self._prepared, list_cuts(fragmented), found, folder / COUNTS)
            return ((Path(targets.source).name, *each) for each in ranges)
        return iter(())

    def list_search_ranges(self, folder: Path) -> Sequence[tuple[str, int, int]]:
        """See ``VolumeBackend.list_search_ranges``: none, as ``make_candidates`` has written the sequences themselves."""
        return ()

    def make_candidates(
        self,
        fragmented: FragmentPlan,
        folder: Path,
        cwd: Path,
        environ: Mapping[str, str],
        found: Sequence[FragmentOutput],
        n_records: int,
    ) -> str:
        """Write a database of all targets, in which targets that no fragment reports are empty."""
        targets = _get_targets(fragmented)
        write = _core.profile_candidates if targets.profiles else _core.sequence_candidates
        try:
            write(
                targets.source,
                self._prepared,
                list_cuts(fragmented),
                found,
                folder / DATABASE,
                folder / COUNTS,
            )
        except ValueError as error:
            raise MillraceError(str(error), "search without fragments: --fragments 1") from error
        return DATABASE

    def make_slice(
        self, fragmented: FragmentPlan, folder: Path, cwd: Path, environ: Mapping[str, str], found: Sequence[FragmentOutput], part: SliceTask | RankTask,
    ) -> None:  # fmt: skip
        """See ``DatabaseBackend.make_slice``. Return None: a report is not cut, and its statistics count all targets."""

    def list_patches(self, fragmented: FragmentPlan, folder: Path) -> Sequence[tuple[int, str, str]]:
        """Return the patch of the statistics in the report, if there is a report."""
        report = _get_targets(fragmented).report
        return [] if report is None else [(report, "hmmer-report", str(folder / COUNTS))]


def _prepare_shared_index(source: str, begins: list[int], folder: Path) -> None:
    """Index the targets in a folder that other processes read and write; each file appears complete, by a rename.

    Raises:
        ValueError: The file has other targets than before.
        OSError: It cannot be written.
    """
    with TemporaryDirectory(prefix=".", dir=folder) as new:
        _core.prepare_sequences(source, begins, new)
        for path in Path(new).iterdir():
            path.replace(folder / path.name)


def _build_piece_arguments(argv: Sequence[ArgumentToken]) -> tuple[ArgumentToken, ...]:
    """Turn the search of a range of the whole file into the search of a file with only that range."""
    at = argv.index("--restrictdb_stkey")
    return (*argv[:at], "--", argv[-2], DatabaseArg())


def _get_targets(fragmented: FragmentPlan) -> HmmerTargets:
    assert isinstance(fragmented.about, HmmerTargets)  # by which this backend was found
    return fragmented.about


def list_cuts(fragmented: FragmentPlan) -> list[int]:
    """Return the first ordinal of each fragment, then the number of all targets."""
    return [fragment.first for fragment in fragmented.fragments] + [fragmented.fragments[-1].last]


#: The backend of this family.
BACKEND = HmmerBackend()
