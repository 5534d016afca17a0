"""Equal queries of one input: each sequence is searched once, before the run, which then only finishes each query.

The search is a run of its own within the run directory, on a file with the first query of each sequence. It has no
output; what it found is written into the journal of the run, as candidates from a store are.
"""

from __future__ import annotations

import filecmp
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from itertools import groupby
from pathlib import Path

import msgspec

from millrace import _core
from millrace.adapters import registry
from millrace.adapters.adapter_base import QueryCandidates, ReusingAdapter
from millrace.adapters.database_backend import FragmentOutput, find_backend
from millrace.core.errors import CorruptError, ExitCode, MillraceError
from millrace.core.text_format import format_count
from millrace.core.tool_use import FragmentPlan, InputArg, OutputArg, ToolUse
from millrace.execution import plan_execution
from millrace.execution.resume import FinishedRun
from millrace.extensions.pack.hit_lists import BLOCK, HitListBackend, end_with_hits
from millrace.extensions.pack.regeneration_run import has_current_hits, treat_as_one_fragment, write_search_journal
from millrace.extensions.pack.result_codec import NotPackableError
from millrace.extensions.reuse import known_candidates
from millrace.extensions.reuse.known_candidates import KnownSearch, get_depth, read_searched_depth
from millrace.host.signals import StoppedBySignalError, StopSignals
from millrace.launch.supervisor_link import SupervisorLink
from millrace.planning import run_plan as planner
from millrace.planning.fragment_planning import is_distinct_search_faster
from millrace.planning.run_dir_access import compute_run_dir_mode
from millrace.planning.run_plan import RunPlan
from millrace.rundir import ownership
from millrace.rundir.paths import RunDir


class SearchOnlyBackend(HitListBackend):
    """The backend of a run of which only the searches are wanted: there is nothing to finish."""

    def prepare_fragments(
        self, fragmented: FragmentPlan, folder: Path, cwd: Path, environ: Mapping[str, str]
    ) -> Sequence[str]:
        """See ``DatabaseBackend.prepare_fragments``."""
        own = msgspec.structs.replace(fragmented, backend="")
        return find_backend(own).prepare_fragments(own, folder, cwd, environ)

    def make_candidates(
        self, fragmented: FragmentPlan, folder: Path, cwd: Path, environ: Mapping[str, str], found: Sequence[FragmentOutput], n_records: int,
    ) -> str:  # fmt: skip
        """Write nothing of a batch."""
        (folder / BLOCK).touch()
        return BLOCK


BACKEND = SearchOnlyBackend()


def run_with_equal_queries(
    plan: RunPlan, run: Callable[[RunPlan], FinishedRun], say: Callable[[str], None]
) -> FinishedRun:
    """Run ``plan``, whose equal queries are searched once.

    Args:
        run: Runs a plan.
        say: Prints a message.

    Raises:
        MillraceError: The run was not completed.
    """
    try:
        plan = _begin_with_distinct(plan, say)
    except (NotPackableError, CorruptError, OSError) as error:
        say(f"equal queries: each is searched: {error}")
    return run(plan)


def _begin_with_distinct(plan: RunPlan, say: Callable[[str], None]) -> RunPlan:
    """Search what is equal, and make a run directory with what was found, unless the run has begun."""
    rundir = RunDir(plan.run_dir)
    known = known_candidates.describe_unknown_search(plan)
    with closing(ownership.claim_run_directory(rundir, compute_run_dir_mode(plan))):
        if rundir.has_run():
            return plan
        chosen = list_distinct_queries(known, [True] * len(known.queries))
        known = known._replace(plan=known_candidates.plan_known_search(known, has_known=False, is_kept=False))
        found = search_distinct_queries(known, chosen, len(known.queries), say, is_kept=False)
        batches = list(known_candidates.cut_known_batches(known.plan, known, found, None))
        write_search_journal(known.plan, batches)
        shutil.rmtree(rundir.distinct, ignore_errors=True)
    return known.plan


def list_distinct_queries(known: KnownSearch, wanted: Sequence[bool]) -> list[int]:
    """Return the first place of each sequence among the ``wanted`` queries; empty if it is no faster to search these alone."""
    first: dict[bytes, int] = {}
    for at, query in enumerate(known.queries):
        if wanted[at]:
            first.setdefault(query, at)
    plan, n_wanted = known.plan, sum(wanted)
    adapter, command = registry.find_adapter(plan.command.argv[0]), plan.command.resolved_command
    assert isinstance(adapter, ReusingAdapter)  # its search is known
    size = (command.cwd / plan.use.inputs[0].path).stat().st_size * n_wanted // max(1, len(wanted))
    examine = partial(adapter.examine_database, msgspec.structs.replace(plan.use, fragmented=None), command)
    return list(first.values()) if is_distinct_search_faster(len(first), n_wanted, size, examine) else []


