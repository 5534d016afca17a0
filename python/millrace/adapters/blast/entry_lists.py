"""Lists of entries: which entries of a database an option selects, and their statistics.

*Exactness.* With a list BLAST counts anew: the number of the selected entries and their residues go into its
statistics, and the length of the shortest one into the preliminary E-value. An alias can set all three (``STATS_NSEQ``,
``STATS_TOTLEN``, ``MIN_SEQ_LENGTH``), so the search of a masked database without the list is the search with it. An
alias cannot set their mean length, which only searches without gaps need.

Source: ``seqdbimpl.cpp`` (``x_ScanTotals``), ``seqdbalias.cpp`` (``CSeqDB_MinLengthWalker``) and ``blast_setup.c``
(``BLAST_GapAlignSetUp``: ``min_subject_length``) of the NCBI C++ Toolkit, and comparison.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain, compress, pairwise
from pathlib import Path

import msgspec

from millrace._core import Candidates
from millrace.adapters.blast.database import NotInFragmentsError, SearchedDatabase
from millrace.adapters.blast.volumes import BlastVolume, read_lengths, run_blastdbcmd, write_alias, write_masked_aliases
from millrace.core.tool_use import UserCommand

#: Options that name entries, and the line of an alias with the same effect.
_LINES = {"seqidlist": "SEQIDLIST", "gilist": "GILIST"}

#: Options that ``blastdbcmd`` has too.
_TAXA = ("taxids", "taxidlist")

#: Flag that keeps BLAST+ 2.16 and 2.17 from expanding a taxon to the taxa below it, by a file of NCBI's. Where that
#: file is missing, a search ignores the whole list with a warning, and ``blastdbcmd`` does not.
EXACT_TAXA = "no_taxid_expansion"

#: Prefix of options that exclude the named entries.
NEGATIVE = "negative_"

OPTIONS = tuple(prefix + name for prefix in ("", NEGATIVE) for name in (*_LINES, *_TAXA))

#: Words of a list of ids, and comments.
_WORDS = re.compile(rb"#[^\n]*|[^># \t\r\n][^ \t\r\n]*")

#: Title of the temporary databases.
_TITLE = "listed"

#: Entries counted at a time.
_PIECE = 1 << 20


class ListedEntries(msgspec.Struct, frozen=True):
    """The entries of a database that a list selects."""

    #: Half-open ranges of ordinals over all volumes, in order.
    runs: tuple[tuple[int, int], ...]
    entries: int
    residues: int
    #: Length of the shortest entry.
    shortest: int

    def cut_runs(self, shares: Sequence[int]) -> list[tuple[int, int, int]]:
        """Cut into at most ``len(shares)`` ranges (first, last, residues), with entries about as the shares."""
        upto, total = list(accumulate(shares, initial=0)), sum(shares)
        before = list(accumulate((last - first for first, last in self.runs), initial=0))
        places = [0]
        for share in upto[1:-1]:
            place = self.entries * share // total
            run = bisect_right(before, place) - 1
            places.append(self.runs[run][0] + place - before[run] if place else 0)
        places.append(self.runs[-1][1])
        return [
            (first, last, self.residues * (end - begin) // total)
            for (first, last), (begin, end) in zip(pairwise(places), pairwise(upto), strict=True)
            if first < last
        ]


def read_entry_list(
    option: str, options: Mapping[str, str], database: SearchedDatabase, command: UserCommand
) -> ListedEntries:
    """Find the entries that ``option``, one of ``OPTIONS``, selects from a database, with the other ``options``.

    Raises:
        NotInFragmentsError: They are not known for certain, or there are none.
    """
    try:
        more = (f"-{EXACT_TAXA}",) if EXACT_TAXA in options else ()
        named = _find_named_ordinals(option.removeprefix(NEGATIVE), options[option], database, command, more)
    except NotInFragmentsError as why:
        raise NotInFragmentsError(f"-{option}: {why}") from None
    volumes = database.volumes
    total = sum(volume.entries for volume in volumes)
    runs = tuple(invert_ranges(named, total) if option.startswith(NEGATIVE) else group_ranges(named))
    entries, residues, shortest = _count_entries(runs, volumes)
    if not entries:
        raise NotInFragmentsError(f"-{option}: it leaves no entry")
    return ListedEntries(runs, entries, residues, shortest)


def _find_named_ordinals(
    option: str, value: str, database: SearchedDatabase, command: UserCommand, more: Sequence[str]
) -> list[int]:
    """Find the ordinals of the entries that a list names, ascending."""
    names = [str(base) for base in database.bases]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if option in _TAXA:
            quoted = " ".join(f'"{name}"' for name in names)
            found = _ask_ordinals(["-db", quoted, f"-{option}", value, *more], database, command)
        else:
            path = command.cwd / value
            if option == "seqidlist":
                path = _rewrite_id_list(path, folder / "ids", database, command)
            line = f"{_LINES[option]} {path}"
            write_alias(folder / "listed", database.letter, _TITLE, names, line)
            found = _ask_ordinals(["-db", f"{folder}/listed", "-entry", "all"], database, command)
        ordinals = sorted(set(found))
        # A list may have some names of an entry and not others, which BLAST then omits.
        if found != _list_name_ordinals(ordinals, folder, database, command):
            raise NotInFragmentsError("an entry of several names is not named by all of them")
    return ordinals


def _rewrite_id_list(path: Path, to: Path, database: SearchedDatabase, command: UserCommand) -> Path:
    """Write a list of ids so that an alias reads it as a search does, and return its path.

    With a database of version 5 a search takes each word of a text for an id in any form (``gb|U00096.3|``,
    ``u00096.3``) and looks for the id itself; an alias looks for the word. ``blastdb_aliastool`` writes the ids.

    Source: ``seqdbgilistset.cpp`` (``s_ProcessSeqIDsForV5``), ``seqdbcommon.cpp`` (``SeqDB_ReadMemorySiList``) and
    ``seqidlist_writer.cpp``.
    """
    try:
        text = path.read_bytes()
    except OSError as error:
        raise NotInFragmentsError(f"{path}: {error.strerror}") from None
    if text[:1] == b"\0" or all(volume.version == 4 for volume in database.volumes):
        return path
    words = [word.strip() for word in _WORDS.findall(text) if not word.startswith(b"#")]
    to.write_bytes(b"".join(word + b"\n" for word in words))
    program = shutil.which("blastdb_aliastool", path=command.environ.get("PATH"))
    if program is None:
        raise NotInFragmentsError("blastdb_aliastool is not on the PATH, which reads lists of ids")
    listed = to.with_suffix(".bsl")
    arguments = [program, "-seqid_file_in", str(to), "-seqid_file_out", str(listed)]
    done = subprocess.run(arguments, capture_output=True, env=dict(command.environ), check=False)
    if done.returncode or done.stderr:
        raise NotInFragmentsError(
            f"blastdb_aliastool does not understand it: {done.stderr.decode(errors='replace').strip()}"
        )
    return listed


def _list_name_ordinals(
    ordinals: list[int], folder: Path, database: SearchedDatabase, command: UserCommand
) -> list[int]:
    """Return ``ordinals``, in order, each as often as its entry has names."""
    mask = Candidates([volume.entries for volume in database.volumes])
    for ordinal in ordinals:
        mask.add(ordinal)
    volumes = [str(volume.base) for volume in database.volumes]
    parts = write_masked_aliases(mask, volumes, folder, "part", database.letter, _TITLE)
    write_alias(folder / "parts", database.letter, _TITLE, parts)
    return _ask_ordinals(["-db", f"{folder}/parts", "-entry", "all"], database, command)


def _ask_ordinals(arguments: Sequence[str], database: SearchedDatabase, command: UserCommand) -> list[int]:
    """Return the ordinals that ``blastdbcmd`` finds, one for each name of an entry, ascending.

    It writes a line for each name only if the names are requested, too.
    """
    answer = run_blastdbcmd(database.letter, [*arguments, "-outfmt", "%o %a"], command.cwd, command.environ)
    if answer is None:
        raise NotInFragmentsError("blastdbcmd is not on the PATH, which reads lists of entries")
    words = [line.split()[0] for line in answer.stdout.splitlines() if line.strip()]
    if answer.returncode or answer.stderr or not all(word.isdigit() for word in words):
        why = answer.stderr.decode(errors="replace").strip() or "no numbers"
        raise NotInFragmentsError(f"blastdbcmd does not know its entries: {why}")
    return sorted(map(int, words))


def group_ranges(ordinals: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Merge ascending ordinals into half-open ranges.

    >>> list(group_ranges([2, 3, 7]))
    [(2, 4), (7, 8)]
    """
    first = last = -1
    for ordinal in ordinals:
        if ordinal != last:
            if last > first:
                yield first, last
            first = ordinal
        last = ordinal + 1
    if last > first:
        yield first, last


