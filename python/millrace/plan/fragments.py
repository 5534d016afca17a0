"""Number and sizes of the fragments of a database, with the reason. Pure: everything it depends on is an argument."""

from __future__ import annotations

import math
from itertools import pairwise

from millrace import words
from millrace.job import MOST_FRAGMENTS
from millrace.model import CostHint, Frozen
from millrace.plan.queries import Queries
from millrace.tools.base import Fragmentable

#: Most rounds of fragments, each half as large as the one before: searches get shorter towards the end, so that all
#: slots end together although searches take unequal times. More gain nothing: the last are a 512th of a slot's work.
MOST_ROUNDS = 10

#: Least speed-up that fragments must bring, times their CPU time relative to a search of the whole.
LEAST_GAIN = 1.25

#: Share of memory that the database may fill; the rest is for tools, results and the system.
DATABASE_SHARE = 0.8

#: Memory of one tool beside the database, and of Millrace itself, in bytes.
TOOL_BYTES = 64 << 20

#: Fragments in memory at once while a scan passes from one to the next.
OVERLAP = 1.25

#: Throughput of good storage, in bytes per second: on slower storage fragments pay sooner.
STORAGE = 500e6


class Decision(Frozen, frozen=True):
    """Sizes of the fragments in which a database is searched, and the reason; one size: searched whole."""

    why: str
    #: Relative sizes, in the order of the fragments.
    sizes: tuple[int, ...] = (1,)

    @property
    def n(self) -> int:
        """Number of fragments."""
        return len(self.sizes)


class Shares(Frozen, frozen=True):
    """Units of work that slots can share without fragments: queries, or passes that are each searched as a whole."""

    number: int
    #: Residues of all units, and of the largest.
    units: int
    longest: int
    #: Their number, in words.
    told: str


def shares(queries: Queries, pass_residues: int) -> Shares:
    """Count the units of work that slots can share.

    Args:
        pass_residues: Residues that fill a pass, with the record that reaches them; 0: each query may be searched alone.

    >>> seen = Queries(records=3, units=900, longest=500, ends=(100, 600, 900))
    >>> shares(seen, 0).number, shares(seen, 400), shares(Queries(records=100, units=90_000, longest=2000), 10_000).number
    (3, Shares(number=2, units=900, longest=600, told='3 queries in 2 passes'), 9)
    """
    told = ("" if queries.complete else "about ") + words.count(queries.records, "query")
    if not pass_residues:
        return Shares(number=queries.records, units=queries.units, longest=queries.longest, told=told)
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
    told = f"{told} in {words.count(number, 'pass')}"
    return Shares(number=number, units=queries.units, longest=longest, told=told)


def by_queries(
    asked: tuple[int, int], database: Fragmentable, queries: Queries | None, slots: int, memory: int, cost: CostHint,
    batch: int = 0, pass_residues: int = 0,
) -> Decision | None:  # fmt: skip
    """Decide to search the database whole, where that follows without counting its entries.

    Args:
        asked: (number of fragments, bytes of a fragment) that the user wants; (0, 0): decide.
        database: The database; it can be fragmented, and need not be counted.
        queries: Number and sizes of the queries; None: unknown.
        slots: Tasks that run side by side.
        memory: Bytes of memory for all of them, page cache included.
        batch: Queries of a batch, if the user has fixed them; 0: not fixed.
        pass_residues: See ``shares``.

    Returns:
        The result of ``decide`` for any count; None if it depends on the count.
    """
    if asked != (0, 0):
        return None
    if queries is None:
        return Decision(why="nothing is known of the queries, which come through a pipe")
    if not queries.records:
        return Decision(why="there are no queries")
    why = _slots_busy(shares(queries, pass_residues), slots, database.work)
    for_memory = _for_memory(database.bytes, queries, slots, memory, _passes(queries, cost, batch), cost)
    if not why or for_memory.n > 1:
        return None
    return Decision(why=f"{why}, and {for_memory.why}")


def decide(
    asked: tuple[int, int], database: Fragmentable, queries: Queries | None, slots: int, memory: int, cost: CostHint,
    batch: int = 0, pass_residues: int = 0,
) -> Decision:  # fmt: skip
    """Choose number and sizes of the fragments.

    Args:
        database: The database; it can be fragmented, and is counted. All others as for ``by_queries``.
    """
    number, size = asked
    most = max(1, min(database.entries, MOST_FRAGMENTS))
    if number:
        n = min(number, most)
        return Decision(why="as asked" if n == number else f"there are no more than {n} entries", sizes=(1,) * n)
    if size:
        n = min(max(1, math.ceil(database.bytes / size)), most)
        why = f"as asked: {words.size(database.bytes)} in parts of {words.size(size)} at most"
        return Decision(why=why, sizes=(1,) * n)
    if whole := by_queries(asked, database, queries, slots, memory, cost, batch, pass_residues):
        return whole
    if most == 1:
        return Decision(why="the database has one entry")
    assert queries is not None  # or it would have been decided
    for_memory = _for_memory(database.bytes, queries, slots, memory, _passes(queries, cost, batch), cost)
    for_slots = _for_slots(database, shares(queries, pass_residues), slots, most)
    if for_memory.n == for_slots.n == 1:
        return Decision(why=f"{for_slots.why}, and {for_memory.why}")
    if for_memory.n == 1:
        return for_slots
    # Equal sizes, so that the largest fits into memory.
    best = max(for_slots, for_memory, key=lambda decision: decision.n)
    return Decision(why=best.why, sizes=(1,) * min(best.n, most))


