"""Arguments of the searches made from a command: of a fragment, of the candidates, and of the candidates' ranks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from millrace.model import ArgumentToken, DatabaseArg, OutputArg, ToolUse
from millrace.tools.blast import lists
from millrace.tools.blast.options import OPTIONS
from millrace.tools.options import scan_options, split_words

#: Options for the form or length of the output.
_WRITTEN = split_words("""
    outfmt out num_descriptions num_alignments max_target_seqs html show_gis sorthits sorthsps line_length db
""") | frozenset((*lists.OPTIONS, lists.EXACT_TAXA))

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
        if name in lists.OPTIONS:
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
