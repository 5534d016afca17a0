"""Searches whose candidates are kept, so that a later search of another database need not find them again.

*Exactness.* Which subjects the preliminary stage finds for a query depends on the query, the subject, the options, and
on the size of the database only through the limit of its E-values: the lower the score that this limit lets through,
the more it finds. So candidates are kept with their *depth*, the limit divided by the residues of the database. With
a search of another database that needs no greater depth, all that it could find among the same entries is kept.
Searches that are kept align fully (``MIN_EVALUE``), as what restricted alignments find does not grow with the limit.
``docs/reuse.md`` has the argument, and what is refused.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import chain, pairwise

import msgspec

from millrace import _core
from millrace.adapters.adapter_base import QueryCandidates, ReusableSearch
from millrace.adapters.blast import fragments
from millrace.adapters.blast.backend import BACKEND
from millrace.adapters.blast.database import NotInFragmentsError
from millrace.adapters.blast.entry_lists import OPTIONS as LISTS
from millrace.adapters.blast.passes import has_summed_hits
from millrace.adapters.tool_environment import ANY_PROGRAM, BLAST
from millrace.core.entry_ranges import pack_ranges
from millrace.core.tool_use import BlastDatabase, DatabaseFragment, FragmentPlan, ToolUse, UserCommand

#: Multiple of the limit of a search in fragments down to which searches that are kept go: a database may then shrink
#: to half of its size, or the user's E-value grow to twice its own.
DEEPER = 2.0

#: Bases of each entry of a nucleotide database that may not count in its effective size (``BLAST_ComputeLengthAdjustment``).
_ADJUSTMENT = 40

#: Programs that judge each hit by itself, unless they are told to sum them, by an E-value that is proportional to the size
#: of the database.
_KEPT = frozenset({"blastp", "psiblast", "blastn"})

#: Options with which what a fragment finds is not a question of query, subject and depth alone.
_REFUSED = {
    "ungapped": "its cutoffs depend on the mean length of the entries",
    "db_soft_mask": "which masks the entries have is not known by their sequences",
    "db_hard_mask": "which masks the entries have is not known by their sequences",
    "filtering_db": "what it masks is in another database",
    "window_masker_db": "what it masks is in another file",
    "window_masker_taxid": "what it masks is in another file",
    "dbsize": "E-values are then not proportional to the size of the database",
    "searchsp": "E-values are then not proportional to the size of the database",
    "subject": "-subject is not a database",
    **dict.fromkeys(LISTS, "a list of entries"),
}

#: Comparisons of protein queries with candidates that take about as long as the start of a task; those of nucleotides take hardly any time.
_BATCH_COMPARISONS = 13_000

#: Variables that only say where files are.
_PLACES = {"BLASTDB", "NCBI_CONFIG__BLAST__BLASTDB", "NCBI", "HOME"}


def describe_reusable_search(
    use: ToolUse, program: str, options: dict[str, str], command: UserCommand, about: BlastDatabase
) -> ReusableSearch:
    """Describe by what the candidates of a search are known, and how deep it goes.

    Raises:
        NotInFragmentsError: Candidates of such a search are not kept; says why.
    """
    if program not in _KEPT or has_summed_hits(options):
        raise NotInFragmentsError(
            f"{program} judges sums of hits, and a sum that is found is not always found in a search that goes deeper"
        )
    for name, why in _REFUSED.items():
        if name in options:
            raise NotInFragmentsError(f"-{name}: {why}")
    if "OLD_FSC" in command.environ:
        raise NotInFragmentsError("OLD_FSC changes how E-values depend on the database")
    effective = _count_effective_residues(program, about)
    if effective <= 0:
        raise NotInFragmentsError("the entries of the database are too short")
    argv = fragments.build_fragment_arguments(use, program, options, 0, ())
    words = [word if isinstance(word, str) else type(word).__name__ for word in argv[1:]]
    surroundings = {
        name: value for name, value in sorted(command.environ.items())
        if name not in _PLACES and name not in ANY_PROGRAM and not name.startswith(("LC_", "LD_", "MALLOC_", "OMP_")) and BLAST.classify_variable(name)
    }  # fmt: skip
    key = json.dumps([program, use.version, about.letter, words, surroundings])
    needed = fragments.compute_deep_limit(program, options) / effective
    few = 0 if program == "blastn" else _BATCH_COMPARISONS
    return ReusableSearch(key=key, needed_depth=needed, batch_comparisons=few)


def _count_effective_residues(program: str, about: BlastDatabase) -> int:
    """Return the least number of residues that E-values may be proportional to."""
    entries, residues = about.counted
    return residues - _ADJUSTMENT * entries if program == "blastn" else residues


def plan_reuse(
    use: ToolUse, program: str, options: dict[str, str], parts: FragmentPlan, new: Sequence[tuple[int, int]] | None,
    known_depth: float,
) -> FragmentPlan:  # fmt: skip
    """Return ``parts`` searched as deep as candidates are kept, in two fragments: the other entries, and ``new`` ones.

    A search that begins with known candidates goes no deeper than these: what it finds is then kept with one depth, and a
    query that is searched again must find what is known of it.

    Args:
        new: Ranges of ordinals; empty: there are no new entries, so there is one fragment; None: nothing is known of any,
            so the fragments stay as they are.
        known_depth: See ``ReusingAdapter.plan_reuse``.
    """
    about = parts.about
    assert isinstance(about, BlastDatabase)  # it is searched in fragments
    limit = DEEPER * fragments.compute_deep_limit(program, options)
    if limit / about.counted[1] > known_depth:
        limit = known_depth * _count_effective_residues(program, about)
    # Every batch has candidates.
    parts = msgspec.structs.replace(parts, is_for_tail=False, depth=limit / about.counted[1])
    argv = fragments.build_fragment_arguments(use, program, options, about.limit, ["-evalue", repr(limit)])
    if new is None:
        cut = tuple(msgspec.structs.replace(each, argv=argv) for each in parts.fragments)
        return msgspec.structs.replace(parts, fragments=cut)
    size = sum(fragment.size for fragment in parts.fragments)
    n_new = sum(last - first for first, last in new)
    whole = DatabaseFragment(first=0, last=about.entries, size=size, argv=argv)
    if not new:
        return msgspec.structs.replace(parts, fragments=(whole,))
    share = max(1, size * n_new // about.entries)
    old = _list_gaps(new, about.entries)
    cut = (
        msgspec.structs.replace(whole, size=max(1, size - share), only=pack_ranges(old)),
        msgspec.structs.replace(whole, size=share, only=pack_ranges(new)),
    )
    return msgspec.structs.replace(parts, fragments=cut)


def read_candidates(
    fragmented: FragmentPlan, command: UserCommand, found: Sequence[bytes]
) -> list[QueryCandidates | None]:
    """Read what the searches of all fragments found for a batch; see ``ReusingAdapter.make_list_reader``."""
    about = fragmented.about
    assert isinstance(about, BlastDatabase)  # it was searched in fragments
    lists = [_core.subjects_by_query(text) for text in found]
    if len({len(each) for each in lists}) != 1:
        return []
    names = sorted({name for each in lists for _, named in each for name in named})
    by_name = BACKEND.find_named_ordinals(fragmented, names, command.cwd, command.environ) if names else {}
    queries: list[QueryCandidates | None] = []
    for parts in zip(*lists, strict=True):
        if by_name is None or any(len(entries) + len(named) >= about.limit for entries, named in parts):
            queries.append(None)
            continue
        ordinals = {entry for entries, _ in parts for entry in entries}
        ordinals.update(by_name[name] for _, named in parts for name in named)
        queries.append(QueryCandidates(sorted(ordinals)))
    return queries


def _list_gaps(ranges: Sequence[tuple[int, int]], end: int) -> list[tuple[int, int]]:
    """Return the ranges between ``ranges``, which are ascending, from 0 to ``end``.

    >>> _list_gaps([(0, 2), (5, 7)], 9), _list_gaps([(3, 9)], 9)
    ([(2, 5), (7, 9)], [(0, 3)])
    """
    edges = [0, *chain.from_iterable(ranges), end]
    return [(first, last) for first, last in list(pairwise(edges))[::2] if first < last]