def invert_ranges(ordinals: Iterable[int], total: int) -> Iterator[tuple[int, int]]:
    """Return the half-open ranges of ``total`` entries without ``ordinals``, which ascend.

    >>> list(invert_ranges([2, 3, 7], 9))
    [(0, 2), (4, 7), (8, 9)]
    """
    for before, after in pairwise(chain([-1], ordinals, [total])):
        if before + 1 < after:
            yield before + 1, after


def _count_entries(runs: Sequence[tuple[int, int]], volumes: Sequence[BlastVolume]) -> tuple[int, int, int]:
    """Count the entries in ``runs`` and their residues, and find the length of the shortest."""
    entries = residues = start = 0
    shortest = 1 << 31
    for volume in volumes:
        for piece in range(0, volume.entries, _PIECE):
            end = min(piece + _PIECE, volume.entries)
            chosen = _flag_entries(runs, start + piece, start + end)
            if not any(chosen):
                continue
            found = list(compress(read_lengths(volume, piece, end), chosen))
            entries, residues, shortest = entries + len(found), residues + sum(found), min(shortest, min(found))
        start += volume.entries
    return entries, residues, shortest


def _flag_entries(runs: Sequence[tuple[int, int]], begin: int, end: int) -> bytearray:
    """Return one byte for each entry of ``[begin, end)``: 1 if it is in ``runs``, else 0."""
    flags = bytearray(end - begin)
    for first, last in runs[max(0, bisect_right(runs, (begin, end)) - 1) :]:
        if first >= end:
            break
        low, high = max(first, begin), min(last, end)
        if low < high:
            flags[low - begin : high - begin] = b"\1" * (high - low)
    return flags
