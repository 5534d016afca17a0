"""How often the tasks of a node will read a database: batches, times the passes that a tool makes over it for each. Pure, but for a look at the input.

Batches are those that `millrace.schedule.sizing` would cut of the input, from what is known of the tool's cost before the run.
"""

from __future__ import annotations

import math

from millrace.model import CostHint, ToolUse
from millrace.plan.plan import Plan
from millrace.plan.queries import Queries, look
from millrace.schedule.sizing import CostModel, next_units

#: Batches that a slot works on in a run, at least, where nothing is known: large ones first, then small ones so that all end
#: together.
BATCHES = 4

#: Batches that are counted one by one; of more, those that follow are taken to be like these.
COUNTED = 10_000

#: Adapters of programs that read the database once for each record.
ONCE_A_RECORD = frozenset(["hmmer", "infernal"])


def of_plan(plan: Plan, slots: int, nodes: int) -> int:
    """`expected` for a plan, with a look at its queries.

    Args:
        slots: Of one node.
    """
    use, command = plan.use, plan.command
    queries = look(use.inputs[0], command.seen.cwd) if len(use.inputs) == 1 else None
    return expected(use, plan.job.batch_size, queries, slots, nodes)


def expected(use: ToolUse, fixed: tuple[int, int], queries: Queries | None, slots: int, nodes: int = 1) -> int:
    """How often one node reads all of it.

    Args:
        fixed: The user's batch size (records, bytes); (0, 0): it is measured.
        queries: What is known of the input; None: nothing.
        slots: Of one node; ``nodes`` share the work evenly.
    """
    slots = max(1, slots)
    if queries is None or not queries.records:
        return slots * BATCHES
    if use.adapter in ONCE_A_RECORD:
        return max(1, math.ceil(queries.records / nodes))
    return max(1, math.ceil(_passes(use.cost, fixed, queries, slots * nodes) / nodes))


def _passes(cost: CostHint, fixed: tuple[int, int], queries: Queries, slots: int) -> float:
    """Passes of all batches.

    >>> queries = Queries(records=100, units=30_000, longest=300)
    >>> _passes(CostHint(unit="residues"), (10, 0), queries, 4)
    10
    >>> _passes(CostHint(unit="residues", pass_units=1000), (10, 0), queries, 4)
    30
    >>> _passes(CostHint(unit="residues"), (0, 0), queries, 4)
    16
    """
    units = max(queries.units, queries.records)
    mean = units / queries.records
    records, n_bytes = min((each for each in (fixed[0], cost.max_records) if each), default=0), fixed[1]
    model = CostModel(cost)
    if records or n_bytes or not model.per_unit:
        size = min(
            records * mean or n_bytes or units / (slots * BATCHES), units
        )  # residues are nearly all bytes of a record
        return math.ceil(units / max(size, mean)) * _passes_of(max(size, mean), cost)
    whole, least = (float(queries.records), 1.0) if cost.unit == "records" else (float(units), mean)
    left, total = whole, 0
    for _ in range(COUNTED):
        size = min(
            left, max(next_units(model, slots, left), least)
        )  # a batch ends with the record that reaches its size
        total, left = total + _passes_of(size, cost), left - size
        if left <= 0:
            break
    return total * whole / (whole - left)


def _passes_of(units: float, cost: CostHint) -> int:
    """Of one batch."""
    return max(1, math.ceil(units / cost.pass_units)) if cost.pass_units else 1
