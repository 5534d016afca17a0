"""Searches of BLAST in fragments of the database: their number of subjects, thresholds and arguments.

*Exactness.* BLAST keeps a list of the best subjects of a query by their preliminary scores, then aligns these again
and writes them. So each fragment is searched for more subjects than that list can hold, with the statistics of the
whole database, and with an E-value threshold so wide that no hit is missing that the whole search would rank. Then
BLAST searches these candidates with the user's own options: the list is the same, and so is the output.
``docs/exactness-fragments.md`` has the argument, its sources and the refusals.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from millrace.adapters.adapter_base import DatabaseFacts, is_still_growing
from millrace.adapters.blast import entry_lists, volume_files
from millrace.adapters.blast.command_line import OPTIONS, find_query
from millrace.adapters.blast.database import NotInFragmentsError, SearchedDatabase, read_database
from millrace.adapters.blast.entry_lists import ListedEntries
from millrace.adapters.blast.passes import may_cut_queries, measure_queries
from millrace.adapters.blast.search_path import SearchPath, split_names
from millrace.adapters.blast.volumes import cut_volumes, list_volume_runs
from millrace.adapters.option_reader import scan_options, split_words
from millrace.core.entry_ranges import pack_ranges
from millrace.core.errors import RefusedError
from millrace.core.tool_use import (
    ArgumentToken,
    BlastDatabase,
    DatabaseArg,
    DatabaseFragment,
    FetchedFile,
    FragmentPlan,
    OutputArg,
    OutputUse,
    RankColumns,
    ToolUse,
    UserCommand,
)

#: Default E-values of tasks; 10 for all others.
_EVALUES = {"blastp-short": 20000.0, "blastn-short": 1000.0}

#: Multiple of the user's E-value at which a fragment is searched. A preliminary E-value may be 5 times the final one
#: with composition-based statistics (``EVALUE_STRETCH``); ambiguous bases and sums of hits change it further.
_STRETCH = {"blastp": 10.0, "psiblast": 10.0}
_STRETCH_MOVED = 100.0

#: Up to this E-value blastp first aligns with gaps in restricted places only (``RESTRICTED_ALIGNMENT_WORST_EVALUE``),
#: and the hits then depend on the limit; above, it aligns fully, and a subject's score is never lower.
_RESTRICTED = 10.0
_MIN_EVALUE = 20.0

#: Multiple of the user's E-value that the preliminary stage of blastp allows in composition modes 2 and 3; and the
#: divisor of the size that a fragment's search is given for the database where that multiple is above ``_RESTRICTED``.
_PRELIMINARY, _SMALLER = 5, 6

#: First letters of values that mean these modes; any other than these and 1 means none
#: (``s_SetCompositionBasedStats``).
_ADJUSTED = frozenset("23DdTt")

#: Factor that raises a limit by less than any difference of E-values, and by more than the rounding error.
_ABOVE_ROUNDING = 1 + 1e-12

#: Options with which E-values do not depend on the size of the database as usual.
_OTHER_STATISTICS = frozenset(("dbsize", "searchsp", "ungapped"))


def parse_evalue(options: dict[str, str]) -> float:
    """Return the user's E-value, or the task's default.

    Raises:
        NotInFragmentsError: It is not a number.
    """
    text = options.get("evalue", str(_EVALUES.get(options.get("task", ""), 10.0)))
    try:
        return float(text)
    except ValueError:
        raise NotInFragmentsError(f"-evalue {text} is not a number") from None


def compute_deep_limit(program: str, options: dict[str, str]) -> float:
    """Compute the E-value up to which a fragment is searched so that no hit is missing, all hits being aligned fully.

    Raises:
        NotInFragmentsError: The user's E-value is not a number.
    """
    return max(parse_evalue(options) * _STRETCH.get(program, _STRETCH_MOVED), _MIN_EVALUE)


def choose_threshold(program: str, options: dict[str, str], residues: int, environ: Mapping[str, str]) -> list[str]:
    """Choose the options that limit the E-values of a fragment's hits, without composition-based statistics.

    Where blastp aligns with restricted gaps, a fragment gets exactly the limit of the preliminary stage of the user's
    search, so that this stage finds the same. Mostly the limit is 5 times 10, above ``_RESTRICTED``: the fragment is
    then given a sixth of the database's size, with which E-values are a sixth (``BLAST_SpougeStoE``).

    Args:
        residues: Residues of the whole database.
        environ: The user's environment, in which BLAST reads ``OLD_FSC``.

    Raises:
        NotInFragmentsError: The user's E-value is not a number.
    """
    evalue = parse_evalue(options)
    if (
        program != "blastp" or not 0 < evalue <= _RESTRICTED or not _OTHER_STATISTICS.isdisjoint(options)
        or "OLD_FSC" in environ or residues < _SMALLER
    ):  # fmt: skip
        return ["-evalue", repr(compute_deep_limit(program, options))]
    limit = _PRELIMINARY * evalue if options.get("comp_based_stats", "2")[:1] in _ADJUSTED else evalue
    if limit <= _RESTRICTED:
        return ["-evalue", repr(limit)]
    size = residues // _SMALLER
    return ["-evalue", repr(limit * size / residues * _ABOVE_ROUNDING), "-dbsize", str(size)]


#: Options for the form or length of the output.
_WRITTEN = split_words("""
    outfmt out num_descriptions num_alignments max_target_seqs html show_gis sorthits sorthsps line_length db
