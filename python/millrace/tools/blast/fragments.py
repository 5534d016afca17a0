"""Searches of BLAST in fragments of the database.

*Exactness.* BLAST keeps the best subjects of a query by their preliminary scores, and only then aligns them again
and writes. So the fragments are searched for more than that list can hold, with the statistics of the whole
database, and then BLAST itself searches what was found, with the user's own options: the list is the same, and what
comes of it too. ``docs/exactness-fragments.md`` has the argument, its sources and what is refused.
"""

from __future__ import annotations

import re
import zlib
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence

from millrace.errors import RefusedError
from millrace.model import (
    BlastDatabase,
    Carried,
    Command,
    DatabaseArg,
    Fetched,
    Fragment,
    Fragmented,
    Index,
    OutputArg,
    OutputUse,
    Ranked,
    Token,
    ToolUse,
)
from millrace.tools.base import Fragmentable
from millrace.tools.blast import lists
from millrace.tools.blast.database import Database, NotInFragments, read_database
from millrace.tools.blast.ids import without_ids
from millrace.tools.blast.lists import Listed
from millrace.tools.blast.options import OPTIONS
from millrace.tools.blast.search_path import SearchPath, split_names
from millrace.tools.blast.thresholds import evalue_of, threshold
from millrace.tools.blast.volumes import cut, ending, whole_volumes
from millrace.tools.options import scan, words

#: Databases of the programs that are searched in fragments.
_LETTERS = {"blastp": "p", "blastx": "p", "psiblast": "p", "blastn": "n", "tblastn": "n", "tblastx": "n"}

#: Options that say how the result is written, or how much of it.
_WRITTEN = words("""
    outfmt out num_descriptions num_alignments max_target_seqs html show_gis sorthits sorthsps line_length db
""") | frozenset((*lists.OPTIONS, lists.EXACT_TAXA))

#: Options that do not belong into the search of a fragment: how the result is written, and what chooses among the
#: subjects or hits that the preliminary search has found.
_OWN = _WRITTEN | words("""
    max_hsps evalue comp_based_stats use_sw_tback qcov_hsp_perc perc_identity xdrop_gap_final culling_limit
    best_hit_overhang best_hit_score_edge subject_besthit
""")

#: Options that may drop the best alignment of a subject after it was given its place in the order: its place does not
#: show then in what is written, in rows or in the list of hits.
_DROPPED_LATE = frozenset({"qcov_hsp_perc"})

#: Options with which a database is not searched in fragments.
_REFUSED = {
    "subject": "-subject is not a database",
    **dict.fromkeys(words("use_index index_name"), "the index belongs to the whole database"),
    **dict.fromkeys(words("ipglist negative_ipglist"), "which entries it leaves is not known"),
    "entrez_query": "it is for searches at NCBI",
}

#: Columns that tell subjects apart.
_SUBJECT = ("saccver", "sseqid", "sacc", "sallseqid", "sallacc")

#: Programs that rank subjects by E-values, which do not follow from the bits: they depend on the subject's length, and
#: on composition, too. Not blastx, whose first row of a subject is not always the best.
_BY_EVALUE = ("blastp", "tblastn")

#: Options with which subjects are ordered or chosen otherwise than each by its own best score.
_RANKED_OTHERWISE = frozenset(
    words("""
    culling_limit best_hit_overhang best_hit_score_edge sorthits sorthsps ungapped sum_stats num_descriptions num_alignments
""")
)

#: Fewest subjects of a query, from which on it is not certain that all of a fragment are in its list.
_FEWEST = 5000

#: Endings of what has the ids of a volume: names, and numbers of GenBank.
_IDS = ("db", "og")

#: Bytes of a file up to which it is looked at whether it packs well; and of what nodes are told with the command, or the part
#: of the file that this may be.
_LOOKED_AT, _CARRIED, _CARRIED_SHARE = 1 << 20, 1 << 10, 16

#: The larger X-dropoff is that of the final alignment, so that it finds what the preliminary one did.
_XDROP_FINAL = 100


def fragmentable(program: str, options: dict[str, str], command: Command) -> Fragmentable:
    """Look at the database of a command that `millrace.tools.blast.adapter` has understood."""
    try:
        database = _database(program, options, command)
        listed = _listed(options, database, command)
        size = database.sequence_bytes
    except (NotInFragments, RefusedError, OSError) as why:
        # Not a reason to refuse the command: BLAST may well read what we cannot.
        return Fragmentable(why_not=str(why))
    if listed:
        size = size * listed.residues // database.residues
        return Fragmentable(entries=listed.entries, residues=listed.residues, bytes=size)
    return Fragmentable(entries=database.entries, residues=database.residues, bytes=size)


