"""A run that begins with what a store knows, and keeps in it what it finds.

What is known is written into the journal of the run as if an earlier start had found it. So the run itself, its resume
and its other nodes need to know nothing of the store.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from millrace.adapters.adapter_base import QueryCandidates
from millrace.core.errors import CorruptError, ExitCode, UnverifiedError
from millrace.core.replica_rules import is_url
from millrace.core.text_format import format_count
from millrace.execution.resume import FinishedRun
from millrace.extensions.pack.regeneration_run import BatchResult, write_search_journal
from millrace.extensions.pack.result_codec import NotPackableError
from millrace.extensions.reuse import equal_queries, known_candidates, known_results
from millrace.extensions.reuse.known_candidates import KnownSearch
from millrace.extensions.reuse.known_results import KnownBatch, KnownResults
from millrace.extensions.reuse.search_store import DEFAULT_MAX_BYTES, SearchStore
from millrace.extensions.reuse.store_seals import find_seal
from millrace.planning.run_dir_access import compute_run_dir_mode
from millrace.planning.run_plan import RunPlan
from millrace.rundir import ownership
from millrace.rundir.paths import RunDir
from millrace.storage.clients.base import LocationError

#: Name of the store of searches in the user's store, in which run directories lie, too.
STORE_NAME = "candidates"


#: Errors of a store without which the run goes on.
_UNUSABLE = (NotPackableError, CorruptError, LocationError, OSError)


class KnownWork(NamedTuple):
    """What is known of a run before it begins."""

    plan: RunPlan
    results: KnownResults | None
    search: KnownSearch | None
    #: Why results, or candidates, are not kept, in words.
    why_not: str


def run_with_store(
    plan: RunPlan, run: Callable[[RunPlan], FinishedRun], say: Callable[[str], None], *, supervised: bool
) -> FinishedRun:
    """Run ``plan`` with what the user's store knows, and keep there what it finds.

    Args:
        run: Runs a plan.
        say: Prints a message.
        supervised: Whether a supervisor removes the run directory, once it has passed all output on.

    Raises:
        MillraceError: The run was not completed, or what the store has is wrong, and is dropped then.
    """
    try:
        store = open_store(plan.job.store, plan.command.cwd)
        job = msgspec.structs.replace(plan.job, keep_run_dir=True)
        known = _find_known_work(msgspec.structs.replace(plan, job=job), store)
        known = _begin_with_known(known, store, say)
    except _UNUSABLE as error:
        say(f"store: not used: {_describe_problem(error)}")
        return run(plan)
    try:
        finished = run(known.plan)
    except UnverifiedError:
        _forget_used_results(known, store, say)
        raise
    if finished.code == ExitCode.DONE:
        _keep_found_work(known, store, say)
        if not (plan.job.keep_run_dir or supervised):
            ownership.remove_run_directory(RunDir(plan.run_dir))
    return finished


def open_store(name: str, cwd: Path, *, read_only: bool = False) -> SearchStore:
    """Open the user's store, a folder or a URL, which is made if it is missing; it is only read if it cannot be written.

    Raises:
        MillraceError: It cannot be used.
        OSError: It cannot be made, or is not there.
    """
    if is_url(name):
        from millrace.extensions.reuse.remote_store import open_remote_store

        return open_remote_store(name, os.environ)
    folder = cwd / name / STORE_NAME
    seal = find_seal(folder.parent, os.environ)
    there = next(each for each in (folder, *folder.parents) if each.exists())
    return SearchStore(folder, read_only=read_only or not (seal.can_make and os.access(there, os.W_OK)), seal=seal)


def describe_store(plan: RunPlan) -> str:
    """Describe what the user's store knows of a plan, in words; nothing is written there."""
    name, cwd = plan.job.store, plan.command.cwd
    if not is_url(name) and not SearchStore.is_there(cwd / name / STORE_NAME):
        return f"store: {cwd / name / STORE_NAME} is made, and knows nothing yet"
    try:
        known = _find_known_work(plan, open_store(name, cwd, read_only=True))
    except _UNUSABLE as error:
        return f"store: not used: {_describe_problem(error)}"
    kept = known.search.kept if known.search else {}
    return _describe_known_work(known, sum(query in kept for query in known.search.queries) if known.search else 0)


def _describe_problem(error: Exception) -> str:
    return f"{error.filename}: {error.strerror}" if isinstance(error, OSError) and error.filename else str(error)


def _find_known_work(plan: RunPlan, store: SearchStore) -> KnownWork:
    """Find the results that the store has, and the candidates of what is left.

    Raises:
        NotPackableError: Neither is kept of such a run; says why.
        CorruptError: The store is damaged.
        OSError: A file cannot be read.
    """
    results, reason = None, ""
    try:
        results = known_results.find_known_results(plan, store)
        if results.batches and results.n_known == results.n_records:
            return KnownWork(plan, results, None, "")
    except NotPackableError as why:
        reason = str(why)
    try:
        search = known_candidates.find_known_candidates(plan, store, results)
        return KnownWork(plan, results, search, reason)
    except NotPackableError as why:
        if not results:
            raise NotPackableError(reason) from why
        return KnownWork(plan, results, None, str(why))