def of_blocks(blocks: int, wanted: int, entries: int) -> int:
    """Return the number of fragments of a file in ``blocks`` blocks: one or more a block, at least ``wanted``.

    >>> of_blocks(4, 2, 1000), of_blocks(4, 6, 1000), of_blocks(50_000, 6, 10**6) == MOST_FRAGMENTS
    (4, 8, True)
    """
    return min(blocks * math.ceil(wanted / blocks), MOST_FRAGMENTS, entries)


def _passes(queries: Queries, cost: CostHint, batch: int) -> float:
    """Return how often the database is read from end to end."""
    passes = queries.units / cost.pass_units if cost.pass_units else queries.records
    return max(passes, queries.records / batch) if batch else passes


def _for_memory(size: int, queries: Queries, slots: int, memory: int, passes: float, cost: CostHint) -> Decision:
    """Choose fragments that fit into memory, if the database does not and is read repeatedly."""
    free = max(memory - (slots + 1) * TOOL_BYTES, memory // 4) * DATABASE_SHARE
    if size <= free:
        return Decision(why="the database fits into memory")
    # All batches share one scan, so memory for one fragment and part of the next is enough. A slot for which there is
    # no batch works on a fragment of its own.
    n = math.ceil(size * max(OVERLAP, math.ceil(slots / queries.records)) / free)
    saved = (passes - 1) * size / STORAGE
    starts = passes * (n + 1) * cost.startup_seconds / slots
    sizes = f"the database has {words.size(size)}, for which {words.size(free)} of memory are free"
    if saved < 2 * starts:
        return Decision(why=f"{sizes}, but to read it again costs less than {n} searches of parts")
    why = f"{sizes}: all queries search parts of {words.size(size / n)}, one after another"
    return Decision(why=why, sizes=(1,) * min(n, MOST_FRAGMENTS))


def _slots_busy(found: Shares, slots: int, work: float) -> str:
    """Explain why the queries alone keep every slot busy to the end; empty if they do not."""
    if slots == 1:
        return "there is one slot"
    return f"{found.told} keep {slots} slots busy" if _gain(found, slots) < LEAST_GAIN * work else ""


def _for_slots(database: Fragmentable, found: Shares, slots: int, most: int) -> Decision:
    """Choose fragments that keep every slot busy to the end, if the queries alone are too few."""
    if why := _slots_busy(found, slots, database.work):
        return Decision(why=why)
    affordable = min(int(found.units * float(database.residues) / found.number / database.least), most)
    if affordable < 2:
        return Decision(why=f"the search of the {found.told} is too short to gain by it")
    # Number of slots that should share the longest query so that all end together.
    together = math.ceil(found.longest * slots / found.units)
    sizes = tapered(together, affordable, most)
    gain = _gain(found, slots, max(sizes) / sum(sizes))
    return Decision(
        why=f"{found.told} with {words.scaled(found.longest)} residues at most would leave slots without work: "
        f"{len(sizes)} fragments make that {words.scaled(gain)} times faster at best",
        sizes=sizes,
    )


def _gain(found: Shares, slots: int, part: float = 0.0) -> float:
    """Estimate the best possible speed-up if slots share each unit of work instead of having one each.

    Args:
        part: Share of the database in the largest fragment; 0: fragments can be as small as needed.
    """
    mean = found.units / found.number
    alone = max(found.longest, math.ceil(found.number / slots) * mean)
    return alone / max(found.units / slots, found.longest * part, 1 / slots)


def tapered(together: int, affordable: int, most: int) -> tuple[int, ...]:
    """Return relative sizes of fragments in rounds, each of half the size of the one before; the last two are equal.

    With several rounds, the first is half of the database. So no search is longer than half the work of a slot, and
    slots end within one of the smallest searches of each other.

    Args:
        together: Slots that share one query, which is the number of fragments of a round.
        affordable: Most parts of equal size into which the database may be cut, at least 2.
        most: Most fragments, at least 2.

    Source: factoring (Hummel, Schonberg, Flynn, CACM 35, 1992).

    >>> tapered(2, 16, 4096), tapered(2, 3, 4096), tapered(100, 16, 4096)
    ((4, 4, 2, 2, 1, 1, 1, 1), (1, 1), (1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1))
    """
    n = max(2, together)
    if n >= min(affordable, most):
        return (1,) * min(n, affordable, most)
    rounds = max(1, min(MOST_ROUNDS, 1 + int(math.log2(affordable / n)), most // n))
    halves = [1 << max(rounds - 2 - k, 0) for k in range(rounds)]
    return tuple(size for size in halves for _ in range(n))
