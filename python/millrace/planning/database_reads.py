"""Estimated number of reads of a database by the tasks of a node: batches, times the passes of the tool for each.

Batches are those that ``millrace.scheduler.batch_sizing`` would cut, by the cost that is known before the run. Pure, except
that ``estimate_plan_reads`` reads the beginning of the input.
"""

from __future__ import annotations

import math

from millrace.core.tool_use import CostHint, ToolUse
from millrace.planning.input_sniffing import QueryEstimate, sample_queries
from millrace.planning.run_plan import RunPlan
from millrace.scheduler.batch_sizing import CostModel, compute_batch_units

#: Assumed batches of a slot where nothing is known, the least of a run: large ones first, then small ones so that all
#: slots end together.
MIN_BATCHES_PER_SLOT = 4

#: Most batches that are counted one by one; the rest are assumed to be alike.
MAX_COUNTED_BATCHES = 10_000

#: Adapters of programs that read the database once for each record.
ONCE_A_RECORD = frozenset(["hmmer", "infernal"])


def estimate_plan_reads(plan: RunPlan, slots: int, nodes: int) -> int:
    """Estimate the reads of a plan's databases by one node; reads the beginning of its input.

    Args:
        slots: Slots of one node.
    """
    use, command = plan.use, plan.command
    queries = sample_queries(use.inputs[0], command.resolved_command.cwd) if len(use.inputs) == 1 else None
    return estimate_database_reads(use, plan.job.batch_size, queries, slots, nodes)


def estimate_database_reads(
    use: ToolUse, fixed: tuple[int, int], queries: QueryEstimate | None, slots: int, nodes: int = 1
) -> int:
    """Estimate how often one node reads the whole database.

    Args:
        fixed: The user's batch size (records, bytes); (0, 0): it is measured.
        queries: Number and sizes of the records of the input; None: unknown.
        slots: Slots of one node; ``nodes`` share the work evenly.
    """
    slots = max(1, slots)
    if queries is None or not queries.records:
        return slots * MIN_BATCHES_PER_SLOT
    if use.adapter in ONCE_A_RECORD:
        return max(1, math.ceil(queries.records / nodes))
    return max(1, math.ceil(_count_all_passes(use.cost, fixed, queries, slots * nodes) / nodes))


def _count_all_passes(cost: CostHint, fixed: tuple[int, int], queries: QueryEstimate, slots: int) -> float:
    """Count the passes of all batches.

    >>> queries = QueryEstimate(records=100, units=30_000, longest=300)
    >>> _count_all_passes(CostHint(unit="residues"), (10, 0), queries, 4)
    10
    >>> _count_all_passes(CostHint(unit="residues", pass_units=1000), (10, 0), queries, 4)
    30
    >>> _count_all_passes(CostHint(unit="residues"), (0, 0), queries, 4)
    16
    """
    units = max(queries.units, queries.records)
    mean = units / queries.records
    records, n_bytes = min((each for each in (fixed[0], cost.max_records) if each), default=0), fixed[1]
    model = CostModel(cost)
    if records or n_bytes or not model.per_unit:
        size = min(
            records * mean or n_bytes or units / (slots * MIN_BATCHES_PER_SLOT), units
        )  # residues are nearly all bytes of a record
        return math.ceil(units / max(size, mean)) * _count_batch_passes(max(size, mean), cost)
    whole, least = (float(queries.records), 1.0) if cost.unit == "records" else (float(units), mean)
    left, total = whole, 0
    for _ in range(MAX_COUNTED_BATCHES):
        size = min(
            left, max(compute_batch_units(model, slots, left, whole - left), least)
        )  # a batch ends with the record that reaches its size
        total, left = total + _count_batch_passes(size, cost), left - size
        if left <= 0:
            break
    return total * whole / (whole - left)


def _count_batch_passes(units: float, cost: CostHint) -> int:
    """Count the passes of one batch."""
    return max(1, math.ceil(units / cost.pass_units)) if cost.pass_units else 1
