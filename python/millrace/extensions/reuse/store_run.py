"""A run that begins with the candidates that a store has, and keeps in it what it finds.

What is known is written into the journal of the run as if an earlier start had found it: a batch of known queries then
waits for the search of new entries alone, and for its finish. So the run itself, its resume and its other nodes need to
know nothing of the store.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import msgspec

from millrace import _core
from millrace.adapters import registry
from millrace.adapters.adapter_base import NUL, ReusableSearch, ReusingAdapter
from millrace.adapters.blast.backend import BACKEND, format_hit_lists
from millrace.core.errors import CorruptError, ExitCode
from millrace.core.journal_blocks import map_blocks
from millrace.core.tasks import SearchTask, decode_task_kind
from millrace.core.text_format import format_count
from millrace.core.tool_use import BlastDatabase, ToolUse
from millrace.execution.resume import FinishedRun
from millrace.extensions.pack.regeneration_run import treat_as_one_fragment, write_search_journal
from millrace.extensions.pack.result_codec import NotPackableError, QueryBatch, cut_query_batches
from millrace.extensions.reuse.candidate_store import DEFAULT_MAX_BYTES, CandidateStore
from millrace.extensions.reuse.sequence_digests import DIGEST_BYTES, digest_entries, digest_queries
from millrace.node.batch_files import open_reader
from millrace.planning.run_dir_access import compute_run_dir_mode
from millrace.planning.run_plan import RunPlan
from millrace.rundir import ownership
from millrace.rundir.paths import RunDir

#: Name of the store of candidates in the user's store, in which run directories lie, too.
STORE_NAME = "candidates"

#: Share of the known queries that are searched again all the same, to see that nothing is missing.
SAMPLE_SHARE = 0.01

#: Share of new entries above which a query is searched whole: there is little to gain.
MAX_NEW_SHARE = 0.5

#: Most queries of a batch that is known, and batches of each slot at least.
MAX_BATCH_QUERIES, MIN_SLOT_BATCHES = 200, 4


class KnownSearch(NamedTuple):
    """What is known of a search before it begins."""

    search: ReusableSearch
    #: Digest of each query.
    queries: Sequence[bytes]
    #: Digests of the entries, in their order.
    entries: bytes
    #: Ordinals of the candidates of each known query, and the depth down to which these are all there.
    kept: Mapping[bytes, Sequence[int]]
    depth: float
    #: Ranges of the entries in which the known queries were not searched.
    new: Sequence[tuple[int, int]]


def run_with_store(
    plan: RunPlan, folder: Path, run: Callable[[RunPlan], FinishedRun], say: Callable[[str], None], *, supervised: bool
) -> FinishedRun:
    """Run ``plan`` with what the store in ``folder`` knows, and keep there what it finds.

    Args:
        run: Runs a plan.
        say: Prints a message.
        supervised: Whether a supervisor removes the run directory, once it has passed all output on.

    Raises:
        MillraceError: The run was not completed, or the store has lost candidates, which are dropped then.
    """
    try:
        cut = _cut_database(plan)
        search = describe_search(cut)
        store = CandidateStore(folder)
        known = find_known_candidates(cut, search, store)
        job = msgspec.structs.replace(plan.job, keep_run_dir=True)
        cut = _begin_with_known(msgspec.structs.replace(cut, job=job), known, say)
    except (NotPackableError, CorruptError, OSError) as error:
        say(f"store: not used: {error}")
        return run(plan)
    keep = plan.job.keep_run_dir or supervised
    plan = cut
    finished = run(plan)
    if finished.code == ExitCode.DONE:
        _keep_found_candidates(plan, known, store, say)
        if not keep:
            ownership.remove_run_directory(RunDir(plan.run_dir))
    return finished


def describe_store(plan: RunPlan, folder: Path) -> str:
    """Describe what the store in ``folder`` knows of a plan, in words; nothing is written."""
    if not folder.exists():
        return f"store: {folder} is made, and knows nothing yet"
    try:
        cut = _cut_database(plan)
        known = find_known_candidates(cut, describe_search(cut), CandidateStore(folder, read_only=True))
    except (NotPackableError, CorruptError, OSError) as error:
        return f"store: not used: {error}"
    return describe_reuse(known, sum(query in known.kept for query in known.queries))


def describe_search(plan: RunPlan) -> ReusableSearch:
    """Describe the search of a plan in fragments.

    Raises:
        NotPackableError: Its candidates are not kept; says why.
    """
    search = _find_reusing_adapter(plan).describe_reusable_search(plan.use, plan.command.resolved_command)
    if search.why_not:
        raise NotPackableError(search.why_not)
    return search


def _find_reusing_adapter(plan: RunPlan) -> ReusingAdapter:
    adapter = registry.find_adapter(plan.command.argv[0])
    if not isinstance(adapter, ReusingAdapter):
        raise NotPackableError(f"candidates of {plan.command.argv[0]} are not kept")
    return adapter


def find_known_candidates(plan: RunPlan, search: ReusableSearch, store: CandidateStore) -> KnownSearch:
    """Find what the store knows of the queries of a plan in fragments, whose ``search`` was described.

    Raises:
        NotPackableError: The entries of the database cannot be listed, or the queries cannot be told apart.
        CorruptError: The store is damaged.
        OSError: A file cannot be read.
    """
    use, command = plan.use, plan.command.resolved_command
    about = use.fragmented.about if use.fragmented else None
    assert isinstance(about, BlastDatabase)  # which alone a reusing adapter searches
    entries = digest_entries(about, command, use.databases, store.folder / "databases", save=not store.read_only)
    queries = digest_queries(command.cwd / use.inputs[0].path)
    counted = open_reader([str(command.cwd / use.inputs[0].path)], use.inputs[0]).skip(1 << 62)
    if len(queries) != (counted.records if counted else 0):
        raise NotPackableError("the records of the queries could not be told apart")
    kept = store.recall_candidates(search.key, queries, search.needed_depth)
    before = store.read_entries(next(iter(kept.values())).entries) if kept else None
    unknown = KnownSearch(search, queries, entries, {}, 0.0, ())
    if before is None:
        return unknown
    matched = _core.KnownEntries(before, entries)
    new = matched.new_ranges()
    if sum(last - first for first, last in new) > MAX_NEW_SHARE * about.entries:
        return unknown
    found: dict[bytes, Sequence[int]] = {}
    for query, each in kept.items():
        ordinals = matched.ordinals(each.numbers)
        if ordinals is not None:
            found[query] = ordinals
    return KnownSearch(search, queries, entries, found, min(each.depth for each in kept.values()), new)


def _cut_database(plan: RunPlan) -> RunPlan:
    """Return ``plan`` with its database in one or more fragments.

    Raises:
        NotPackableError: It cannot be searched so, or its candidates are not kept.
        OSError: The queries cannot be read.
    """
    _find_reusing_adapter(plan)
    use, command = plan.use, plan.command.resolved_command
    if len(use.inputs) != 1 or use.inputs[0].path == "-" or NUL in use.inputs[0].path:
        raise NotPackableError("the queries are not one plain file")
    if use.inputs[0].pass_residues:
        raise NotPackableError("what a query finds depends on the others in its pass")
    if plan.job.dask:
        raise NotPackableError("the workers of a Dask cluster search the database as a whole")
    if plan.command.growing or (use.fragmented and use.fragmented.volumes):
        raise NotPackableError("files are not here yet")
    with (command.cwd / use.inputs[0].path).open("rb") as file:
        if _core.compression(file.read(64)):
            raise NotPackableError("the queries are compressed")
    return plan if use.fragmented else msgspec.structs.replace(plan, use=treat_as_one_fragment(use, command))


def _begin_with_known(plan: RunPlan, known: KnownSearch, say: Callable[[str], None]) -> RunPlan:
    """Return the plan of a search in old and new entries, in whose run directory the known batches are searched."""
    kept = _leave_out_sample(known.kept)
    use = _find_reusing_adapter(plan).plan_reuse(plan.use, plan.command.resolved_command, known.new if kept else None)
    plan = msgspec.structs.replace(plan, use=use)
    rundir = RunDir(plan.run_dir)
    if plan.job.fresh or not kept:
        return plan
    lock = ownership.claim_run_directory(rundir, compute_run_dir_mode(plan))
    try:
        if rundir.has_run():
            return plan
        batches = list(_cut_known_batches(plan, known, kept))
        write_search_journal(plan, batches)
    finally:
        lock.close()
    say(describe_reuse(known, sum(batch.last - batch.first for batch, _ in batches)))
    return plan


def _leave_out_sample(kept: Mapping[bytes, Sequence[int]]) -> Mapping[bytes, Sequence[int]]:
    """Return what is known without a sample, which is searched again."""
    if len(kept) < 2:
        return kept
    again = set(random.sample(list(kept), max(1, round(SAMPLE_SHARE * len(kept)))))
    return {query: found for query, found in kept.items() if query not in again}


def _cut_known_batches(
    plan: RunPlan, known: KnownSearch, kept: Mapping[bytes, Sequence[int]]
) -> Iterator[tuple[QueryBatch, bytes]]:
    """Yield the batches of queries that are all known, with what was found for them among the old entries.

    Raises:
        NotPackableError: The file has changed since it was counted.
    """
    item, path = plan.use.inputs[0], plan.command.resolved_command.cwd / plan.use.inputs[0].path
    most = max(1, min(MAX_BATCH_QUERIES, len(known.queries) // (MIN_SLOT_BATCHES * max(1, plan.slots))))
    at = 0

    def choose_sizes() -> Iterator[int]:
        while at < len(known.queries):
            is_known, end = known.queries[at] in kept, at + 1
            while end < min(at + most, len(known.queries)) and (known.queries[end] in kept) == is_known:
                end += 1
            yield end - at

    scratch = RunDir(plan.run_dir).path / "cut"
    for batch in cut_query_batches(path, item, choose_sizes(), scratch):
        at = batch.last
        queries = known.queries[batch.first : batch.last]
        if len(queries) == batch.last - batch.first and all(query in kept for query in queries):
            yield batch, format_hit_lists(kept[query] for query in queries)
    scratch.unlink(missing_ok=True)
    if at != len(known.queries):
        raise NotPackableError("the queries have changed meanwhile")


def describe_reuse(known: KnownSearch, n_known: int) -> str:
    """Describe what need not be searched, in words."""
    n, entries = len(known.queries), len(known.entries) // DIGEST_BYTES
    new = sum(last - first for first, last in known.new)
    share = 1 - n_known / n * (1 - new / entries)
    return (
        f"store: {n_known:,} of {format_count(n, 'query')} known, {entries - new:,} of {entries:,} entries known: "
        f"{share:.1%} of the search is left"
    )


def _keep_found_candidates(
    plan: RunPlan, known: KnownSearch, store: CandidateStore, say: Callable[[str], None]
) -> None:
    """Keep the candidates of all queries that the run has searched.

    Raises:
        CorruptError: Candidates that were kept lack some that were found now; they are dropped.
    """
    try:
        entries = _core.sort_digests(known.entries)
        numbered = _core.KnownEntries(entries, known.entries)
        found: dict[bytes, Sequence[int]] = {}
        for query, ordinals in _read_found_candidates(plan, known):
            numbers = numbered.numbers(ordinals)
            if numbers is not None:
                found[query] = numbers
        if not (lost := _has_lost_candidates(known, found, numbered)):
            store.keep_candidates(known.search.key, entries, known.search.reached_depth, found)
            store.evict(DEFAULT_MAX_BYTES)
    except (CorruptError, OSError) as error:
        say(f"store: what was found could not be kept: {error}")
        return
    if lost:
        ownership.remove_run_directory(RunDir(plan.run_dir))
        n = store.forget_search(known.search.key)
        raise CorruptError(
            f"{store.folder}: candidates of a query are missing, so the output may lack hits; what the store had of this "
            f"search, of {format_count(n, 'query')}, is dropped",
            "the same command computes the output again, without it",
        )


def _has_lost_candidates(
    known: KnownSearch, found: Mapping[bytes, Sequence[int]], numbered: _core.KnownEntries
) -> bool:
    """Tell whether what was kept lacks old entries that the run has found, for the queries that it searched again."""
    if known.search.reached_depth > known.depth:
        return False  # this search may have found more
    edges = list(chain.from_iterable(known.new))
    for query, kept in known.kept.items():
        ordinals = numbered.ordinals(found.get(query, ())) or ()
        # Behind an odd number of edges an entry is within a range of new ones.
        if {entry for entry in ordinals if bisect_right(edges, entry) % 2 == 0} - set(kept):
            return True
    return False


def _read_found_candidates(plan: RunPlan, known: KnownSearch) -> Iterator[tuple[bytes, Sequence[int]]]:
    """Yield the ordinals of all candidates of each query, where no list may be incomplete."""
    rundir = RunDir(plan.run_dir)
    use = rundir.read_manifest().use
    fragments = range(1, use.n_fragments + 1)
    blocks: dict[tuple[int, int], dict[int, _core.BlockRef]] = {}
    for path in rundir.list_journals():
        for task in _core.scan(str(path), False).tasks:
            kind = decode_task_kind(task.fragment)
            if isinstance(kind, SearchTask):
                blocks.setdefault((task.first, task.last), {}).setdefault(kind.fragment, task.blocks[0])
    for (first, last), searched in blocks.items():
        if any(fragment not in searched for fragment in fragments):
            continue
        with map_blocks([searched[fragment] for fragment in fragments]) as texts:
            lists = [_core.subjects_by_query(bytes(text)) for text in texts]
        queries = known.queries[first:last]
        if any(len(each) != len(queries) for each in lists):
            continue
        yield from _combine_lists(use, plan, known, queries, lists)


def _combine_lists(
    use: ToolUse, plan: RunPlan, known: KnownSearch, queries: Sequence[bytes],
    lists: Sequence[Sequence[tuple[list[int], list[bytes]]]],
) -> Iterator[tuple[bytes, Sequence[int]]]:  # fmt: skip
    """Yield the candidates of each query of a batch from the lists of all fragments."""
    command = plan.command.resolved_command
    assert use.fragmented  # it was searched in fragments
    names = sorted({name for each in lists for _, named in each for name in named})
    by_name = BACKEND.find_named_ordinals(use.fragmented, names, command.cwd, command.environ) if names else {}
    if by_name is None:
        return
    for at, query in enumerate(queries):
        parts = [each[at] for each in lists]
        if any(len(entries) + len(named) >= known.search.subject_limit for entries, named in parts):
            continue
        found = {entry for entries, _ in parts for entry in entries}
        found.update(by_name[name] for _, named in parts for name in named)
        yield query, sorted(found)
