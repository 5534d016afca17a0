"""Fragments and candidates of BLAST databases: alias files over the user's own database, which is never copied.

An alias may name a range of entries (``FIRST_OID``, from 1, and ``LAST_OID``, counted over all volumes) or, for one
volume, a bit mask (``OIDLIST``). It may also set the numbers that BLAST prints (``NSEQ``, ``LENGTH``) and those that go
into its statistics (``STATS_NSEQ``, ``STATS_TOTLEN``).

Source: ``seqdbalias.cpp`` and ``seqdboidlist.cpp`` of the NCBI C++ Toolkit, and comparison.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path

import msgspec

from millrace._core import Candidates, HitList, Ranking
from millrace.adapters.blast.volume_files import read_ranges, write_ranges
from millrace.adapters.blast.volumes import run_blastdbcmd, write_alias, write_masked_aliases
from millrace.adapters.database_backend import CandidateSlice, FragmentOutput
from millrace.core.entry_ranges import unpack_ranges
from millrace.core.errors import MillraceError
from millrace.core.tasks import RankTask, SliceTask
from millrace.core.tool_use import BlastDatabase, DatabaseFragment, FragmentPlan

#: The folder, beside those of volumes, with the parts of each volume that the search of another volume reads.
OTHERS = "others"

#: Bytes of a list of hits that are read at a time.
PIECE_BYTES = 1 << 22


class BlastBackend:
    """Backend for databases in NCBI's format."""

    def prepare_fragments(
        self, fragmented: FragmentPlan, folder: Path, cwd: Path, environ: Mapping[str, str]
    ) -> Sequence[str]:
        """See ``DatabaseBackend.prepare_fragments``: an alias file for each fragment."""
        whole = _WholeDatabase(fragmented)
        databases: Sequence[str] = whole.databases
        if whole.parts:
            return [whole.write_part_alias(number, part, folder) for number, part in enumerate(fragmented.fragments)]
        if whole.listed:
            databases = whole.mask_ranges(whole.listed, folder, "listed")
        return [whole.write_range_alias(n, part, databases, folder) for n, part in enumerate(fragmented.fragments)]

    def make_candidates(
        self,
        fragmented: FragmentPlan,
        folder: Path,
        cwd: Path,
        environ: Mapping[str, str],
        found: Sequence[FragmentOutput],
        n_records: int,
    ) -> str:
        """See ``DatabaseBackend.make_candidates``: an alias with a mask of one bit for each entry.

        Where a fragment's list of hits may be cut off, or names an unknown subject, all entries of the fragment become
        candidates: BLAST then searches it once more, which costs time and changes no result.
        """
        whole = _WholeDatabase(fragmented)
        return whole.write_candidates(self._collect_candidates(fragmented, whole, cwd, environ, found), folder)

    def relocate_files(
        self, fragmented: FragmentPlan, folder: Path, parts: Path, shared: Path, in_pieces: Collection[str]
    ) -> FragmentPlan:
        """See ``VolumeBackend.relocate_files``."""
        about = fragmented.about
        assert isinstance(about, BlastDatabase)  # by which this backend was found

        def place_base(base: str) -> str:
            return str(folder / Path(base).name)

        about = msgspec.structs.replace(
            about, databases=tuple(map(place_base, about.databases)), parts=str(parts),
            volumes=tuple((place_base(base), entries) for base, entries in about.volumes),
        )  # fmt: skip
        return msgspec.structs.replace(fragmented, about=about)

    def list_lookup_ranges(
        self, fragmented: FragmentPlan, folder: Path, found: Sequence[FragmentOutput]
    ) -> Iterator[tuple[str, int, int]]:
        """See ``VolumeBackend.list_lookup_ranges``: all indices and ids, as a whole."""
        return ((index.file.name, 0, index.file.size) for index in fragmented.indices)

    def list_search_ranges(self, folder: Path) -> Sequence[tuple[str, int, int]]:
        """See ``VolumeBackend.list_search_ranges``."""
        return read_ranges(folder)

    def list_candidate_ordinals(
        self, fragmented: FragmentPlan, cwd: Path, environ: Mapping[str, str], found: Sequence[FragmentOutput]
    ) -> list[int]:
        """Return the ordinals of the entries in the database that ``make_candidates`` makes, ascending."""
        return self._collect_candidates(fragmented, _WholeDatabase(fragmented), cwd, environ, found).ordinals()

    def find_named_ordinals(
        self, fragmented: FragmentPlan, names: Sequence[bytes], cwd: Path, environ: Mapping[str, str]
    ) -> dict[bytes, int] | None:
        """Return the ordinal of the entry with each of these ids; None if one is unknown, or of several entries."""
        whole = _WholeDatabase(fragmented)
        every = whole.find_ordinals(names, cwd, environ)
        first = whole.find_first_ordinals(names, cwd, environ)
        if every is None or first is None or sorted(every) != sorted(first):
            return None
        return dict(zip(names, first, strict=True))

    def _collect_candidates(
        self,
        fragmented: FragmentPlan,
        whole: _WholeDatabase,
        cwd: Path,
        environ: Mapping[str, str],
        found: Sequence[FragmentOutput],
    ) -> Candidates:
        """Collect the entries in the lists of hits; see ``make_candidates``."""
        candidates = Candidates(whole.entries)
        for fragment, block in zip(fragmented.fragments, found, strict=True):
            most, names, unknown = _read_hits(HitList(), block, candidates)
            entries = whole.find_ordinals(names, cwd, environ)
            if most >= whole.limit or unknown or entries is None:
                for first, last in whole.clip_to_list(fragment.first, fragment.last):
                    candidates.add_range(first, last)
            elif not all(candidates.add(entry) for entry in entries):
                raise MillraceError(f"BLAST has found an entry that {fragmented.database} does not have")
        return candidates

    def make_slice(
        self, fragmented: FragmentPlan, folder: Path, cwd: Path, environ: Mapping[str, str], found: Sequence[FragmentOutput], part: SliceTask | RankTask,
    ) -> CandidateSlice | None:  # fmt: skip
        """See ``DatabaseBackend.make_slice``. Subjects are ranked by the bits or E-values in the lists of hits."""
        whole, ranked = _WholeDatabase(fragmented), fragmented.ranked
        assert ranked  # else there are no slices
        if isinstance(part, RankTask):
            candidates = self._collect_candidates(fragmented, whole, cwd, environ, found)
            if len(candidates) > ranked.most:
                return None
            candidates.deal(part.number, part.of)
            return CandidateSlice(whole.write_candidates(candidates, folder) if len(candidates) else "", 0.0, math.inf)
        by_evalue = bool(ranked.argv)
        ranking, n = Ranking(by_evalue=by_evalue), 0
        for block in found:
            for piece in _split_block(block):
                ranking.read(piece)
            subjects = ranking.finish()
            if subjects is None or subjects >= whole.limit:
                return None
            n += subjects
        if n > ranked.most:
            return None
        within = ranking.slice(part.number, part.of)
        if not within:
            return CandidateSlice("", 0.0, math.inf)
        candidates = Candidates(whole.entries)
        for block in found:
            _, names, unknown = _read_hits(HitList(within, by_evalue=by_evalue), block, candidates)
            entries = whole.find_ordinals(names, cwd, environ)
            # Entries with the same id may be in different slices.
            if unknown or entries is None or len({*entries}) != len(names) or not all(map(candidates.add, entries)):
                return None
        return CandidateSlice(whole.write_candidates(candidates, folder), *within)

    def list_patches(self, fragmented: FragmentPlan, folder: Path) -> Sequence[tuple[int, str, str]]:
        """See ``DatabaseBackend.list_patches``: none, as BLAST itself writes the output of the whole database."""
        return ()