""") | frozenset((*entry_lists.OPTIONS, entry_lists.EXACT_TAXA))

#: Options that are left out of the search of a fragment: those for the output, and those that choose among the subjects
#: or hits of the preliminary search.
_OWN = _WRITTEN | split_words("""
    max_hsps evalue comp_based_stats use_sw_tback qcov_hsp_perc perc_identity xdrop_gap_final culling_limit
    best_hit_overhang best_hit_score_edge subject_besthit
""")

#: Options that may drop the best alignment of a subject after subjects are ordered: neither rows nor the list of hits
#: then show its place.
_DROPPED_LATE = frozenset({"qcov_hsp_perc"})

#: Least final X-dropoff: it is larger than the preliminary one, so that the final alignment finds the same hits.
_XDROP_FINAL = 100


def build_rank_arguments(use: ToolUse, most: str) -> tuple[ArgumentToken, ...]:
    """Build the arguments of the user's own search of some candidates, with only the list of hits as output."""
    argv: list[ArgumentToken] = [use.argv[0]]
    for name, tokens in _group_by_option(use.argv[1:]):
        if name not in _WRITTEN | _DROPPED_LATE:
            argv += tokens
    argv += ["-db", DatabaseArg(), "-out", OutputArg(index=0)]
    return (*argv, "-html", "-num_descriptions", most, "-num_alignments", "0")


def build_fragment_arguments(
    use: ToolUse, program: str, options: dict[str, str], limit: int, threshold: Sequence[str]
) -> tuple[ArgumentToken, ...]:
    """Build the arguments of the search of a fragment, whose output only names the entries that it finds."""
    argv: list[ArgumentToken] = [use.argv[0]]
    for name, tokens in _group_by_option(use.argv[1:]):
        if name not in _OWN:
            argv += tokens
    argv += ["-db", DatabaseArg(), *threshold, "-out", OutputArg(index=0)]
    if program not in ("blastn", "tblastx"):
        argv += ["-comp_based_stats", "0"]
    if "xdrop_gap" in options:
        argv += ["-xdrop_gap_final", str(max(_XDROP_FINAL, 2 * float(options["xdrop_gap"])))]
    # One alignment of each subject, chosen after all are made, is enough to name it. Twice the limit: a subject may be
    # in the preliminary list and not in the final one.
    argv += ["-max_hsps", "1", "-html", "-num_descriptions", str(2 * limit), "-num_alignments", "0"]
    return tuple(argv)


