"""Searches of BLAST in fragments of the database.

*Exactness.* BLAST keeps a list of the best subjects of a query by their preliminary scores, then aligns these again and
writes them. So each fragment is searched for more subjects than that list can hold, with the statistics of the whole
database. Then BLAST searches these candidates with the user's own options: the list is the same, and so is the output.
``docs/exactness-fragments.md`` has the argument, its sources and the refusals.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec.structs import replace

from millrace.errors import RefusedError
from millrace.model import BlastDatabase, DatabaseFragment, FragmentPlan, OutputUse, RankColumns, ToolUse, UserCommand
from millrace.tools.base import DatabaseFacts, is_still_growing
from millrace.tools.blast import fetched, lists, searches
from millrace.tools.blast.database import NotInFragmentsError, SearchedDatabase, read_database
from millrace.tools.blast.lists import ListedEntries
from millrace.tools.blast.passes import may_cut_queries, measure_queries
from millrace.tools.blast.queries import find_query
from millrace.tools.blast.search_path import SearchPath, split_names
from millrace.tools.blast.thresholds import choose_threshold, parse_evalue
from millrace.tools.blast.volumes import cut_volumes, list_volume_runs
from millrace.tools.options import split_words

#: Letter of the database of each program that is searched in fragments.
_LETTERS = {"blastp": "p", "blastx": "p", "psiblast": "p", "blastn": "n", "tblastn": "n", "tblastx": "n"}

#: See ``DatabaseFacts.least``: about a second of 2.12 on one core; of blastn, for task megablast and for the others.
_MIN_CELLS = {"blastp": 2e10, "psiblast": 2e10, "blastx": 4e10, "tblastn": 1e11, "tblastx": 3.5e10, "blastn": 1.2e12}
_MIN_CELLS_MEGABLAST = 7e12

#: See ``DatabaseFacts.work``: measured 1.1 to 1.3 with ``-evalue 1e-5``, and without it up to these where nearly all
#: queries have hundreds of hits (tblastn and tblastx 1.9).
_WORK = {"blastx": 1.3, "tblastn": 1.6, "tblastx": 1.6, "blastn": 1.6}

#: Options with which a database is not searched in fragments.
_REFUSED = {
    "subject": "-subject is not a database",
    **dict.fromkeys(split_words("use_index index_name"), "the index belongs to the whole database"),
    **dict.fromkeys(split_words("ipglist negative_ipglist"), "which entries it leaves is not known"),
    "entrez_query": "it is for searches at NCBI",
}

#: Columns that identify a subject.
_SUBJECT = ("saccver", "sseqid", "sacc", "sallseqid", "sallacc")

#: Programs that rank subjects by E-values, which depend on the subject's length and composition, not on the bits alone.
#: Not blastx, whose first row of a subject is not always the best.
_BY_EVALUE = ("blastp", "tblastn")

#: Options with which subjects are not ordered and chosen by their own best scores.
_RANKED_OTHERWISE = frozenset(
    split_words("""
    culling_limit best_hit_overhang best_hit_score_edge sorthits sorthsps ungapped sum_stats num_descriptions num_alignments
