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
from millrace.adapters.hmmer.command_line import read_copied_targets
from millrace.core.entry_ranges import unpack_ranges
from millrace.core.errors import CorruptError, MillraceError
from millrace.core.tasks import RankTask, SliceTask
from millrace.core.tool_use import FragmentPlan, HmmerTargets

#: Files in the folder of candidates: the database, the summed pipeline statistics of all fragments, and for each table
#: the option that is added to the finish.
DATABASE, COUNTS, ADDED = "candidates", "counts", "added"

#: Index of where the fragments of a file of sequences start, and a copy of the sequences that are searched by themselves.
INDEX, NEW = "starts.ssi", "new.fasta"


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
        targets, n = get_targets(fragmented), len(fragmented.fragments)
        self._prepared = Path(targets.names) if targets.names else folder
        if targets.parts:
            return [str(Path(targets.parts) / f"part{k}" / Path(targets.source).name) for k in range(n)]
        self._prepared.mkdir(parents=True, exist_ok=True)
        cuts, new = list_cuts(fragmented), _list_new_ranges(fragmented)
        try:
            if targets.names and not targets.profiles:
                _prepare_shared_index(targets.source, cuts, self._prepared)
                # Tools do not see the run directory, in which the index of all nodes is.
                folder.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(self._prepared / INDEX, folder / INDEX)
            else:
                _core.prepare_targets(targets.source, cuts, folder, new, pressed=targets.profiles)
        except ValueError as error:
            raise CorruptError(str(error), "start again with --fresh, if the database has changed") from error
        if targets.profiles:
            return [str(folder / f"fragment-{k:05}") for k in range(n)]
        return [str(folder / (NEW if each.only else INDEX)) for each in fragmented.fragments]

    def relocate_files(
        self, fragmented: FragmentPlan, folder: Path, parts: Path, shared: Path, in_pieces: Collection[str]
    ) -> FragmentPlan:
        """See ``VolumeBackend.relocate_files``. The process that has the whole file writes the index of names for all nodes."""
        targets = get_targets(fragmented)
        name = Path(targets.source).name
        # A resumed run may have other fragments while processes of this one still run.
        names = shared / blake2b(repr(list_cuts(fragmented)).encode(), digest_size=8).hexdigest()
        if name not in in_pieces:
            return replace(fragmented, about=replace(targets, names=str(names)))
        about = replace(targets, source=str(folder / name), parts=str(parts), names=str(names))
        fragments = tuple(replace(each, argv=read_copied_targets(each.argv)) for each in fragmented.fragments)
        return replace(fragmented, about=about, fragments=fragments)

    def list_lookup_ranges(
        self, fragmented: FragmentPlan, folder: Path, found: Sequence[FragmentOutput]
    ) -> Iterator[tuple[str, int, int]]:
        """See ``VolumeBackend.list_lookup_ranges``: the candidates."""
        targets = get_targets(fragmented)
        if targets.parts:
            ranges = self._open_prepared(fragmented).list_ranges(found, folder / COUNTS)
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
        """Write a database of the candidates alone, or of all targets, in which those that no fragment reports are empty."""
        targets, prepared = get_targets(fragmented), self._open_prepared(fragmented)
        try:
            if targets.profiles:
                prepared.write_profiles(found, folder / DATABASE, folder / COUNTS, alone=targets.alone)
            else:
                prepared.write_sequences(found, folder / DATABASE, folder / COUNTS)
        except ValueError as error:
            raise MillraceError(str(error), "search without fragments: --fragments 1") from error
        for table in targets.tables:
            (folder / f"{ADDED}-{table}").write_text(targets.added)
        return DATABASE

    def _open_prepared(self, fragmented: FragmentPlan) -> _core.PreparedTargets:
        n_new = sum(last - first for first, last in _list_new_ranges(fragmented) or ())
        return _core.PreparedTargets(get_targets(fragmented).source, self._prepared, list_cuts(fragmented), n_new)

    def make_slice(
        self, fragmented: FragmentPlan, folder: Path, cwd: Path, environ: Mapping[str, str], found: Sequence[FragmentOutput], part: SliceTask | RankTask,
    ) -> None:  # fmt: skip
        """See ``DatabaseBackend.make_slice``. Return None: a report is not cut, and its statistics count all targets."""

    def list_patches(self, fragmented: FragmentPlan, folder: Path) -> Sequence[tuple[int, str, str]]:
        """Return the patches of the statistics in the report, and of the options in tables where one was added."""
        targets = get_targets(fragmented)
        kind = ("hmmer-candidates-z" if targets.added else "hmmer-candidates") if targets.alone else "hmmer-report"
        reports = [] if targets.report is None else [(targets.report, kind, str(folder / COUNTS))]
        # Each patch has a file of its own.
        return reports + [(table, "hmmer-settings", str(folder / f"{ADDED}-{table}")) for table in targets.tables]


def _prepare_shared_index(source: str, begins: list[int], folder: Path) -> None:
    """Index the targets in a folder that other processes read and write; each file appears complete, by a rename.

    Raises:
        ValueError: The file has other targets than before.
        OSError: It cannot be written.
    """
    with TemporaryDirectory(prefix=".", dir=folder) as new:
        _core.prepare_targets(source, begins, new, pressed=False)
        for path in Path(new).iterdir():
            path.replace(folder / path.name)


def get_targets(fragmented: FragmentPlan | None) -> HmmerTargets:
    """Return the targets of a search of HMMER in fragments."""
    about = fragmented.about if fragmented else None
    assert isinstance(about, HmmerTargets)
    return about


def list_cuts(fragmented: FragmentPlan) -> list[int]:
    """Return the first ordinal of each fragment, then the number of all targets; without that of new ones."""
    parts = [fragment for fragment in fragmented.fragments if not fragment.only]
    return [fragment.first for fragment in parts] + [parts[-1].last]


def _list_new_ranges(fragmented: FragmentPlan) -> list[tuple[int, int]] | None:
    """Return the ranges of the targets that are searched by themselves; None: candidates are not known by ordinal."""
    if not fragmented.depth:
        return None
    return [each for fragment in fragmented.fragments if fragment.only for each in unpack_ranges(fragment.only)]


#: The backend of this family.
BACKEND = HmmerBackend()
