"""Plan of a search in fragments: whether it pays, their number and sizes, with the reason.

The decisions (``decide_fragments`` and the like) are pure: everything they depend on is an argument.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import msgspec

from millrace import _core
from millrace.adapters.adapter_base import DatabaseFacts, FragmentingAdapter, ReusingAdapter, ToolAdapter
from millrace.core import text_format
from millrace.core.errors import RefusedError
from millrace.core.job import MAX_FRAGMENTS, JobSpec
from millrace.core.record_digests import split_digests
from millrace.core.tool_use import ArgumentToken, CostHint, FrozenValue, ToolUse, UserCommand
from millrace.host import memory_limits
from millrace.planning.input_sniffing import QueryEstimate
from millrace.planning.program_lookup import find_program

#: Most rounds of fragments, each half as large as the one before: searches get shorter towards the end, so that all
#: slots end together although searches take unequal times. More gain nothing: the last are a 512th of a slot's work.
MAX_ROUNDS = 10

#: Equal fragments, for each slot that should share a query whose length does not tell that it is long.
PARTS_OF_SPREAD = 4

#: Number of queries whose longest is expected to take half of ``CostHint.spread``: of n, it takes n / (n + this) of it.
#: Fitted to the published classes of mpiBLAST-PIO's times, by drawing: 6 of 41 times the mean for 20 queries, 12 for 40,
#: 39 for 1,000.
QUERIES_OF_HALF_SPREAD = 100

#: Least number of slots for such a plan: with fewer, the longest of the queries is seldom long enough, and the batches that
#: slots share at the end are too large a part of the work.
MIN_SLOTS_OF_SPREAD = 8

#: Each query is first searched in a part of the database that tells whether it is long: a 30th if that takes a second, and
#: a tenth at most, as this is all that short queries cost more.
PROBE_PARTS, MIN_PROBE_PARTS = 30, 10

#: Least speed-up that fragments must bring, times their CPU time relative to a search of the whole.
MIN_GAIN = 1.25

#: Least time of a long query that is cut where the mean query is too short for it. Measured, a job of 4 s, half of it one
#: contig, took twice the CPU in fragments.
MIN_LONG_SECONDS = 10.0

#: Share of memory that the database may fill; the rest is for tools, results and the system.
DATABASE_SHARE = 0.8

#: Memory of one tool beside the database, and of Millrace itself, in bytes.
TOOL_BYTES = 64 << 20

#: Fragments in memory at once while a scan passes from one to the next.
OVERLAP = 1.25

#: Work up to which equal queries are searched once, relative to a search of each: the share of different ones, and
#: ``DatabaseFacts.finish``.
MAX_DISTINCT_WORK = 0.9

#: Bytes of the longest input in which equal queries are looked for: that takes memory and time before the start.
MAX_COMPARED_BYTES = 64 << 20

#: Searches that this must save, in units of ``DatabaseFacts.least``: it costs a plan and a run more.
MIN_SAVED_SEARCHES = 2.0

#: Throughput of good storage, in bytes per second: on slower storage fragments pay sooner.
STORAGE_BYTES_PER_SECOND = 500e6


class FragmentDecision(FrozenValue, frozen=True):
    """Sizes of the fragments in which a database is searched, and the reason; one size: searched whole."""

    why: str
    #: Relative sizes, in the order of the fragments.
    sizes: tuple[int, ...] = (1,)
    #: See ``FragmentPlan.is_for_tail``.
    is_for_tail: bool = False

    @property
    def n(self) -> int:
        """Number of fragments."""
        return len(self.sizes)


class QueryShares(FrozenValue, frozen=True):
    """Units of work that slots can share without fragments: queries, or passes that are each searched as a whole."""

    number: int
    #: Residues of all units, and of the largest.
    units: int
    longest: int
    #: Their number, in words.
    told: str


def count_query_shares(queries: QueryEstimate, pass_residues: int) -> QueryShares:
    """Count the units of work that slots can share.

    Args:
        pass_residues: Residues that fill a pass, with the record that reaches them; 0: each query may be searched alone.

    >>> seen = QueryEstimate(records=3, units=900, longest=500, ends=(100, 600, 900))
    >>> count_query_shares(seen, 0).number, count_query_shares(seen, 400), count_query_shares(QueryEstimate(records=100, units=90_000, longest=2000), 10_000).number
    (3, QueryShares(number=2, units=900, longest=600, told='3 queries in 2 passes'), 9)
    """
    told = ("" if queries.complete else "about ") + text_format.format_count(queries.records, "query")
    if not pass_residues:
        return QueryShares(number=queries.records, units=queries.units, longest=queries.longest, told=told)
    if queries.ends:
        ends = [0]
        for end in queries.ends:
            if end - ends[-1] >= pass_residues:
                ends.append(end)
        if ends[-1] < queries.units or len(ends) == 1:
            ends.append(queries.units)
        found = [end - begin for begin, end in pairwise(ends)]
        number, longest = len(found), max(found)
    else:
        usual = pass_residues + queries.units / queries.records / 2
        number = max(1, math.ceil(queries.units / usual))
        longest = min(queries.units, max(queries.longest, int(usual)))
    told = f"{told} in {text_format.format_count(number, 'pass')}"
    return QueryShares(number=number, units=queries.units, longest=longest, told=told)


class SearchFacts(NamedTuple):
    """Arguments of ``decide_by_queries`` and ``decide_fragments`` beside the database, in their order."""

    queries: QueryEstimate | None
    slots: int
    memory: int
    cost: CostHint
    batch: int
    pass_residues: int


def decide_by_queries(
    asked: tuple[int, int], database: DatabaseFacts, queries: QueryEstimate | None, slots: int, memory: int, cost: CostHint,
    batch: int = 0, pass_residues: int = 0,
) -> FragmentDecision | None:  # fmt: skip
    """Decide to search the database whole, where that follows without counting its entries.

    Args:
        asked: (number of fragments, bytes of a fragment) that the user wants; (0, 0): decide.
        database: The database; it can be fragmented, and need not be counted.
        queries: Number and sizes of the queries; None: unknown.
        slots: Tasks that run side by side.
        memory: Bytes of memory for all of them, page cache included.
        batch: Queries of a batch, if the user has fixed them; 0: not fixed.
        pass_residues: See ``count_query_shares``.

    Returns:
        The result of ``decide_fragments`` for any count; None if it depends on the count.
    """
    if asked != (0, 0):
        return None
    if queries is None:
        return FragmentDecision(why="nothing is known of the queries, which come through a pipe")
    if not queries.records:
        return FragmentDecision(why="there are no queries")
    why = _explain_busy_slots(count_query_shares(queries, pass_residues), slots, database.work, cost.spread)
    for_memory = _decide_for_memory(
        database.bytes, queries, slots, memory, _count_database_passes(queries, cost, batch), cost
    )
    if not why or for_memory.n > 1:
        return None
    return FragmentDecision(why=f"{why}, and {for_memory.why}")


def decide_fragments(
    asked: tuple[int, int], database: DatabaseFacts, queries: QueryEstimate | None, slots: int, memory: int, cost: CostHint,
    batch: int = 0, pass_residues: int = 0,
) -> FragmentDecision:  # fmt: skip
    """Choose number and sizes of the fragments.

    Args:
        database: The database; it can be fragmented, and is counted. All others as for ``decide_by_queries``.
    """
    number, size = asked
    most = max(1, min(database.entries, MAX_FRAGMENTS))
    if number:
        n = min(number, most)
        return FragmentDecision(
            why="as asked" if n == number else f"there are no more than {n} entries", sizes=(1,) * n
        )
    if size:
        n = min(max(1, math.ceil(database.bytes / size)), most)
        why = f"as asked: {text_format.format_size(database.bytes)} in parts of {text_format.format_size(size)} at most"
        return FragmentDecision(why=why, sizes=(1,) * n)
    if whole := decide_by_queries(asked, database, queries, slots, memory, cost, batch, pass_residues):
        return whole
    if most == 1:
        return FragmentDecision(why="the database has one entry")
    assert queries is not None  # or it would have been decided
    for_memory = _decide_for_memory(
        database.bytes, queries, slots, memory, _count_database_passes(queries, cost, batch), cost
    )
    for_slots = _decide_for_slots(database, count_query_shares(queries, pass_residues), slots, most, cost.spread)
    if for_memory.n == for_slots.n == 1:
        return FragmentDecision(why=f"{for_slots.why}, and {for_memory.why}")
    if for_memory.n == 1:
        return for_slots
    # Equal sizes, so that the largest fits into memory.
    best = max(for_slots, for_memory, key=lambda decision: decision.n)
    return FragmentDecision(why=best.why, sizes=(1,) * min(best.n, most))


def count_block_fragments(blocks: int, wanted: int, entries: int) -> int:
    """Return the number of fragments of a file in ``blocks`` blocks: one or more a block, at least ``wanted``.

    >>> count_block_fragments(4, 2, 1000), count_block_fragments(4, 6, 1000), count_block_fragments(50_000, 6, 10**6) == MAX_FRAGMENTS
    (4, 8, True)
    """
    return min(blocks * math.ceil(wanted / blocks), MAX_FRAGMENTS, entries)


def _count_database_passes(queries: QueryEstimate, cost: CostHint, batch: int) -> float:
    """Return how often the database is read from end to end."""
    passes = queries.units / cost.pass_units if cost.pass_units else queries.records
    return max(passes, queries.records / batch) if batch else passes


def _decide_for_memory(
    size: int, queries: QueryEstimate, slots: int, memory: int, passes: float, cost: CostHint
) -> FragmentDecision:
    """Choose fragments that fit into memory, if the database does not and is read repeatedly."""
    free = max(memory - (slots + 1) * TOOL_BYTES, memory // 4) * DATABASE_SHARE
    if size <= free:
        return FragmentDecision(why="the database fits into memory")
    # All batches share one scan, so memory for one fragment and part of the next is enough. A slot for which there is
    # no batch works on a fragment of its own.
    n = math.ceil(size * max(OVERLAP, math.ceil(slots / queries.records)) / free)
    saved = (passes - 1) * size / STORAGE_BYTES_PER_SECOND
    starts = passes * (n + 1) * cost.startup_seconds / slots
    sizes = f"the database has {text_format.format_size(size)}, for which {text_format.format_size(free)} of memory are free"
    if saved < 2 * starts:
        return FragmentDecision(why=f"{sizes}, but to read it again costs less than {n} searches of parts")
    why = f"{sizes}: all queries search parts of {text_format.format_size(size / n)}, one after another"
    return FragmentDecision(why=why, sizes=(1,) * min(n, MAX_FRAGMENTS))


def _explain_busy_slots(found: QueryShares, slots: int, work: float, spread: float) -> str:
    """Explain why the queries alone keep every slot busy to the end; empty if they do not."""
    if slots == 1:
        return "there is one slot"
    gain = max(_estimate_speedup(found, slots), _estimate_speedup_of_spread(found, slots, spread))
    return f"{found.told} keep {slots} slots busy" if gain < MIN_GAIN * work else ""


def _decide_for_slots(
    database: DatabaseFacts, found: QueryShares, slots: int, most: int, spread: float
) -> FragmentDecision:
    """Choose fragments that keep every slot busy to the end, if the queries alone are too few."""
    if why := _explain_busy_slots(found, slots, database.work, spread):
        return FragmentDecision(why=why)
    told_by_length = _estimate_speedup(found, slots) >= MIN_GAIN * database.work
    seconds = float(database.residues) / database.least
    affordable = min(int(found.units * seconds / found.number), most)
    # Only queries that could end last are searched in fragments.
    if told_by_length and found.longest * seconds >= MIN_LONG_SECONDS:
        affordable = min(int(found.longest * seconds), most)
    if affordable < (2 if told_by_length else MIN_PROBE_PARTS):
        return FragmentDecision(why=f"the search of the {found.told} is too short to gain by it")
    if not told_by_length:
        return _decide_for_spread(found, slots, affordable, spread)
    # Number of slots that should share the longest query so that all end together.
    together = math.ceil(found.longest * slots / found.units)
    sizes = taper_fragment_sizes(together, affordable, most)
    gain = _estimate_speedup(found, slots, max(sizes) / sum(sizes))
    return FragmentDecision(
        why=f"{found.told} with {text_format.format_scaled(found.longest)} residues at most would leave slots without work: "
        f"{len(sizes)} fragments make that {text_format.format_scaled(gain)} times faster at best",
        sizes=sizes,
        is_for_tail=found.number > 1,
    )


def _decide_for_spread(found: QueryShares, slots: int, most: int, spread: float) -> FragmentDecision:
    """Choose fragments for queries whose lengths do not tell which of them take long.

    Args:
        most: Maximum number of fragments, at least ``MIN_PROBE_PARTS``; this many equal ones take a second each.
    """
    longest = _estimate_longest(found, spread)
    together = math.ceil(min(longest / found.number, 1.0) * slots)
    n = min(max(2, PARTS_OF_SPREAD * together), most)
    # The last one, which is searched first, is smaller if the others are large.
    parts = math.ceil(min(PROBE_PARTS, most) / n)
    return FragmentDecision(
        why=f"of {found.told} for {slots} slots, one may take {longest:.0f} times the mean, whatever its length",
        sizes=(*(parts,) * (n - 1), *((parts,) if parts == 1 else (parts - 1, 1))),
        is_for_tail=True,
    )


def _estimate_speedup(found: QueryShares, slots: int, part: float = 0.0) -> float:
    """Estimate the best possible speed-up if slots share each unit of work instead of having one each.

    Args:
        part: Share of the database in the largest fragment; 0: fragments can be as small as needed.
    """
    mean = found.units / found.number
    alone = max(found.longest, math.ceil(found.number / slots) * mean)
    return alone / max(found.units / slots, found.longest * part, 1 / slots)


def _estimate_speedup_of_spread(found: QueryShares, slots: int, spread: float) -> float:
    """Estimate the same where lengths do not tell which query takes long, and the longest begins last."""
    if slots < MIN_SLOTS_OF_SPREAD:
        return 1.0
    return 1.0 + (1.0 - 1.0 / slots) * _estimate_longest(found, spread) * slots / found.number


def _estimate_longest(found: QueryShares, spread: float) -> float:
    """Estimate how many times the mean the longest query takes; 0: its length tells."""
    return spread * found.number / (found.number + QUERIES_OF_HALF_SPREAD) if spread > 1.0 else 0.0


def taper_fragment_sizes(together: int, affordable: int, most: int) -> tuple[int, ...]:
    """Return relative sizes of fragments in rounds, each of half the size of the one before; the last two are equal.

    With several rounds, the first is half of the database. So no search is longer than half the work of a slot, and
    slots end within one of the smallest searches of each other.

    Args:
        together: Slots that share one query, which is the number of fragments of a round.
        affordable: Most parts of equal size into which the database may be cut, at least 2.
        most: Most fragments, at least 2.

    Source: factoring (Hummel, Schonberg, Flynn, CACM 35, 1992).

    >>> taper_fragment_sizes(2, 16, 4096), taper_fragment_sizes(2, 3, 4096), taper_fragment_sizes(100, 16, 4096)
    ((4, 4, 2, 2, 1, 1, 1, 1), (1, 1), (1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1))
    """
    n = max(2, together)
    if n >= min(affordable, most):
        return (1,) * min(n, affordable, most)
    rounds = max(1, min(MAX_ROUNDS, 1 + int(math.log2(affordable / n)), most // n))
    halves = [1 << max(rounds - 2 - k, 0) for k in range(rounds)]
    return tuple(size for size in halves for _ in range(n))


#: Note for a file in HDFS that nodes cannot fetch in pieces.
_PASSED_ON = "; the file in HDFS is fetched as a whole and passed on from node to node"


def should_sample_queries(job: JobSpec, use: ToolUse, adapter: ToolAdapter) -> bool:
    """Tell whether the plan needs query sizes: for the number of fragments, or for batches of measured size."""
    if not use.inputs:
        return False
    fragments_open = isinstance(adapter, FragmentingAdapter) and job.fragment_size == (0, 0)
    return fragments_open or (job.batch_size == (0, 0) and use.cost.max_records != 1)


def plan_fragments(
    job: JobSpec, use: ToolUse, command: UserCommand, adapter: ToolAdapter, slots: int, queries: QueryEstimate | None,
    *, spread: bool = False,
) -> tuple[ToolUse, str]:  # fmt: skip
    """Plan the search of the database in fragments where asked for or faster; return the use and the reason.

    Args:
        spread: Whether the run has several nodes, which may keep volumes of the database.

    Raises:
        RefusedError: The user asks for fragments where the result would not be exact.
    """
    asked = job.fragment_size
    wanted = asked[0] > 1 or asked[1] > 0
    if not isinstance(adapter, FragmentingAdapter):
        if wanted:
            raise RefusedError(
                f"--fragments {job.fragments}: {command.argv[0]} has no database that is known to be exact in fragments",
                "leave --fragments out",
            )
        if job.replicas and spread:
            from millrace.planning import volume_keeping  # as below

            raise volume_keeping.make_refusal(job, f"{command.argv[0]} has no database that nodes can keep by volumes")
        return use, ""
    if asked == (1, 0):
        return use, "fragments: 1, as asked"
    database = adapter.examine_database(use, command)
    if command.view and command.view.later:
        return _fragment_by_volumes(job, use, command, adapter, database)
    if spread and asked == (0, 0) and not (command.view and command.view.in_pieces):
        planned = _fragment_in_place(job, use, command, adapter, database)
        if planned:
            return planned
    known = SearchFacts(
        queries,
        slots,
        memory_limits.read_usable_memory()[0],
        use.cost,
        job.batch_size[0],
        use.inputs[0].pass_residues if use.inputs else 0,
    )
    if command.view and command.view.in_pieces:
        return _fragment_by_blocks(use, command, adapter, database, known)
    decision = None if database.why_not else decide_by_queries(asked, database, *known)
    if decision is None and database.count:
        database = database.count()
    if database.why_not:
        if wanted:
            raise RefusedError(f"--fragments {job.fragments}: {database.why_not}", "leave --fragments out")
        return use, f"fragments: 1; {database.why_not}"
    decision = decision or decide_fragments(asked, database, *known)
    if decision.n == 1:
        return use, f"fragments: 1; {decision.why}"
    use = resolve_fragment_programs(adapter.plan_fragments(use, command, decision.sizes), command)
    if use.fragmented and decision.is_for_tail:
        fragmented = msgspec.structs.replace(use.fragmented, is_for_tail=True)
        use = msgspec.structs.replace(use, fragmented=fragmented)
    return use, f"fragments: {use.n_fragments or 1}; {decision.why}"


def has_equal_queries(job: JobSpec, use: ToolUse, command: UserCommand, adapter: ToolAdapter) -> bool:
    """Tell whether a run is faster if equal queries are searched once, and then finished one by one."""
    if not isinstance(adapter, ReusingAdapter) or len(use.inputs) != 1 or use.inputs[0].pass_residues:
        return False
    path = command.cwd / use.inputs[0].path
    if job.fragments != "auto" or job.fresh or job.dask or command.view or command.growing or not path.is_file():
        return False
    try:
        size = path.stat().st_size
        if size > MAX_COMPARED_BYTES:
            return False
        records, sequences, _ = _core.Reader([str(path)], use.inputs[0].format).digest_records()
    except (OSError, _core.RecordError):
        return False  # the run reports it
    digests = split_digests(sequences if use.inputs[0].format == "fasta" else records)
    examine = partial(adapter.examine_database, use, command)
    return is_distinct_search_faster(len(set(digests)), len(digests), size, examine)


def is_distinct_search_faster(
    n_distinct: int, n_queries: int, query_bytes: int, examine: Callable[[], DatabaseFacts]
) -> bool:
    """Tell whether it is faster to search ``n_distinct`` of ``n_queries``, of ``query_bytes`` in all, before the run.

    Args:
        examine: Examines the database, which is counted only if there are equal queries.

    >>> large, small = (partial(DatabaseFacts, residues=n, least=2e10) for n in (10_000_000, 1_000_000))
    >>> [is_distinct_search_faster(n, 100, 50_000, large) for n in (25, 70)], is_distinct_search_faster(25, 100, 50_000, small)
    ([True, False], False)
    """
    if n_distinct == n_queries:
        return False
    database = examine()
    if database.why_not or n_distinct / n_queries + database.finish > MAX_DISTINCT_WORK:
        return False
    if database.count:
        database = database.count()
    saved = (1 - n_distinct / n_queries) * query_bytes * database.residues
    return saved > MIN_SAVED_SEARCHES * database.least


def _fragment_by_volumes(
    job: JobSpec, use: ToolUse, command: UserCommand, adapter: FragmentingAdapter, database: DatabaseFacts
) -> tuple[ToolUse, str]:
    """Plan one search for each volume of a database behind a URL, each at a node that keeps it."""
    from millrace.planning import volume_keeping  # few runs need it

    assert command.view
    later = command.view.later
    if database.why_not:
        if job.replicas:
            raise volume_keeping.make_refusal(job, database.why_not)
        return use, f"fragments: 1; {database.why_not}"
    use = resolve_fragment_programs(adapter.plan_fragments(use, command, (), later), command)
    assert use.fragmented
    fragmented = msgspec.structs.replace(use.fragmented, kept=volume_keeping.make_keeping(job, later[0].place))
    use = msgspec.structs.replace(use, fragmented=fragmented)
    return use, f"fragments: {use.n_fragments}; {volume_keeping.describe_keeping(fragmented)}"


def _fragment_in_place(
    job: JobSpec, use: ToolUse, command: UserCommand, adapter: FragmentingAdapter, database: DatabaseFacts
) -> tuple[ToolUse, str] | None:
    """Plan one search for each volume of a database that all nodes mount, where asked for or too large; None: neither."""
    from millrace.planning import volume_keeping  # as above

    is_large = volume_keeping.is_too_large(database.bytes, memory_limits.read_usable_memory()[0]) and job.stage != "off"
    if not job.replicas and (database.why_not or not is_large):
        return None
    found, why = (use, database.why_not)
    if not why:
        found, why = volume_keeping.plan_volumes_in_place(job, use, command, adapter)
    if why:
        if job.replicas:
            raise volume_keeping.make_refusal(job, why)
        return None
    found = resolve_fragment_programs(found, command)
    assert found.fragmented
    return found, f"fragments: {found.n_fragments}; {volume_keeping.describe_keeping(found.fragmented)}"


def _fragment_by_blocks(
    use: ToolUse, command: UserCommand, adapter: FragmentingAdapter, database: DatabaseFacts, known: SearchFacts
) -> tuple[ToolUse, str]:
    """Plan one search or more for each block of a file in HDFS, each at the node that reads it best."""
    assert command.view
    database = database.count() if database.count else database
    if database.why_not:
        return use, f"fragments: 1; {database.why_not}{_PASSED_ON}"
    wanted = decide_fragments((0, 0), database, *known)
    n = count_block_fragments(max(command.view.in_pieces.values()), max(wanted.n, known.slots), database.entries)
    use = resolve_fragment_programs(adapter.plan_fragments(use, command, (1,) * n), command)
    return (
        use,
        f"fragments: {use.n_fragments}; the blocks in HDFS, each searched by a node that holds it where one does",
    )


def resolve_fragment_programs(use: ToolUse, command: UserCommand) -> ToolUse:
    """Resolve the programs that search fragments and candidates, where they differ from the user's program.

    Raises:
        ToolError: One is not found.
    """
    parts = use.fragmented
    if not parts:
        return use

    def resolve_program(argv: tuple[ArgumentToken, ...]) -> tuple[ArgumentToken, ...]:
        if argv[0] == use.argv[0]:
            return argv
        return (str(find_program(str(argv[0]), command.cwd, command.environ)), *argv[1:])

    replace = msgspec.structs.replace
    parts = replace(
        parts,
        fragments=tuple(replace(part, argv=resolve_program(part.argv)) for part in parts.fragments),
        finish=resolve_program(parts.finish),
    )
    return replace(use, fragmented=parts)