""")
)

#: Least value of ``_choose_limit``: with fewer subjects of a query, a fragment's list is certain to have them all.
_MIN_SUBJECT_LIMIT = 5000


def examine_database(program: str, options: dict[str, str], command: UserCommand) -> DatabaseFacts:
    """Measure the database of a command, or say why it is not searched in fragments."""
    try:
        database = _read_fragmentable(program, options, command)
        listed = _read_listed(options, database, command)
        size = database.sequence_bytes
        _refuse_chunks(program, options, command)
    except (NotInFragmentsError, RefusedError, OSError) as why:
        # Not a reason to refuse the command: BLAST may read a database that we cannot.
        return DatabaseFacts(why_not=str(why))
    is_megablast = program == "blastn" and options.get("task", "megablast") == "megablast"
    found = DatabaseFacts(
        entries=database.entries, residues=database.residues, bytes=size,
        least=_MIN_CELLS_MEGABLAST if is_megablast else _MIN_CELLS[program], work=_WORK.get(program, 1.0),
    )  # fmt: skip
    if listed:
        size = size * listed.residues // database.residues
        return replace(found, entries=listed.entries, residues=listed.residues, bytes=size)
    return found


def _refuse_chunks(program: str, options: dict[str, str], command: UserCommand) -> None:
    """Refuse fragments where BLAST may cut a pass into chunks: the rows of a subject then depend on the database.

    Raises:
        NotInFragments: A pass may be cut into chunks.
    """
    query = find_query(command, options)
    lengths = None if query == "-" or is_still_growing(query, command) else measure_queries(command.cwd / query)
    if may_cut_queries(program, options, lengths, command.environ):
        raise NotInFragmentsError(
            "BLAST cuts queries of this length into chunks, of which it may find more or less in fragments"
        )


def plan_fragments(
    use: ToolUse,
    program: str,
    options: dict[str, str],
    command: UserCommand,
    sizes: Sequence[int],
    columns: Sequence[str],
) -> FragmentPlan:
    """Cut the database into fragments; see ``millrace.tools.blast.volumes.cut_volumes``.

    Args:
        sizes: Relative sizes of the fragments. Empty: its volumes are the fragments, and their files are fetched later.
        columns: Columns of the output, if it is a table separated by tabs; else empty.
    """
    database = _read_fragmentable(program, options, command)
    listed = _read_listed(options, database, command)
    counted = (listed.entries, listed.residues) if listed else database.counted
    limit = _choose_limit(options)
    argv = searches.build_fragment_arguments(
        use, program, options, limit, choose_threshold(program, options, counted[1], command.environ)
    )
    runs = list_volume_runs(database.volumes)
    if sizes:
        runs = listed.cut_runs(sizes) if listed else cut_volumes(database.volumes, sizes)
    carried = () if sizes else tuple(fetched.pack_carried_files(database, command))
    return FragmentPlan(
        volumes=() if sizes else fetched.group_later_files(database, command),
        indices=() if sizes else tuple(fetched.build_indices(database, command, {each.name for each in carried})),
        carried=carried,
        fragments=tuple(DatabaseFragment(first=first, last=last, size=size, argv=argv) for first, last, size in runs),
        found=OutputUse(name="found", path="found"),
        finish=searches.build_candidate_arguments(use),
        database=options["db"],
        divisible=True,
        ranked=_choose_ranking(use, program, options, columns),
        about=BlastDatabase(
            letter=database.letter,
            databases=tuple(str(base) for base in database.bases),
            title=database.title,
            entries=database.entries,
            residues=database.residues,
            counted=counted,
            volumes=tuple((str(volume.base), volume.entries) for volume in database.volumes),
            limit=limit,
            listed=lists.pack_ranges(listed.runs) if listed else "",
            shortest=listed.shortest if listed else 0,
        ),
    )


def _read_fragmentable(program: str, options: dict[str, str], command: UserCommand) -> SearchedDatabase:
    letter = _LETTERS.get(program)
    if letter is None:
        raise NotInFragmentsError(f"{program} in fragments was not compared with serial runs")
    if options.get("num_threads", "1") != "1":
        raise NotInFragmentsError(
            "-num_threads: what two threads of BLAST find among few entries was seen to differ from run to run; "
            "leave it out, every core gets a fragment of its own"
        )
    if options.get("num_iterations", "1") != "1":
        raise NotInFragmentsError("a second iteration searches with what the first found in all fragments")
    parse_evalue(options)
    for name, why in _REFUSED.items():
        if name in options:
            raise NotInFragmentsError(f"-{name}: {why}")
    several = [name for name in lists.OPTIONS if name in options]
    if len(several) > 1:
        raise NotInFragmentsError(f"-{several[1]}: BLAST takes one list")
    if several and (program == "tblastx" or "ungapped" in options):
        raise NotInFragmentsError(
            f"-{several[0]}: without gaps the mean length of the entries counts, which no alias can say"
        )
    if _get_format_number(options) == 11:
        raise NotInFragmentsError("-outfmt 11 breaks long lines, in which the name of the database stands")
    database = read_database(options["db"], letter, SearchPath(command))
    if len(split_names(options["db"])) > 1 and _get_format_number(options) == 0:
        raise NotInFragmentsError(
            "-outfmt 0 tells the databases of one -db apart: name them in one alias (blastdb_aliastool)"
        )
    if command.view and command.view.later:
        fetched.check_volumes(options["db"], database, command)
    return database


def _read_listed(options: dict[str, str], database: SearchedDatabase, command: UserCommand) -> ListedEntries | None:
    """Read which entries of the database an option selects; None: there is no such option."""
    names = [name for name in lists.OPTIONS if name in options]
    if names and command.view and command.view.later:
        raise NotInFragmentsError(f"-{names[0]}: what it leaves of a database is not known before all of it is here")
    return lists.read_entry_list(names[0], options, database, command) if names else None


def _get_format_number(options: dict[str, str]) -> int:
    return int(options.get("outfmt", "0").split()[0])


def _choose_limit(options: dict[str, str]) -> int:
    """Return the number of subjects at which a fragment's list may be cut off; more than BLAST keeps of a query."""
    kept = [options[name] for name in ("max_target_seqs", "num_descriptions", "num_alignments") if name in options]
    most = max([500, *(int(text) for text in kept if re.fullmatch(r"\d{1,9}", text))])
    return max(_MIN_SUBJECT_LIMIT, 2 * most + 50)


def _choose_ranking(use: ToolUse, program: str, options: dict[str, str], columns: Sequence[str]) -> RankColumns | None:
    """Choose how subjects are ranked: by the bits of the best alignment (blastn), or its E-value; None: not at all."""
    subject = next((column for column in _SUBJECT if column in columns), None)
    most = options.get("max_target_seqs", "")
    by_evalue = program in _BY_EVALUE
    needed = {"bitscore", "evalue"} if by_evalue else {"bitscore"}
    if (
        not (by_evalue or program == "blastn") or not subject or not needed <= {*columns}
        or not re.fullmatch(r"\d{1,9}", most) or int(most) < _MIN_SUBJECT_LIMIT or not _RANKED_OTHERWISE.isdisjoint(options) or [output.join for output in use.outputs] != ["concat"]
    ):  # fmt: skip
        return None
    return RankColumns(
        subject=columns.index(subject), bits=columns.index("bitscore"),
        evalue=columns.index("evalue") if by_evalue else None, most=int(most),
        argv=searches.build_rank_arguments(use, most) if by_evalue else (),
    )  # fmt: skip
