"""The searches that a command becomes: of a fragment, of what was found in all of them, and of how that is ranked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from millrace.model import DatabaseArg, OutputArg, Token, ToolUse
from millrace.tools.blast import lists
from millrace.tools.blast.options import OPTIONS
from millrace.tools.options import scan, words

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

#: The larger X-dropoff is that of the final alignment, so that it finds what the preliminary one did.
_XDROP_FINAL = 100


def of_ranks(use: ToolUse, most: str) -> tuple[Token, ...]:
    """The user's own search of some candidates, of which only the list of hits is written."""
    argv: list[Token] = [use.argv[0]]
    for name, tokens in _by_option(use.argv[1:]):
        if name not in _WRITTEN | _DROPPED_LATE:
            argv += tokens
    argv += ["-db", DatabaseArg(), "-out", OutputArg(index=0)]
    return (*argv, "-html", "-num_descriptions", most, "-num_alignments", "0")


def of_fragment(
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


def of_candidates(use: ToolUse) -> tuple[Token, ...]:
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
