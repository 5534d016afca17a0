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

#: Memory of one tool beside the database, in bytes.
TOOL_BYTES = 48 << 20


class Decision(Frozen, frozen=True):
    """How many fragments; 1: the database is searched as a whole."""

    n: int
    why: str


def decide(
    asked: tuple[int, int], database: Fragmentable, queries: Queries | None, slots: int, memory: int, cost: CostHint
) -> Decision:
    """Choose the number of fragments.

    Args:
        asked: (number, bytes of a fragment) that the user wants; (0, 0): decide.
        database: What is searched; it can be fragmented.
        queries: What is known of the queries; None: nothing.
        slots: Tasks side by side.
        memory: Bytes of memory for all of them, page cache included.
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
    for_memory = _for_memory(database, queries, slots, memory, cost)
    for_slots = _for_slots(database, queries, slots)
    best = for_memory if for_memory.n > for_slots.n else for_slots
    return Decision(n=min(best.n, most), why=best.why)


def _for_memory(database: Fragmentable, queries: Queries, slots: int, memory: int, cost: CostHint) -> Decision:
    """As many that those at work fit into memory, if the database does not and is read more than once."""
    free = max(memory - slots * TOOL_BYTES, memory // 4) * DATABASE_SHARE
    passes = queries.units / cost.pass_units if cost.pass_units else queries.records
    if database.bytes <= free or passes < 2:
        return Decision(n=1, why="")
    # All batches share one scan, which is on two fragments when it goes on to the next; a slot that no batch is
    # left for works on one of its own.
    at_work = max(2, math.ceil(slots / queries.records))
    n = math.ceil(database.bytes * at_work / free)
    return Decision(
        n=n,
        why=f"the database has {words.size(database.bytes)}, for which {words.size(free)} of memory are free: "
        f"{at_work} fragments of {words.size(database.bytes / n)} fit, and are searched by all queries in turn",
    )


def _for_slots(database: Fragmentable, queries: Queries, slots: int) -> Decision:
    """As many that every slot has work to the end, if the queries alone are too few for that."""
    if slots == 1:
        return Decision(n=1, why="there is one slot, and the database fits into memory")
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
