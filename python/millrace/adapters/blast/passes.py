"""Rules for batches by BLAST's passes over the database: which queries share a pass, and whether the output shows it.

BLAST reads queries until a pass is full, concatenates them and searches them together. ``docs/exactness-blast.md`` has
the consequences and their tests. Where the output depends on them and passes are known, batches are whole passes.
blastn alone sizes its passes by the hits found so far (``CBatchSizeMixer``), so their ends are not known: a blastn
command whose output may depend on them is refused.

Sizes of passes and chunks: ``millrace.adapters.blast.query_sizes``.

Sources, of the NCBI C++ Toolkit: ``blastn_app.cpp``, ``na_ungapped.c``, ``blast_parameters.c``, ``blast_stat.c``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from millrace import _core
from millrace.adapters.blast import entry_lists, query_sizes
from millrace.adapters.blast.database import NotInFragmentsError, read_database
from millrace.adapters.blast.query_sizes import PASS_VARIABLE, find_chunk_variable, read_environ_size, read_query_sizes
from millrace.adapters.blast.search_path import SearchPath
from millrace.core.errors import RefusedError
from millrace.core.tool_use import UserCommand

#: The output format with one archive a pass.
ARCHIVE = 11

#: Programs whose results for a query depend on the other queries of its pass.
_TOGETHER = frozenset({"blastx", "tblastn", "tblastx", "rpsblast", "rpstblastn"})

#: Least residues of the first pass of blastn; most residues of any pass, before its last record, by task.
_MIN_FIRST_PASS_RESIDUES = 5_000
_MAX_PASS_RESIDUES = {"megablast": 4_999_000, "dc-megablast": 4_999_000}
_MAX_PASS_RESIDUES_OF_OTHERS = 999_000

#: A pass of twice the chunk size, less the overlap of 100, is cut into chunks: these residues more than a full pass.
_TO_CUT = 1_800

#: Word sizes and (reward, penalty) of the tasks of blastn. rmblastn scores by a matrix, without the rough extension.
_WORDS = {"megablast": 28, "blastn": 11, "blastn-short": 7, "dc-megablast": 11}
_SCORES = {"megablast": (1, -2), "blastn-short": (1, -3)}
_USUAL_SCORES = (2, -3)

#: Bits that an extension without gaps must have (``BLAST_GAP_TRIGGER_NUCL``), and the part of them that the rough
#: extension must reach before the exact one is done.
_TRIGGER_BITS = 27
_ROUGH_PART = 0.8

#: Words shorter than this are extended exactly, without the rough extension.
_WORD_EXTENDED_ROUGHLY = 11

#: With the lambda of ungapped scores and this K, E-values are never above those of gapped scores, for all pairs of
#: reward and penalty in ``blast_stat.c`` and the scores concerned.
_MIN_K = 0.35

#: BLAST subtracts about this many letters, times the logarithm of the search space, from both lengths: the maximum over
#: all gap costs for the usual scores, and over all scores.
_TAKEN_OFF = 3.1
_TAKEN_OFF_MOST = 14.0


class QueryLengths(NamedTuple):
    """Numbers and residues of the queries in a file."""

    records: int
    total: int
    #: Residues of the shortest query that has any; 0: none has.
    shortest: int
    longest: int


class PassRules(NamedTuple):
    """Rules that the batches of a command have to follow."""

    #: Residues of a full pass, if batches must be whole passes, else 0; see ``millrace.core.tool_use.InputUse.pass_residues``.
    residues: int = 0
    #: See ``millrace.core.tool_use.InputUse.too_long``.
    too_long: int = 0
    note: str = ""
    #: Letters one of which makes a batch searchable, so that its output has the usual form; empty: any residue does.
    searched: str = ""
    #: Whether the run stops before a record without such a letter.
    stops_without: bool = False


def measure_queries(path: Path) -> QueryLengths | None:
    """Count all queries of a file; None if it is a pipe, or cannot be read, which BLAST reports itself."""
    if not path.is_file():
        return None  # reading a pipe would leave nothing to the run
    try:
        whole = _core.Reader([path], "fasta").skip(1 << 62)
    except (OSError, ValueError, _core.RecordError):
        return None
    return QueryLengths(whole.records, whole.cost, whole.smallest, whole.largest) if whole else QueryLengths(0, 0, 0, 0)


def find_pass_rules(
    program: str, options: dict[str, str], fmt: int, queries: Path | None, command: UserCommand
) -> PassRules:
    """Find the rules that the batches of a command have to follow.

    Args:
        fmt: Number of the output format; ``-outfmt 11`` has one archive a pass.
        queries: A file that can be read twice, or None.

    Raises:
        RefusedError: The output depends on the ends of passes, which are not known.
    """
    found = (_find_blastn_rules if program == "blastn" else _find_fixed_rules)(program, options, fmt, queries, command)
    if found.residues:
        for name, there in (
            ("-query_loc", "query_loc" in options),
            ("-mt_mode 1", options.get("mt_mode", "0") != "0"),
        ):
            if there:
                raise RefusedError(
                    f"{program} with {name} cannot be joined exactly: it changes which queries share a pass",
                    f"leave {name} out",
                )
    return found


def _find_fixed_rules(
    program: str, options: dict[str, str], fmt: int, queries: Path | None, command: UserCommand
) -> PassRules:
    """Find the rules of a program whose passes have a known size.

    Sums of hits (translated or without gaps) are judged by the mean length of the queries of a pass; rpsblast prints
    the statistics of the query that the pass searched last; and a long pass is cut into chunks.
    """
    sizes = read_query_sizes(program, command.environ)
    together = fmt == ARCHIVE or program in _TOGETHER or "ungapped" in options or has_summed_hits(options)
    if not together and program == "blastp":
        lengths = measure_queries(queries) if queries else None
        together = (
            lengths is None or sizes.may_cut_pass(lengths.longest) or _is_unsearchable_shown(queries, options, fmt)
        )
    if not together or sizes.pass_residues == 0:
        return PassRules()
    return PassRules(
        sizes.pass_residues,
        0,
        f"results of {program} depend on which queries share a pass: batches are whole passes of {sizes.pass_residues}",
    )


def _is_unsearchable_shown(queries: Path | None, options: dict[str, str], fmt: int) -> bool:
    """Tell whether a pass without anything that blastp can search is possible and written in another form."""
    letters = query_sizes.find_searched_letters("blastp", options)
    return fmt in query_sizes.SHOWN_IN and (not queries or query_sizes.count_unsearchable(queries, letters) > 0)


def _find_blastn_rules(
    program: str, options: dict[str, str], fmt: int, queries: Path | None, command: UserCommand
) -> PassRules:
    lengths = measure_queries(queries) if queries else None
    if lengths and lengths.records < 2:
        return PassRules()
    fixed, cut = read_environ_size(PASS_VARIABLE, command.environ, 0), find_chunk_variable(command.environ)
    why = _find_pass_refusal(options, fmt, lengths, command) or _find_unsearchable_refusal(
        options, fmt, queries, lengths
    )
    searched = query_sizes.find_searched_letters(program, options) or ""
    stops = fmt in query_sizes.SHOWN_IN and lengths is None
    longest = _MAX_PASS_RESIDUES.get(_get_task(options), _MAX_PASS_RESIDUES_OF_OTHERS)
    too_long = longest + _TO_CUT
    if not (why or cut) and lengths and lengths.longest < too_long:
        return PassRules(searched=searched)
    if fixed:
        return PassRules(fixed, 0, f"{PASS_VARIABLE}={fixed}: batches are whole passes of {fixed} residues")
    if cut:
        raise RefusedError(
            f"the environment variable {cut} changes the passes of blastn, which it sizes by the hits found so far",
            f"unset {cut}, {_format_pass_hint()}",
        )
    if lengths and lengths.total <= _MIN_FIRST_PASS_RESIDUES:
        return PassRules(_MIN_FIRST_PASS_RESIDUES, 0, "so few residues are one pass of blastn")
    if why:
        raise why
    if lengths is None:
        note = f"records of {too_long:,} residues or more are not taken from a pipe"
        return PassRules(0, too_long, note, searched, stops)
    assert queries is not None
    if stray := _find_stray_record(queries, longest, too_long):
        raise RefusedError(
            f"record {stray} of {queries.name} has {too_long:,} residues or more and follows shorter ones: BLAST cuts "
            "such a pass into chunks, and which queries are in it depends on the hits found so far",
            f"put the longest records first, {_format_pass_hint()}",
        )
    note = f"records of {too_long:,} residues or more: batches are whole passes of {longest:,}"
    return PassRules(longest, 0, note, searched)


def may_cut_queries(
    program: str, options: dict[str, str], lengths: QueryLengths | None, environ: Mapping[str, str]
) -> bool:
    """Tell whether BLAST may cut a pass of these queries into chunks.

    Unknown queries (``read_lengths`` is None) count as short, unless the environment sets the size of chunks.
    """
    if find_chunk_variable(environ):
        return program not in ("blastx", "tblastx")
    if lengths is None:
        return False
    if program == "blastn":
        return lengths.longest >= _MAX_PASS_RESIDUES.get(_get_task(options), _MAX_PASS_RESIDUES_OF_OTHERS) + _TO_CUT
    return read_query_sizes(program, environ).may_cut_pass(lengths.longest)


def _get_task(options: dict[str, str]) -> str:
    return options.get("task", "megablast")


def _format_pass_hint() -> str:
    return f"or set {PASS_VARIABLE}=100000 in the environment: BLAST's own variable for the residues of a pass"


def _find_unsearchable_refusal(
    options: dict[str, str], fmt: int, queries: Path | None, lengths: QueryLengths | None
) -> RefusedError | None:
    """Return the refusal of queries without anything to search that may fill a pass by themselves; None: none may."""
    letters = query_sizes.find_searched_letters("blastn", options)
    instead = f"use -outfmt 6, which says nothing of such queries, or take them out, {_format_pass_hint()}"
    if fmt not in query_sizes.SHOWN_IN:
        return None
    if letters is None and not (queries and lengths):
        return RefusedError(
            f"blastn -soft_masking false -outfmt {fmt} cannot be joined exactly from a pipe: a query that is masked as a whole is "
            "written otherwise if all of its pass is, and which queries share a pass is not known",
            instead,
        )
    if not (queries and lengths):
        return None
    if not (number := query_sizes.find_first_uncertain(queries, letters, _MIN_FIRST_PASS_RESIDUES)):
        return None
    return RefusedError(
        f"{queries.name}: there {'may be' if letters is None else 'is'} nothing to search in record {number}, nor in those up to "
        f"the end or {_MIN_FIRST_PASS_RESIDUES:,} residues further: -outfmt {fmt} writes such queries otherwise if they are all of a pass, and "
        "blastn sizes its passes by the hits found so far",
        instead,
    )


def _find_pass_refusal(
    options: dict[str, str], fmt: int, lengths: QueryLengths | None, command: UserCommand
) -> RefusedError | None:
    """Return the refusal of a command whose output depends on which queries share a pass, whatever their lengths."""
    for what, there in (
        ("-outfmt 11", fmt == ARCHIVE),
        ("-ungapped", "ungapped" in options),
        ("-sum_stats true", has_summed_hits(options)),
    ):
        if there:
            return RefusedError(
                f"blastn {what} cannot be joined exactly: it depends on which queries share a pass over the "
                "database, and blastn sizes its passes by the hits found so far",
                f"{'use -outfmt 5' if fmt == ARCHIVE else f'leave {what} out'}, {_format_pass_hint()}",
            )
    scores = _read_scores(options)
    score = _compute_doubtful_score(options, *scores)
    if not score:
        return None
    least = _estimate_least_evalue(score, scores, _estimate_search_space(options, scores, lengths, command))
    evalue = _read_number(options, "evalue", 10.0)
    if least > evalue:
        return None
    return RefusedError(
        f"blastn -task {_get_task(options)} cannot be joined exactly with -evalue {evalue:g}: whether it finds a match that "
        f"scores up to {score} at the first letters of a query depends on the query before or behind it, and for the "
        f"shortest query here{'' if lengths else ' (not known: it comes from a pipe)'} such a match may have an E-value "
        f"of {least:.2g}",
        f"use -evalue {_round_below(least)} or less, or -task megablast, {_format_pass_hint()}",
    )


def has_summed_hits(options: dict[str, str]) -> bool:
    """Tell whether the user asks for sums of hits, which the program does not compute by default."""
    return options.get("sum_stats", "false").lower() not in ("false", "f", "0", "no", "n")


def _read_scores(options: dict[str, str]) -> tuple[int, int]:
    """Return reward and penalty."""
    reward, penalty = _SCORES.get(_get_task(options), _USUAL_SCORES)
    return _read_integer(options, "reward", reward), _read_integer(options, "penalty", penalty)


def _compute_doubtful_score(options: dict[str, str], reward: int, penalty: int) -> int:
    """Return the highest score of a match whose finding depends on the neighbouring queries; 0: none does.

    A word is first extended four letters at a time, as the subject is packed, beyond the end of the query into the next
    one. It is extended exactly only if that reaches 0.8 of the required score. Within the query the rough score is
    lower than the exact one by the letters that do not fill a step: three at the end of the query, and the costliest at
    the other end.
    """
    task = _get_task(options)
    word = _read_integer(options, "word_size", _WORDS.get(task, 0))
    spaced = task == "dc-megablast" or "template_length" in options
    if task == "rmblastn" or (word < _WORD_EXTENDED_ROUGHLY and not spaced) or reward < 1 or penalty > -1:
        return 0
    wanted = int(_ROUGH_PART * int(_TRIGGER_BITS * math.log(2) / _solve_lambda(reward, penalty)))
    if not spaced and 4 * reward * ((word - 3) // 4) >= wanted:
        return 0  # the whole steps in the word are enough
    other_end = max(min(letters * reward, (4 - letters) * -penalty) for letters in (1, 2, 3))
    return wanted + 3 * reward + other_end - 1


def _solve_lambda(reward: int, penalty: int) -> float:
    """Compute lambda of scores without gaps: the root of ``exp(x reward) + 3 exp(x penalty) = 4``."""
    low, high = 0.0, 2.0 / reward
    for _ in range(60):
        middle = (low + high) / 2
        if 0.25 * math.exp(middle * reward) + 0.75 * math.exp(middle * penalty) > 1:
            high = middle
        else:
            low = middle
    return low


def _estimate_search_space(
    options: dict[str, str], scores: tuple[int, int], lengths: QueryLengths | None, command: UserCommand
) -> float:
    """Return a lower bound of the search space: letters of the shortest query times letters of the database."""
    space = _read_integer(options, "searchsp", 0)
    if space > 0:
        return space
    query = lengths.shortest if lengths and "query_loc" not in options else 1
    entries, letters = _count_database(options, command)
    letters = _read_integer(options, "dbsize", 0) or letters
    off = (_TAKEN_OFF if scores == _USUAL_SCORES else _TAKEN_OFF_MOST) * math.log(max(query * letters, 2))
    return max(max(query - off, 0) * max(letters - entries * off, 0), query, letters)


def _count_database(options: dict[str, str], command: UserCommand) -> tuple[int, int]:
    """Return the entries and letters of the database that go into the statistics; (1, 1): not known."""
    try:
        database = read_database(options["db"], "n", SearchPath(command))
        names = [name for name in entry_lists.OPTIONS if name in options]
        if names:
            listed = entry_lists.read_entry_list(names[0], options, database, command)
            return listed.entries, listed.residues
    except (KeyError, NotInFragmentsError, RefusedError, OSError):
        return 1, 1
    return database.counted


def _estimate_least_evalue(score: int, scores: tuple[int, int], space: float) -> float:
    return _MIN_K * space * math.exp(-_solve_lambda(*scores) * score)


def _round_below(number: float) -> str:
    """Round down to a smaller number of one digit, as a user would write it."""
    power = math.floor(math.log10(number * 0.999))
    return f"{math.floor(number * 0.999 / 10**power + 1e-9) * 10.0**power:.0g}"


def _read_number(options: dict[str, str], name: str, default: float) -> float:
    try:
        return float(options[name])
    except (KeyError, ValueError):
        return default  # not given, or BLAST says what is wrong


def _read_integer(options: dict[str, str], name: str, default: int) -> int:
    try:
        return int(options[name])
    except (KeyError, ValueError):
        return default  # as above


def _find_stray_record(queries: Path, longest: int, too_long: int) -> int:
    """Return the 1-based number of the first record of ``too_long`` residues that does not begin a pass; 0: none.

    A record of at least ``longest`` residues ends any pass, so the next record begins one.
    """
    ended = True
    for number, residues in enumerate(_read_residues(queries), 1):
        if residues >= too_long and not ended:
            return number
        ended = residues >= longest
    return 0


def _read_residues(queries: Path) -> Iterator[int]:
    reader = _core.Reader([queries], "fasta")
    while record := reader.skip(1):
        yield record.cost
