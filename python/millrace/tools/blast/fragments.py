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
from millrace.model import BlastDatabase, Command, Fragment, Fragmented, OutputUse, Ranked, ToolUse
from millrace.tools.base import Fragmentable, grows
from millrace.tools.blast import fetched, lists, searches
from millrace.tools.blast.database import Database, NotInFragments, read_database
from millrace.tools.blast.lists import Listed
from millrace.tools.blast.passes import may_cut, measure
from millrace.tools.blast.queries import query_of
from millrace.tools.blast.search_path import SearchPath, split_names
from millrace.tools.blast.thresholds import evalue_of, threshold
from millrace.tools.blast.volumes import cut, whole_volumes
from millrace.tools.options import words

#: Letter of the database of each program that is searched in fragments.
_LETTERS = {"blastp": "p", "blastx": "p", "psiblast": "p", "blastn": "n", "tblastn": "n", "tblastx": "n"}

#: See ``Fragmentable.least``: about a second of 2.12 on one core; of blastn, for task megablast and for the others.
_LEAST = {"blastp": 2e10, "psiblast": 2e10, "blastx": 4e10, "tblastn": 1e11, "tblastx": 3.5e10, "blastn": 1.2e12}
_LEAST_MEGABLAST = 7e12

#: See ``Fragmentable.work``: measured 1.1 to 1.3 with ``-evalue 1e-5``, and without it up to these where nearly all
#: queries have hundreds of hits (tblastn and tblastx 1.9).
_WORK = {"blastx": 1.3, "tblastn": 1.6, "tblastx": 1.6, "blastn": 1.6}

#: Options with which a database is not searched in fragments.
_REFUSED = {
    "subject": "-subject is not a database",
    **dict.fromkeys(words("use_index index_name"), "the index belongs to the whole database"),
    **dict.fromkeys(words("ipglist negative_ipglist"), "which entries it leaves is not known"),
    "entrez_query": "it is for searches at NCBI",
}

#: Columns that identify a subject.
_SUBJECT = ("saccver", "sseqid", "sacc", "sallseqid", "sallacc")

#: Programs that rank subjects by E-values, which depend on the subject's length and composition, not on the bits alone.
#: Not blastx, whose first row of a subject is not always the best.
_BY_EVALUE = ("blastp", "tblastn")

#: Options with which subjects are not ordered and chosen by their own best scores.
_RANKED_OTHERWISE = frozenset(
    words("""
    culling_limit best_hit_overhang best_hit_score_edge sorthits sorthsps ungapped sum_stats num_descriptions num_alignments
""")
)

#: Least value of ``_limit``: with fewer subjects of a query, a fragment's list is certain to have them all.
_FEWEST = 5000


def fragmentable(program: str, options: dict[str, str], command: Command) -> Fragmentable:
    """Measure the database of a command, or say why it is not searched in fragments."""
    try:
        database = _database(program, options, command)
        listed = _listed(options, database, command)
        size = database.sequence_bytes
        _refuse_chunks(program, options, command)
    except (NotInFragments, RefusedError, OSError) as why:
        # Not a reason to refuse the command: BLAST may read a database that we cannot.
        return Fragmentable(why_not=str(why))
    is_megablast = program == "blastn" and options.get("task", "megablast") == "megablast"
    found = Fragmentable(
        entries=database.entries, residues=database.residues, bytes=size,
        least=_LEAST_MEGABLAST if is_megablast else _LEAST[program], work=_WORK.get(program, 1.0),
    )  # fmt: skip
    if listed:
        size = size * listed.residues // database.residues
        return replace(found, entries=listed.entries, residues=listed.residues, bytes=size)
    return found


def _refuse_chunks(program: str, options: dict[str, str], command: Command) -> None:
    """Refuse fragments where BLAST may cut a pass into chunks: the rows of a subject then depend on the database.

    Raises:
        NotInFragments: A pass may be cut into chunks.
    """
    query = query_of(command, options)
    lengths = None if query == "-" or grows(query, command) else measure(command.cwd / query)
    if may_cut(program, options, lengths, command.environ):
        raise NotInFragments(
            "BLAST cuts queries of this length into chunks, of which it may find more or less in fragments"
        )


def fragment(
    use: ToolUse, program: str, options: dict[str, str], command: Command, sizes: Sequence[int], columns: Sequence[str]
) -> Fragmented:
    """Cut the database into fragments; see ``millrace.tools.blast.volumes.cut``.

    Args:
        sizes: Relative sizes of the fragments. Empty: its volumes are the fragments, and their files are fetched later.
        columns: Columns of the output, if it is a table separated by tabs; else empty.
    """
    database = _database(program, options, command)
    listed = _listed(options, database, command)
    counted = (listed.entries, listed.residues) if listed else database.counted
    limit = _limit(options)
    argv = searches.of_fragment(use, program, options, limit, threshold(program, options, counted[1], command.environ))
    runs = whole_volumes(database.volumes)
    if sizes:
        runs = listed.cut(sizes) if listed else cut(database.volumes, sizes)
    carried = () if sizes else tuple(fetched.carried(database, command))
    return Fragmented(
        volumes=() if sizes else fetched.later(database, command),
        indices=() if sizes else tuple(fetched.indices(database, command, {each.name for each in carried})),
        carried=carried,
        fragments=tuple(Fragment(first=first, last=last, size=size, argv=argv) for first, last, size in runs),
        found=OutputUse(name="found", path="found"),
        finish=searches.of_candidates(use),
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
        fetched.check_volumes(options["db"], database, command)
    return database


def _listed(options: dict[str, str], database: Database, command: Command) -> Listed | None:
    """Read which entries of the database an option selects; None: there is no such option."""
    names = [name for name in lists.OPTIONS if name in options]
    if names and command.view and command.view.later:
        raise NotInFragments(f"-{names[0]}: what it leaves of a database is not known before all of it is here")
    return lists.listed(names[0], options, database, command) if names else None


def _format(options: dict[str, str]) -> int:
    return int(options.get("outfmt", "0").split()[0])


def _limit(options: dict[str, str]) -> int:
    """Return the number of subjects at which a fragment's list may be cut off; more than BLAST keeps of a query."""
    kept = [options[name] for name in ("max_target_seqs", "num_descriptions", "num_alignments") if name in options]
    most = max([500, *(int(text) for text in kept if re.fullmatch(r"\d{1,9}", text))])
    return max(_FEWEST, 2 * most + 50)


def _ranked(use: ToolUse, program: str, options: dict[str, str], columns: Sequence[str]) -> Ranked | None:
    """Choose how subjects are ranked: by the bits of the best alignment (blastn), or its E-value; None: not at all."""
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
        argv=searches.of_ranks(use, most) if by_evalue else (),
    )  # fmt: skip