def fragment(
    use: ToolUse, program: str, options: dict[str, str], command: Command, sizes: Sequence[int], columns: Sequence[str]
) -> Fragmented:
    """Cut the database into fragments of these sizes, to each other; see `millrace.tools.blast.volumes.cut`.

    Args:
        sizes: None: its volumes are the fragments, and their files are fetched later.
        columns: Of the table that is written, if it has tabs between them.
    """
    database = _database(program, options, command)
    listed = _listed(options, database, command)
    counted = (listed.entries, listed.residues) if listed else database.counted
    limit = _limit(options)
    argv = _search(use, program, options, limit, threshold(program, options, counted[1], command.environ))
    runs = whole_volumes(database.volumes)
    if sizes:
        runs = listed.cut(sizes) if listed else cut(database.volumes, sizes)
    carried = () if sizes else tuple(_carried(database, command))
    return Fragmented(
        volumes=() if sizes else _later(database, command),
        indices=() if sizes else tuple(_indices(database, command, {each.name for each in carried})),
        carried=carried,
        fragments=tuple(Fragment(first=first, last=last, size=size, argv=argv) for first, last, size in runs),
        found=OutputUse(name="found", path="found"),
        finish=_finish(use),
        database=options["db"],
        divisible=True,
        ranked=_ranked(use, program, options, columns),
        about=BlastDatabase(
            letter=database.letter,
            databases=tuple(str(base) for base in database.bases),
            title=database.title,
            entries=database.entries,
            residues=database.residues,
            counted=counted,
            volumes=tuple((str(volume.base), volume.entries) for volume in database.volumes),
            limit=limit,
            listed=lists.pack(listed.runs) if listed else "",
            shortest=listed.shortest if listed else 0,
        ),
    )


def _later(database: Database, command: Command) -> tuple[tuple[Fetched, ...], ...]:
    """The files of each volume that are fetched when it is searched."""
    later: dict[str, list[Fetched]] = defaultdict(list)
    for file in command.view.later if command.view else ():
        later[file.name.rpartition(".")[0]].append(file)
    return tuple(tuple(later[volume.base.name]) for volume in database.volumes if volume.entries)


def _indices(database: Database, command: Command, carried: Collection[str]) -> Iterator[Index]:
    """The index of each volume that has entries, and its ids."""
    files = {file.name: file for file in command.view.files} if command.view else {}
    for volume in database.volumes:
        if volume.entries:
            with volume.index.open("rb") as index:
                head = zlib.compress(index.read(volume.head))
            yield Index(file=files[volume.index.name], pieces=((0, head),))
        for suffix in _IDS if volume.entries else ():
            path = ending(volume.base, f"{volume.letter}{suffix}")
            if path.name in carried or not (file := files.get(path.name)):
                continue
            pages = without_ids(path) if suffix == "db" else []
            if pages is not None:  # else all nodes get it
                packed = tuple((at, zlib.compress(page)) for at, page in pages)
                yield Index(file=file, pieces=packed, is_part=False)