def search_distinct_queries(
    known: KnownSearch, chosen: Sequence[int], n_wanted: int, say: Callable[[str], None], *, is_kept: bool
) -> Mapping[bytes, QueryCandidates]:
    """Search each sequence of some queries once; return what was found; nothing if the search fails.

    Args:
        chosen: Places of the queries that are searched, one for each sequence; see ``list_distinct_queries``.
        n_wanted: Number of the queries that have these sequences.
        is_kept: Whether the candidates are kept in a store, so that the search must be as deep as those are.

    Raises:
        StoppedBySignalError: A signal has stopped the search; the same command continues it.
        OSError: A file cannot be read or written.
    """
    if not chosen:
        return {}
    say(f"{len(chosen):,} of {format_count(n_wanted, 'query')} are different: each is searched once")
    folder = RunDir(known.plan.run_dir).distinct
    folder.mkdir(0o700, exist_ok=True)
    queries = folder / "queries.fasta"
    _write_queries(known.plan, chosen, queries)
    try:
        made = _plan_distinct_search(known, queries, is_kept=is_kept)
        if has_current_hits(made) and read_searched_depth(made) != get_depth(made.use):
            shutil.rmtree(made.run_dir)
        with StopSignals() as signals:
            finished = plan_execution.run_plan(made, SupervisorLink({}))
        if signals.count:
            raise signals.make_error(known.plan.run_dir)
        if finished.code != ExitCode.DONE:
            raise NotPackableError(finished.text)
        searched = known._replace(queries=[known.queries[at] for at in chosen])
        return dict(known_candidates.read_found_candidates(made, searched))
    except StoppedBySignalError:
        raise
    except MillraceError as error:
        say(f"equal queries: each is searched: {error}")
        return {}


def _write_queries(plan: RunPlan, chosen: Sequence[int], dest: Path) -> None:
    """Write the ``chosen`` queries to ``dest``, which stays as it is if it has them already."""
    item, places, n = plan.use.inputs[0], set(chosen), chosen[-1] + 1
    # Not by the rules for batches, which keep some records together.
    reader = _core.Reader([str(plan.command.resolved_command.cwd / item.path)], item.format)
    new, scratch = dest.with_suffix(".new"), dest.with_suffix(".cut")
    with new.open("wb") as file:
        for is_chosen, group in groupby(range(n), places.__contains__):
            size = sum(1 for _ in group)
            if not is_chosen:
                reader.skip(size)
            elif reader.cut(scratch, size, 0, 0):
                file.write(scratch.read_bytes())
    scratch.unlink(missing_ok=True)
    if dest.exists() and filecmp.cmp(new, dest, shallow=False):
        new.unlink()
    else:
        new.replace(dest)


def _plan_distinct_search(known: KnownSearch, queries: Path, *, is_kept: bool) -> RunPlan:
    """Plan the search of ``queries`` for lists of hits.

    Raises:
        MillraceError: The command cannot be run so.
    """
    plan = known.plan
    job = msgspec.structs.replace(
        plan.job, command=tuple(_replace_paths(plan.use, plan.command.argv[0], queries)), run_dir=str(queries.with_name("run")), store="",
        input=(), output=(), join=(), keep_run_dir=True, on_failure="stop", verify=0.0, metrics="", notify="", atomic_output=False,
    )  # fmt: skip
    made = planner.make_plan(job, plan.command.cwd, plan.command.environ)
    use = made.use if made.use.fragmented else treat_as_one_fragment(made.use, made.command)
    adapter = known_candidates.find_reusing_adapter(made)
    use = adapter.plan_reuse(use, made.command, None, known.depth, is_kept=is_kept)
    return msgspec.structs.replace(made, use=end_with_hits(use, made.command, __name__), listed=False)


def _replace_paths(use: ToolUse, program: str, queries: Path) -> Iterator[str]:
    """Yield the words of the user's command, with other queries and no output."""
    yield program
    for token in use.argv[1:]:
        match token:
            case InputArg(prefix=prefix):
                yield f"{prefix}{queries}"
            case OutputArg(prefix=prefix):
                yield f"{prefix}{os.devnull}"
            case str():
                yield token
            case _:
                raise NotPackableError("an argument stands for more than one file")
