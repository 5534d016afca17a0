"""How often a node reads a database: batches times passes."""

from __future__ import annotations

import pytest

from millrace.core.tool_use import CostHint, CostSums, InputUse, ToolUse
from millrace.planning.database_reads import MIN_BATCHES_PER_SLOT, estimate_database_reads
from millrace.planning.input_sniffing import QueryEstimate
from millrace.scheduler.batch_sizing import CostModel

QUERIES = QueryEstimate(records=1000, units=300_000, longest=900)


def use(adapter: str = "blast", **cost: object) -> ToolUse:
    hint = CostHint(unit="residues", **cost)
    return ToolUse(adapter=adapter, argv=(), inputs=(InputUse(path="q", format="fasta"),), outputs=(), cost=hint)


def learnt(seconds_per_unit: float) -> CostSums:
    model = CostModel(CostHint(unit="residues"))
    for units in (1000, 5000, 20_000):
        model.observe_task(units, 0.05 + units * seconds_per_unit, 10)
    assert model.cost_sums
    return model.cost_sums


@pytest.mark.parametrize(
    ("asked", "wanted"),
    [
        ((use(), (0, 0), None, 4, 1), 4 * MIN_BATCHES_PER_SLOT),
        ((use(), (0, 0), QUERIES, 4, 1), 4 * MIN_BATCHES_PER_SLOT),
        ((use(), (0, 0), QUERIES, 4, 5), 4 * MIN_BATCHES_PER_SLOT),
        ((use(), (0, 0), QueryEstimate(records=3, units=900, longest=300), 8, 1), 3),
        ((use(), (100, 0), QUERIES, 4, 1), 10),
        ((use(), (100, 0), QUERIES, 4, 2), 5),
        ((use(), (0, 30_000), QUERIES, 4, 1), 10),
        ((use(pass_units=10_000), (100, 0), QUERIES, 4, 1), 30),
        ((use(max_records=1), (0, 0), QUERIES, 4, 1), 1000),
        ((use("hmmer"), (0, 0), QUERIES, 4, 4), 250),
    ],
)
def test_reads_of_a_node_are_batches_times_passes(
    asked: tuple[ToolUse, tuple[int, int], QueryEstimate | None, int, int], wanted: int
) -> None:
    assert estimate_database_reads(*asked) == wanted


def test_slower_tool_is_cut_into_more_batches() -> None:
    quick, slow = (estimate_database_reads(use(learnt=learnt(rate)), (0, 0), QUERIES, 4) for rate in (1e-6, 1e-2))
    assert 1 <= quick < slow <= QUERIES.records
    assert slow >= 300_000 * 1e-2 / 30, "a batch takes 30 s at most"