def _carried(database: Database, command: Command) -> Iterator[Carried]:
    """Aliases, and what is empty for the most part, as lists of ids are where none were parsed."""
    indices = {volume.index.name for volume in database.volumes}
    for file in command.view.files if command.view else ():
        if (
            re.search(rf"\.{database.letter}[a-z][a-z]$", file.name)
            and file.name not in indices
            and file.size <= _LOOKED_AT
        ):
            assert command.view
            packed = zlib.compress((command.view.folder / file.name).read_bytes())
            if len(packed) <= max(_CARRIED, file.size // _CARRIED_SHARE):
                yield Carried(name=file.name, packed=packed)


def _database(program: str, options: dict[str, str], command: Command) -> Database:
    letter = _LETTERS.get(program)
    if letter is None:
        raise NotInFragments(f"{program} in fragments was not compared with serial runs")
    if options.get("num_threads", "1") != "1":
        raise NotInFragments(
            "-num_threads: what two threads of BLAST find among few entries was seen to differ from run to run; "
            "leave it out, every core gets a fragment of its own"
        )
    if options.get("num_iterations", "1") != "1":
        raise NotInFragments("a second iteration searches with what the first found in all fragments")
    evalue_of(options)
    for name, why in _REFUSED.items():
        if name in options:
            raise NotInFragments(f"-{name}: {why}")
    several = [name for name in lists.OPTIONS if name in options]
    if len(several) > 1:
        raise NotInFragments(f"-{several[1]}: BLAST takes one list")
    if several and (program == "tblastx" or "ungapped" in options):
        raise NotInFragments(
            f"-{several[0]}: without gaps the mean length of the entries counts, which no alias can say"
        )
    if _format(options) == 11:
        raise NotInFragments("-outfmt 11 breaks long lines, in which the name of the database stands")
    database = read_database(options["db"], letter, SearchPath(command))
    if len(split_names(options["db"])) > 1 and _format(options) == 0:
        raise NotInFragments(
            "-outfmt 0 tells the databases of one -db apart: name them in one alias (blastdb_aliastool)"
        )
    if command.view and command.view.later:
        _check_volumes(options["db"], database, command)
    return database


def _check_volumes(db: str, database: Database, command: Command) -> None:
    """Raises `NotInFragments` if a database cannot be searched whose volumes are fetched later."""
    if len(split_names(db)) > 1:
        raise NotInFragments("volumes are left in HDFS of one database, not of several")
    if not all(len(files) == 2 for files in _later(database, command)):
        raise NotInFragments("not all of the database is volumes in HDFS (NAME.00, NAME.01 ...)")


def _listed(options: dict[str, str], database: Database, command: Command) -> Listed | None:
    """What a list of entries leaves of the database; None: there is no list."""
    names = [name for name in lists.OPTIONS if name in options]
    if names and command.view and command.view.later:
        raise NotInFragments(f"-{names[0]}: what it leaves of a database is not known before all of it is here")
    return lists.listed(names[0], options, database, command) if names else None


def _format(options: dict[str, str]) -> int:
    return int(options.get("outfmt", "0").split()[0])


def _limit(options: dict[str, str]) -> int:
    """Subjects of one query in one fragment from which on its list may not have all: more than BLAST keeps of all."""
    kept = [options[name] for name in ("max_target_seqs", "num_descriptions", "num_alignments") if name in options]
    most = max([500, *(int(text) for text in kept if re.fullmatch(r"\d{1,9}", text))])
    return max(_FEWEST, 2 * most + 50)


def _ranked(use: ToolUse, program: str, options: dict[str, str], columns: Sequence[str]) -> Ranked | None:
    """How subjects are ranked: those of ``blastn`` by the bits of their best alignment, others by its E-value."""
    subject = next((column for column in _SUBJECT if column in columns), None)
    most = options.get("max_target_seqs", "")
    by_evalue = program in _BY_EVALUE
    needed = {"bitscore", "evalue"} if by_evalue else {"bitscore"}
    if (
        not (by_evalue or program == "blastn") or not subject or not needed <= {*columns}
        or not re.fullmatch(r"\d{1,9}", most) or int(most) < _FEWEST or not _RANKED_OTHERWISE.isdisjoint(options) or [output.join for output in use.outputs] != ["concat"]
    ):  # fmt: skip
        return None
    return Ranked(
        subject=columns.index(subject), bits=columns.index("bitscore"),
        evalue=columns.index("evalue") if by_evalue else None, most=int(most),
        argv=_ranks(use, most) if by_evalue else (),
    )  # fmt: skip


def _ranks(use: ToolUse, most: str) -> tuple[Token, ...]:
    """The user's own search of some candidates, of which only the list of hits is written."""
    argv: list[Token] = [use.argv[0]]
    for name, tokens in _by_option(use.argv[1:]):
        if name not in _WRITTEN | _DROPPED_LATE:
            argv += tokens
    argv += ["-db", DatabaseArg(), "-out", OutputArg(index=0)]
    return (*argv, "-html", "-num_descriptions", most, "-num_alignments", "0")


def _search(
    use: ToolUse, program: str, options: dict[str, str], limit: int, threshold: Sequence[str]
) -> tuple[Token, ...]:
    """The program and its arguments for the search of a fragment: only which entries are found counts."""
    argv: list[Token] = [use.argv[0]]
    for name, tokens in _by_option(use.argv[1:]):
        if name not in _OWN:
            argv += tokens
    argv += ["-db", DatabaseArg(), *threshold, "-out", OutputArg(index=0)]
    if program not in ("blastn", "tblastx"):
        argv += ["-comp_based_stats", "0"]
    if "xdrop_gap" in options:
        argv += ["-xdrop_gap_final", str(max(_XDROP_FINAL, 2 * float(options["xdrop_gap"])))]
    # One alignment of each subject, chosen when all are made, is enough to name it. Twice the limit: a subject may be in
    # the preliminary list and not in the final one.
    argv += ["-max_hsps", "1", "-html", "-num_descriptions", str(2 * limit), "-num_alignments", "0"]
    return tuple(argv)


def _finish(use: ToolUse) -> tuple[Token, ...]:
    """The user's own arguments with the place of the database marked, which heeds a list of entries itself."""
    argv: list[Token] = [use.argv[0]]
    for name, tokens in _by_option(use.argv[1:]):
        if name in lists.OPTIONS:
            continue
        if name != "db":
            argv += tokens
        elif len(tokens) == 1:
            argv.append(DatabaseArg(prefix="-db="))
        else:
            argv += [tokens[0], DatabaseArg()]
    return tuple(argv)


def _by_option(arguments: Sequence[Token]) -> Iterator[tuple[str, tuple[Token, ...]]]:
    """Each option by its name, with all its tokens: itself and, unless that stands behind ``=``, its value."""
    texts = [token if isinstance(token, str) else getattr(token, "prefix", "") for token in arguments]
    for word in scan(texts, OPTIONS, "BLAST", first=0):
        yield word.name, tuple(arguments[word.at : max(word.at, word.value_at if word.values else 0) + 1])