def _forget_used_results(known: KnownWork, store: SearchStore, say: Callable[[str], None]) -> None:
    """Drop the results that a run began with, as verification has found other bytes, and the run."""
    if known.results and known.results.batches and not store.read_only:
        with suppress(*_UNUSABLE):
            ownership.remove_run_directory(RunDir(known.plan.run_dir))
            n = store.forget_search(known.results.key)
            say(
                f"store: what it had of this command, of {format_count(n, 'batch')}, and all results in it, are dropped"
            )


def _refuse_wrong_copy(store: SearchStore, of_owner: str) -> None:
    """Refuse a store that lacks candidates and cannot be written.

    Args:
        of_owner: `` of NAME``, where it has several owners.

    Raises:
        CorruptError: It is such a store.
    """
    if store.read_only:
        raise CorruptError(
            f"{store.shown}: candidates{of_owner} of a query are missing, so the output may lack hits; the store cannot be written, so it still has what is wrong",
            "the same command without --store computes the output",
        )


def _list_searched(results: KnownResults | None) -> list[bool] | None:
    return results.list_unknown() if results and results.batches else None


def _begin_with_known(known: KnownWork, store: SearchStore, say: Callable[[str], None]) -> KnownWork:
    """Plan what is left, and make a run directory in which all that is known is done; without what is damaged.

    Raises:
        StoppedBySignalError: A signal has stopped the search of equal queries.
    """
    results, search = known.results, known.search
    kept: Mapping[bytes, QueryCandidates] = {}
    n_kept = n_wanted = 0
    #: Queries that are searched for all that are equal to them.
    chosen: list[int] = []
    if search:
        kept = known_candidates.leave_out_sample(search.kept)
        here = results.list_unknown() if results else [True] * len(search.queries)
        wanted = [is_here and query not in kept for is_here, query in zip(here, search.queries, strict=True)]
        n_wanted = sum(wanted)
        n_kept = sum(here) - n_wanted
        if not known.plan.job.fresh:
            chosen = equal_queries.list_distinct_queries(search, wanted)
        plan = known_candidates.plan_known_search(search, has_known=bool(kept or chosen), is_kept=True)
        known = known._replace(plan=plan)
        if search.why_unknown:
            say(f"store: what earlier searches found is not used: {search.why_unknown}")
    has_known = bool(kept) or bool(results and results.batches)
    if known.plan.job.fresh or not (has_known or chosen):
        return known
    rundir = RunDir(known.plan.run_dir)
    with closing(ownership.claim_run_directory(rundir, compute_run_dir_mode(known.plan))):
        if rundir.has_run():
            return known
        if search:
            kept = {**kept, **equal_queries.search_distinct_queries(search, chosen, n_wanted, say, is_kept=True)}
        known = _write_known_work(known, kept, store)
        shutil.rmtree(rundir.distinct, ignore_errors=True)
    if has_known:
        say(_describe_known_work(known, n_kept))
    return known


def _write_known_work(known: KnownWork, kept: Mapping[bytes, QueryCandidates], store: SearchStore) -> KnownWork:
    """Write all that is known into the journal of the run; return what was there, without what is damaged."""
    plan, results, search, _ = known
    searched = _list_searched(results)
    batches = list(known_candidates.cut_known_batches(plan, search, kept, searched)) if search and kept else []
    written: list[KnownBatch] = []

    def read_results() -> Iterator[BatchResult]:
        for batch, result in known_results.read_known_results(results, store) if results else ():
            written.append(batch)
            yield result

    write_search_journal(plan, batches, read_results())
    return known._replace(results=results._replace(batches=written) if results else None)


def _describe_known_work(known: KnownWork, n_known_queries: int) -> str:
    """Describe what need not be computed, in words."""
    results = known.results
    if known.search:
        n_searched = len(known.search.queries) - (results.n_known if results else 0)
        return known_candidates.describe_reuse(known.search, n_searched, n_known_queries)
    assert results  # else there is no known work
    more = f"; candidates are not kept: {known.why_not}" if known.why_not else ""
    return f"store: {results.n_known:,} of {format_count(results.n_records, 'record')} known{more}"


def _keep_found_work(known: KnownWork, store: SearchStore, say: Callable[[str], None]) -> None:
    """Keep what the run has found.

    Raises:
        CorruptError: What was kept is not what was found now; it is dropped.
    """
    plan, results, search, _ = known
    try:
        tasks = known_results.list_committed_results(plan)
        seal = known_candidates.keep_found_candidates(plan, search, store) if search else b""
        if not seal and not store.read_only:
            if results:
                known_results.keep_found_results(results, tasks, store)
            store.evict(DEFAULT_MAX_BYTES)
    except _UNUSABLE as error:
        say(f"store: what was found could not be kept: {error}")
        return
    if search and seal:
        ownership.remove_run_directory(RunDir(plan.run_dir))
        owner, name = store.seal.find_owner(seal)
        _refuse_wrong_copy(store, f" of {name}" if name else "")
        n = format_count(store.forget_search(search.search.key, owner), "query")
        of_owner = f", all candidates of {name}" if name else ""
        raise CorruptError(
            f"{store.shown}: candidates of a query are missing, so the output may lack hits; what the store had of this search, of {n}{of_owner}, and all results in it, are dropped",
            "the same command computes the output again, without it"
            + (f"; {name} is in your list of owners" if name else ""),
        )