def format_hit_lists(lists: Iterable[Sequence[int]]) -> bytes:
    """Format lists of hits, each of the ordinals of entries, as a search writes them: only the parts that are read."""
    return b"".join(
        b"<b>Query=</b>\n" + b"".join(b"<a href=#BL_ORD_ID:%d>1</a> 0\n" % entry for entry in entries)
        for entries in lists
    )


def _split_block(block: FragmentOutput) -> Iterator[bytes]:
    return (bytes(block[at : at + PIECE_BYTES]) for at in range(0, len(block), PIECE_BYTES))


def _read_hits(hits: HitList, block: FragmentOutput, candidates: Candidates) -> tuple[int, list[bytes], int]:
    """Add the subjects that a list of hits names by ordinal to the candidates; return as ``HitList.finish``."""
    for piece in _split_block(block):
        hits.read(piece, candidates)
    return hits.finish(candidates)


class _WholeDatabase:
    """The whole database, as the adapter describes it in ``FragmentPlan.about``."""

    def __init__(self, fragmented: FragmentPlan) -> None:
        about = fragmented.about
        assert isinstance(about, BlastDatabase)  # by which this backend was found
        self.letter, self.title, self.limit, self.databases = about.letter, about.title, about.limit, about.databases
        self.parts = Path(about.parts) if about.parts else None
        self.volumes = [base for base, _ in about.volumes]
        self.entries = [entries for _, entries in about.volumes]
        #: Ranges of the entries that the search's list of entries selects; empty: there is no list.
        self.listed = unpack_ranges(about.listed) if about.listed else []
        self.numbers = (
            f"NSEQ {about.entries}",
            f"LENGTH {about.residues}",
            f"STATS_NSEQ {about.counted[0]}",
            f"STATS_TOTLEN {about.counted[1]}",
            *([f"MIN_SEQ_LENGTH {about.shortest}"] if self.listed else []),
        )

    def clip_to_list(self, first: int, last: int) -> list[tuple[int, int]]:
        """Return the ranges of ``[first, last)`` that are searched: all of it, or the part in the list of entries."""
        if not self.listed:
            return [(first, last)]
        clipped = ((max(begin, first), min(end, last)) for begin, end in self.listed)
        return [(begin, end) for begin, end in clipped if begin < end]

    def mask_entries(self, entries: Candidates, folder: Path, name: str) -> list[str]:
        """See ``write_masked_aliases``."""
        return write_masked_aliases(entries, self.volumes, folder, name, self.letter, self.title)

    def mask_ranges(self, ranges: Iterable[tuple[int, int]], folder: Path, name: str) -> list[str]:
        """Write masked aliases with the entries in ``ranges`` and return their paths; see ``write_masked_aliases``."""
        entries = Candidates(self.entries)
        for first, last in ranges:
            entries.add_range(first, last)
        return [str(folder / each) for each in self.mask_entries(entries, folder, name)]

    def write_alias_file(self, path: Path, databases: Sequence[str], *lines: str) -> None:
        """See ``write_alias``."""
        write_alias(path, self.letter, self.title, databases, *lines)

    def write_candidates(self, candidates: Candidates, folder: Path) -> str:
        """Write a database of these entries, and return its name in ``folder``."""
        if self.parts:
            write_ranges(self.volumes, self.letter, self.entries, candidates.ordinals(), folder)
        self.write_alias_file(folder / "candidates", self.mask_entries(candidates, folder, "part"), *self.numbers)
        return "candidates"

    def write_part_alias(self, number: int, fragment: DatabaseFragment, folder: Path) -> str:
        """Write an alias with the entries of one volume, read from its complete copy, and return its path."""
        assert self.parts
        starts = accumulate(self.entries, initial=0)
        bases = [
            str(self.parts / (f"part{number}" if start == fragment.first and n else OTHERS) / Path(base).name)
            for base, n, start in zip(self.volumes, self.entries, starts, strict=False)
        ]
        return self.write_range_alias(number, fragment, bases, folder)

    def write_range_alias(self, number: int, fragment: DatabaseFragment, bases: Sequence[str], folder: Path) -> str:
        """Write an alias with the entries of one fragment, read from ``bases``, and return its path."""
        if fragment.only:
            masked = self.mask_ranges(unpack_ranges(fragment.only), folder, f"only{number}-")
            self.write_alias_file(folder / f"fragment{number}", masked, *self.numbers)
        else:
            lines = (f"FIRST_OID {fragment.first + 1}", f"LAST_OID {fragment.last}", *self.numbers)
            self.write_alias_file(folder / f"fragment{number}", bases, *lines)
        return str(folder / f"fragment{number}")

    def find_ordinals(self, names: Sequence[bytes], cwd: Path, environ: Mapping[str, str]) -> list[int] | None:
        """Return the ordinals of the entries with these ids; None if an id is unknown."""
        if not names:
            return []
        asked = b"".join(_format_id(name) + b"\n" for name in set(names))
        text = self.ask_blastdbcmd(
            ["-db", self.get_argument(), "-entry_batch", "-", "-outfmt", "%o", "-get_dups"], asked, cwd, environ
        )
        if text is None or len(text.split()) < len(set(names)):
            return None
        return [int(line) for line in text.split()]

    def find_first_ordinals(self, names: Sequence[bytes], cwd: Path, environ: Mapping[str, str]) -> list[int] | None:
        """Return the ordinal of the first entry with each of these ids, in their order; None if an id is unknown."""
        asked = b"".join(_format_id(name) + b"\n" for name in names)
        text = self.ask_blastdbcmd(
            ["-db", self.get_argument(), "-entry_batch", "-", "-outfmt", "%o"], asked, cwd, environ
        )
        found = [] if text is None else [int(line) for line in text.split()]
        return found if len(found) == len(names) else None

    def get_argument(self) -> str:
        """Return the databases as the value of one option of BLAST."""
        return " ".join(f'"{name}"' if " " in name else name for name in self.databases)

    def ask_blastdbcmd(
        self, arguments: Sequence[str], text: bytes, cwd: Path, environ: Mapping[str, str]
    ) -> bytes | None:
        """Return the output of ``blastdbcmd``; None if it fails or warns."""
        answer = run_blastdbcmd(self.letter, arguments, cwd, environ, text)
        if answer is None:
            raise MillraceError("blastdbcmd is not on the PATH; databases with ids need it")
        return None if answer.returncode != 0 or answer.stderr else answer.stdout


def _format_id(name: bytes) -> bytes:
    """Write an id as ``blastdbcmd`` reads it. Lists of hits write ids of local databases as ``DATABASE:NAME``."""
    return re.sub(rb"^([^|:]+):(.+)$", rb"gnl|\1|\2", name)


#: The backend of this family.
BACKEND = BlastBackend()