def build_candidate_arguments(use: ToolUse) -> tuple[ArgumentToken, ...]:
    """Mark the database in the user's own arguments, without the list of entries, which the database includes."""
    argv: list[ArgumentToken] = [use.argv[0]]
    for name, tokens in _group_by_option(use.argv[1:]):
        if name in entry_lists.OPTIONS:
            continue
        if name != "db":
            argv += tokens
        elif len(tokens) == 1:
            argv.append(DatabaseArg(prefix="-db="))
        else:
            argv += [tokens[0], DatabaseArg()]
    return tuple(argv)


def _group_by_option(arguments: Sequence[ArgumentToken]) -> Iterator[tuple[str, tuple[ArgumentToken, ...]]]:
    """Yield the name and the tokens of each option: itself, and its value unless that stands behind ``=``."""
    texts = [token if isinstance(token, str) else getattr(token, "prefix", "") for token in arguments]
    for word in scan_options(texts, OPTIONS, "BLAST", first=0):
        yield word.name, tuple(arguments[word.at : max(word.at, word.value_at if word.values else 0) + 1])


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
        listed = _read_listed(options, database, command, is_later=bool(command.view and command.view.later))
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
        NotInFragmentsError: A pass may be cut into chunks.
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
    later: Sequence[FetchedFile] = (),
) -> FragmentPlan:
    """Cut the database into fragments; see ``millrace.adapters.blast.volumes.cut_volumes``.

    Args:
        sizes: Relative sizes of the fragments. Empty: its volumes are the fragments, and their files are fetched later.
        columns: Columns of the output, if it is a table separated by tabs; else empty.
        later: The files of the volumes, if these are the fragments.
    """
    database = _read_fragmentable(program, options, command)
    if not sizes:
        volume_files.check_volumes(options["db"], database, later)
    listed = _read_listed(options, database, command, is_later=not sizes)
    counted = (listed.entries, listed.residues) if listed else database.counted
    limit = _choose_limit(options)
    argv = build_fragment_arguments(
        use, program, options, limit, choose_threshold(program, options, counted[1], command.environ)
    )
    runs = list_volume_runs(database.volumes)
    if sizes:
        runs = listed.cut_runs(sizes) if listed else cut_volumes(database.volumes, sizes)
    carried = () if sizes else tuple(volume_files.pack_carried_files(database, command))
    return FragmentPlan(
        volumes=() if sizes else volume_files.group_later_files(database, later),
        indices=() if sizes else tuple(volume_files.build_indices(database, command, {each.name for each in carried})),
        carried=carried,
        fragments=tuple(DatabaseFragment(first=first, last=last, size=size, argv=argv) for first, last, size in runs),
        found=OutputUse(name="found", path="found"),
        finish=build_candidate_arguments(use),
        database=options["db"],
        divisible=True,
        ranked=_choose_ranking(use, program, options, columns),
        about=_describe_database(database, counted, limit, listed),
    )


def _describe_database(
    database: SearchedDatabase, counted: tuple[int, int], limit: int, listed: ListedEntries | None
) -> BlastDatabase:
    return BlastDatabase(
        letter=database.letter,
        databases=tuple(str(base) for base in database.bases),
        title=database.title,
        entries=database.entries,
        residues=database.residues,
        counted=counted,
        volumes=tuple((str(volume.base), volume.entries) for volume in database.volumes),
        limit=limit,
        listed=pack_ranges(listed.runs) if listed else "",
        shortest=listed.shortest if listed else 0,
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
    several = [name for name in entry_lists.OPTIONS if name in options]
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
        volume_files.check_volumes(options["db"], database, command.view.later)
    return database


def _read_listed(
    options: dict[str, str], database: SearchedDatabase, command: UserCommand, *, is_later: bool
) -> ListedEntries | None:
    """Read which entries of the database an option selects; None: there is no such option.

    Args:
        is_later: Whether volumes are fetched later.
    """
    names = [name for name in entry_lists.OPTIONS if name in options]
    if names and is_later:
        raise NotInFragmentsError(f"-{names[0]}: what it leaves of a database is not known before all of it is here")
    return entry_lists.read_entry_list(names[0], options, database, command) if names else None


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
        argv=build_rank_arguments(use, most) if by_evalue else (),
    )  # fmt: skip
