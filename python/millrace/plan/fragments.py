"""In how many fragments a database is searched, and why. Pure: all that it depends on is an argument."""

from __future__ import annotations

import math

from millrace.job import MOST_FRAGMENTS
from millrace.model import CostHint, Frozen
from millrace.plan.queries import Queries
from millrace.report import words
from millrace.tools.base import Fragmentable

#: Tasks that each slot should get, so that all end together although fragments take unequal times.
TASKS_A_SLOT = 4

#: Queries x database (residues) below which a search of a fragment is mostly the tool's start: about a second.
LEAST_CELLS = 2e10

#: Fragments must make it faster by this factor at least, as each costs a start and the search of the candidates.
LEAST_GAIN = 1.25

#: Share of the memory that the database may fill; the rest is for tools, results and the system.
DATABASE_SHARE = 0.8

#: Memory of one tool beside the database, and of our own, in bytes.
TOOL_BYTES = 64 << 20

#: Bytes per second that storage gives, where it is good: less makes fragments pay sooner.
STORAGE = 500e6


class Decision(Frozen, frozen=True):
    """How many fragments; 1: the database is searched as a whole."""

    n: int
    why: str


def decide(
    asked: tuple[int, int], database: Fragmentable, queries: Queries | None, slots: int, memory: int, cost: CostHint,
    batch: int = 0,
) -> Decision:  # fmt: skip
    """Choose the number of fragments.

    Args:
        asked: (number, bytes of a fragment) that the user wants; (0, 0): decide.
        database: What is searched; it can be fragmented.
        queries: What is known of the queries; None: nothing.
        slots: Tasks side by side.
        memory: Bytes of memory for all of them, page cache included.
        batch: Queries of a batch, if the user has fixed them.
    """
    number, size = asked
    most = max(1, min(database.entries, MOST_FRAGMENTS))
    if number:
        n = min(number, most)
        return Decision(n=n, why="as asked" if n == number else f"there are no more than {n} entries")
    if size:
        n = min(max(1, math.ceil(database.bytes / size)), most)
        return Decision(n=n, why=f"as asked: {words.size(database.bytes)} in parts of {words.size(size)} at most")
    if queries is None:
        return Decision(n=1, why="nothing is known of the queries, which come through a pipe")
    if not queries.records:
        return Decision(n=1, why="there are no queries")
    for_memory = _for_memory(database, queries, slots, memory, _passes(queries, cost, batch), cost)
    for_slots = _for_slots(database, queries, slots)
    if for_memory.n == for_slots.n == 1:
        return Decision(n=1, why=f"{for_slots.why}, and {for_memory.why}")
    best = for_memory if for_memory.n > for_slots.n else for_slots
    return Decision(n=min(best.n, most), why=best.why)


def _passes(queries: Queries, cost: CostHint, batch: int) -> float:
    """How often the database is read from one end to the other."""
    passes = queries.units / cost.pass_units if cost.pass_units else queries.records
    return max(passes, queries.records / batch) if batch else passes


def _for_memory(
    database: Fragmentable, queries: Queries, slots: int, memory: int, passes: float, cost: CostHint
) -> Decision:
    """As many that those at work fit into memory, if the database does not and is read again and again."""
    free = max(memory - (slots + 1) * TOOL_BYTES, memory // 4) * DATABASE_SHARE
    if database.bytes <= free:
        return Decision(n=1, why="the database fits into memory")
    # All batches share one scan, which is on two fragments when it goes on to the next; a slot that no batch is
    # left for works on one of its own.
    at_work = max(2, math.ceil(slots / queries.records))
    n = math.ceil(database.bytes * at_work / free)
    saved = (passes - 1) * database.bytes / STORAGE
    starts = passes * (n + 1) * cost.startup_seconds / slots
    sizes = f"the database has {words.size(database.bytes)}, for which {words.size(free)} of memory are free"
    if saved < 2 * starts:
        return Decision(n=1, why=f"{sizes}, but to read it again costs less than {n} searches of parts")
    return Decision(
        n=n,
        why=f"{sizes}: {at_work} fragments of {words.size(database.bytes / n)} fit, "
        "and are searched by all queries in turn",
    )


def _for_slots(database: Fragmentable, queries: Queries, slots: int) -> Decision:
    """As many that every slot has work to the end, if the queries alone are too few for that."""
    if slots == 1:
        return Decision(n=1, why="there is one slot")
    n_queries = ("" if queries.complete else "about ") + words.count(queries.records, "query")
    mean = queries.units / queries.records
    alone = max(queries.longest, math.ceil(queries.records / slots) * mean)
    gain = alone * slots / max(queries.units, 1)
    if gain < LEAST_GAIN:
        return Decision(n=1, why=f"{n_queries} keep {slots} slots busy")
    affordable = int(queries.units * float(database.residues) / queries.records / LEAST_CELLS)
    if affordable < 2:
        return Decision(n=1, why=f"the search of the {n_queries} is too short to gain by it")
    n = max(math.ceil(TASKS_A_SLOT * slots / queries.records), 2)
    n = min(n, affordable)
    if n > slots:
        n -= n % slots  # whole rounds, of one query
    return Decision(
        n=n,
        why=f"{n_queries} with {words.scaled(queries.longest)} residues at most would leave slots without work: "
        f"{n} fragments make that {words.scaled(gain)} times faster at best",
    )
