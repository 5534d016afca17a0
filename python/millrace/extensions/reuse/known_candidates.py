"""Candidates of searches, known by the sequences of queries and entries: only new entries are searched.

A batch of known queries waits for the search of new entries alone, and for its finish.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, compress, repeat
from typing import NamedTuple

import msgspec

from millrace import _core
from millrace.adapters import registry
from millrace.adapters.adapter_base import NUL, QueryCandidates, ReusableSearch, ReusingAdapter
from millrace.core.journal_blocks import map_blocks
from millrace.core.record_digests import DIGEST_BYTES
from millrace.core.tasks import SearchTask, decode_task_kind
from millrace.core.text_format import format_count
from millrace.core.tool_use import ToolUse
from millrace.extensions.pack.regeneration_run import treat_as_one_fragment
from millrace.extensions.pack.result_codec import NotPackableError, QueryBatch, cut_query_batches
from millrace.extensions.reuse.known_results import KnownResults
from millrace.extensions.reuse.search_store import SearchStore
from millrace.extensions.reuse.sequence_digests import digest_entries, digest_queries, split_query_digests
from millrace.planning.run_plan import RunPlan
from millrace.rundir.paths import RunDir

#: Share of the known queries that are searched again all the same, to see that nothing is missing.
SAMPLE_SHARE = 0.01

#: Share of new entries above which a query is searched whole: there is little to gain.
MAX_NEW_SHARE = 0.5

#: Most queries of a batch that is known, and batches of each slot at least.
MAX_BATCH_QUERIES, MIN_SLOT_BATCHES = 200, 4


class KnownSearch(NamedTuple):
    """What is known of a search before it begins."""

    #: The plan of the search in fragments.
    plan: RunPlan
    search: ReusableSearch
    #: Digest of each query.
    queries: Sequence[bytes]
    #: Digests of the entries, in their order.
    entries: bytes
    #: Candidates of each known query that is searched, and the depth down to which these are all there; infinite: no
    #: query is known.
    kept: Mapping[bytes, QueryCandidates]
    #: Seals of these candidates.
    seals: Mapping[bytes, bytes]
    depth: float
    #: Ranges of the entries in which the known queries were not searched.
    new: Sequence[tuple[int, int]]
    #: Why what the store has of this search is not used, in words; empty: it is, or there is nothing.
    why_unknown: str = ""


def _describe_search(plan: RunPlan) -> ReusableSearch:
    """Describe the search of a plan in fragments.

    Raises:
        NotPackableError: Its candidates are not kept; says why.
    """
    search = find_reusing_adapter(plan).describe_reusable_search(plan.use, plan.command.resolved_command)
    if search.why_not:
        raise NotPackableError(search.why_not)
    if plan.use.inputs[0].pass_residues:
        raise NotPackableError("what a query finds depends on the others in its pass")
    return search


def find_reusing_adapter(plan: RunPlan) -> ReusingAdapter:
    """Return the adapter of the program.

    Raises:
        NotPackableError: It keeps no candidates.
    """
    adapter = registry.find_adapter(plan.command.argv[0])
    if not isinstance(adapter, ReusingAdapter):
        raise NotPackableError(f"candidates of {plan.command.argv[0]} are not kept")
    return adapter


def find_known_candidates(plan: RunPlan, store: SearchStore, results: KnownResults | None) -> KnownSearch:
    """Find what the store knows of the queries of a plan.

    Args:
        results: What is known of the results, which need no search; None: no results are kept.

    Raises:
        NotPackableError: Candidates of such a search are not kept, the entries of the database cannot be listed, or the queries cannot be told apart.
        CorruptError: The store is damaged.
        OSError: A file cannot be read.
    """
    plan = _cut_database(plan)
    search = _describe_search(plan)
    use, command = plan.use, plan.command.resolved_command
    assert use.fragmented and use.fragmented.about  # it is searched in fragments
    entries = digest_entries(use.fragmented.about, command, use.databases, store.digests, save=store.saves_digests)
    if results:
        queries = split_query_digests(use.inputs[0], results.records, results.queries)
    else:
        queries = digest_queries(command.cwd / use.inputs[0].path, use.inputs[0])
    wanted = list(compress(queries, results.list_unknown() if results else repeat(True)))
    kept = store.recall_candidates(search.key, wanted, search.needed_depth)
    before = store.read_entries(next(iter(kept.values())).entries) if kept else None
    unknown = KnownSearch(plan, search, queries, entries, {}, {}, math.inf, ())
    if before is None:
        return unknown
    matched = _core.KnownEntries(before, entries)
    new = matched.new_ranges()
    n_new, n_entries = sum(last - first for first, last in new), len(entries) // DIGEST_BYTES
    if n_new > MAX_NEW_SHARE * n_entries:
        return unknown._replace(why_unknown=f"{n_new:,} of {n_entries:,} entries are new")
    # Entries of a set with counts are there once each, by their digests.
    n_gone = len(before) // DIGEST_BYTES - (n_entries - n_new)
    if search.needs_counts and n_gone:
        return unknown._replace(why_unknown=f"{format_count(n_gone, 'entry')} gone, and the output has counts of all")
    found: dict[bytes, QueryCandidates] = {}
    for query, each in kept.items():
        ordinals = matched.ordinals(each.numbers)
        if ordinals is not None and (each.counts or not search.needs_counts):
            found[query] = QueryCandidates(ordinals, () if n_gone else each.counts)
    seals = {query: kept[query].seal for query in found}
    return KnownSearch(plan, search, queries, entries, found, seals, min(each.depth for each in kept.values()), new)


def describe_unknown_search(plan: RunPlan) -> KnownSearch:
    """Describe a search of the whole database of which nothing is known.

    Raises:
        NotPackableError: It cannot be searched for candidates, or the queries cannot be told apart.
        OSError: The queries cannot be read.
    """
    plan = msgspec.structs.replace(plan, use=msgspec.structs.replace(plan.use, fragmented=None))
    plan = _cut_database(plan)
    queries = digest_queries(plan.command.resolved_command.cwd / plan.use.inputs[0].path, plan.use.inputs[0])
    return KnownSearch(plan, _describe_search(plan), queries, b"", {}, {}, math.inf, ())


def _cut_database(plan: RunPlan) -> RunPlan:
    """Return ``plan`` with its database in one or more fragments.

    Raises:
        NotPackableError: It cannot be searched so, or its candidates are not kept.
        OSError: The queries cannot be read.
    """
    find_reusing_adapter(plan)
    use, command = plan.use, plan.command.resolved_command
    if len(use.inputs) != 1 or use.inputs[0].path == "-" or NUL in use.inputs[0].path:
        raise NotPackableError("the queries are not one plain file")
    if plan.command.growing or (use.fragmented and use.fragmented.volumes):
        raise NotPackableError("files are not here yet")
    with (command.cwd / use.inputs[0].path).open("rb") as file:
        if _core.compression(file.read(64)):
            raise NotPackableError("the queries are compressed")
    return plan if use.fragmented else msgspec.structs.replace(plan, use=treat_as_one_fragment(use, command))


def plan_known_search(known: KnownSearch, *, has_known: bool, is_kept: bool) -> RunPlan:
    """Return the plan of a search in old and new entries.

    Args:
        has_known: Whether there are queries of which only new entries are searched.
        is_kept: See ``ReusingAdapter.plan_reuse``.
    """
    plan = known.plan
    adapter = find_reusing_adapter(plan)
    new, depth = (known.new, known.depth) if has_known else (None, math.inf)
    use = adapter.plan_reuse(plan.use, plan.command.resolved_command, new, depth, is_kept=is_kept)
    return msgspec.structs.replace(plan, use=use)


def leave_out_sample(kept: Mapping[bytes, QueryCandidates]) -> Mapping[bytes, QueryCandidates]:
    """Return what is known without a sample, which is searched again."""
    if len(kept) < 2:
        return kept
    again = set(random.sample(list(kept), max(1, round(SAMPLE_SHARE * len(kept)))))
    return {query: found for query, found in kept.items() if query not in again}


def cut_known_batches(
    plan: RunPlan, known: KnownSearch, kept: Mapping[bytes, QueryCandidates], searched: Sequence[bool] | None
) -> Iterator[tuple[QueryBatch, bytes]]:
    """Yield the batches of queries that are all known, with what was found for them among the old entries.

    Args:
        searched: As in ``find_known_candidates``.

    Raises:
        NotPackableError: The file has changed since it was counted.
    """
    item, path, n = plan.use.inputs[0], plan.command.resolved_command.cwd / plan.use.inputs[0].path, len(known.queries)
    here = searched or [True] * n
    kinds = [here[at] + (here[at] and query in kept) for at, query in enumerate(known.queries)]
    most = max(1, min(MAX_BATCH_QUERIES, n // (MIN_SLOT_BATCHES * max(1, plan.slots))))
    n_found = [len(kept[query].entries) if kinds[at] == 2 else 0 for at, query in enumerate(known.queries)]
    n_compared = known.search.batch_comparisons or math.inf
    adapter, at = find_reusing_adapter(plan), 0

    def choose_sizes() -> Iterator[int]:
        while at < n:
            end, found = at + 1, n_found[at]
            while end < min(at + most, n) and kinds[end] == kinds[at]:
                found += n_found[end]
                if found * (end + 1 - at) > n_compared:
                    break
                end += 1
            yield end - at

    scratch = RunDir(plan.run_dir).cut
    for batch in cut_query_batches(path, item, choose_sizes(), scratch):
        at = batch.last
        if batch.last <= n and all(kind == 2 for kind in kinds[batch.first : batch.last]):
            yield batch, adapter.format_candidates([kept[query] for query in known.queries[batch.first : batch.last]])
    scratch.unlink(missing_ok=True)
    if at != n:
        raise NotPackableError("the queries have changed meanwhile")


def describe_reuse(known: KnownSearch, n_searched: int, n_known: int) -> str:
    """Describe what need not be searched, in words.

    Args:
        n_searched: Number of queries that are searched, whose results are not known.
        n_known: Number of those of which only new entries are searched.
    """
    n, entries = len(known.queries), len(known.entries) // DIGEST_BYTES
    new = sum(last - first for first, last in known.new)
    share = (n_searched - n_known * (1 - new / entries)) / n
    results = f"results of {n - n_searched:,} known, " if n_searched < n else ""
    return (
        f"store: {n_known:,} of {format_count(n, 'query')} known, {results}{entries - new:,} of {entries:,} entries known: "
        f"{share:.1%} of the search is left"
    )


def keep_found_candidates(plan: RunPlan, known: KnownSearch, store: SearchStore) -> bytes:
    """Keep the candidates of all queries that the run has searched, unless kept ones lack some; return the seal of such ones.

    Raises:
        CorruptError: The store, or a journal, is damaged.
        OSError: The store cannot be written.
    """
    depth = read_searched_depth(plan)
    if not depth:
        return b""  # an earlier start, without the store, has begun the run
    entries = _core.sort_digests(known.entries)
    numbered = _core.KnownEntries(entries, known.entries)
    found: dict[bytes, QueryCandidates] = {}
    for query, each in read_found_candidates(plan, known):
        numbers = numbered.numbers(list(each.entries))
        if numbers is not None:
            found[query] = each._replace(entries=numbers)
    if depth <= known.depth and (query := _find_lost_candidates(known, found, numbered)):
        return known.seals[query]
    if not store.read_only:
        store.keep_candidates(known.search.key, entries, depth, found)
    return b""


def read_searched_depth(plan: RunPlan) -> float:
    """Return the depth down to which a run is searched, as the start has planned it that began the run."""
    return get_depth(RunDir(plan.run_dir).read_manifest().use)


def get_depth(use: ToolUse) -> float:
    """Return the depth down to which the database is searched for candidates that are kept; 0: none are."""
    return use.fragmented.depth if use.fragmented else 0.0


def _find_lost_candidates(
    known: KnownSearch, found: Mapping[bytes, QueryCandidates], numbered: _core.KnownEntries
) -> bytes:
    """Return a query of which what was kept lacks old entries that the run has found, or has other counts; empty: there is none."""
    edges = list(chain.from_iterable(known.new))
    for query, kept in known.kept.items():
        if query not in found:
            continue
        ordinals = numbered.ordinals(list(found[query].entries)) or ()
        # Behind an odd number of edges an entry is within a range of new ones.
        if {entry for entry in ordinals if bisect_right(edges, entry) % 2 == 0} - set(kept.entries):
            return query
        if kept.counts and found[query].old_counts not in ((), kept.counts):
            return query
    return b""


def read_found_candidates(plan: RunPlan, known: KnownSearch) -> Iterator[tuple[bytes, QueryCandidates]]:
    """Yield all candidates of each query, where no list may be incomplete."""
    rundir = RunDir(plan.run_dir)
    use = rundir.read_manifest().use
    fragments = range(1, use.n_fragments + 1)
    blocks: dict[tuple[int, int], dict[int, _core.BlockRef]] = {}
    for path in rundir.list_journals():
        for task in _core.scan(str(path), False).tasks:
            kind = decode_task_kind(task.fragment)
            if isinstance(kind, SearchTask):
                blocks.setdefault((task.first, task.last), {}).setdefault(kind.fragment, task.blocks[0])
    read_lists = find_reusing_adapter(plan).make_list_reader(use, plan.command.resolved_command)
    for (first, last), searched in blocks.items():
        if any(fragment not in searched for fragment in fragments):
            continue
        with map_blocks([searched[fragment] for fragment in fragments]) as texts:
            found = read_lists([bytes(text) for text in texts])
        queries = known.queries[first:last]
        if len(found) == len(queries):
            yield from ((query, each) for query, each in zip(queries, found, strict=True) if each)
