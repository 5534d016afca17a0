"""The simulation of a cluster: small cases whose outcome can be said beforehand."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from parameter_choice import again

from millrace.core.errors import RefusedError, ToolError
from millrace.extensions.simulate.cost_trace import (
    POOL,
    CostTrace,
    SimulatedCluster,
    SimulationOutcome,
    load_cost_trace,
    plan_simulated_fragments,
)
from millrace.extensions.simulate.simulation import ClusterSimulation

REPO = Path(__file__).parents[2]
BLASTP = REPO / "bench" / "traces" / "blastp.jsonl"


@pytest.fixture
def scaling(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The benchmark with the times of other ways to divide a job."""
    monkeypatch.syspath_prepend(str(REPO))
    from bench import scaling

    return scaling


def run(machine: SimulatedCluster, trace: CostTrace, records: int) -> SimulationOutcome:
    return ClusterSimulation(machine, trace, records).run()


def alike(seconds: float = 1.0, startup: float = 0.0) -> CostTrace:
    return CostTrace(([1], [seconds]), "records", startup, "alike")


@pytest.mark.parametrize("partition_size", [None, 1, 3])
def test_one_core_needs_the_sum_of_all_record_times(partition_size: int | None) -> None:
    found = run(SimulatedCluster(1, 1, 0.0, 0.0, partition_size), alike(), 50)
    assert found.seconds == pytest.approx(50.0)
    assert found.efficiency == pytest.approx(1.0)


def test_evenly_sized_records_keep_all_cores_busy() -> None:
    found = run(SimulatedCluster(4, 3, 0.0, 0.0, batch=1), alike(), 120)
    assert found.seconds == pytest.approx(10.0)
    assert found.tasks == 120 and found.copies == 0


def test_without_prefetch_every_task_waits_for_its_messages() -> None:
    with_it, without = (
        run(SimulatedCluster(4, 4, 0.05, 0.0, prefetch=prefetch, batch=1), alike(), 1600) for prefetch in (True, False)
    )
    assert without.efficiency == pytest.approx(1 / 1.1, rel=0.01)  # a message there and one back, for each second
    assert with_it.efficiency > 0.99


def test_a_busy_coordinator_is_the_limit() -> None:
    # 20 ms a message, two for each task of 1 s: 25 tasks a second, for 100 cores.
    found = run(SimulatedCluster(25, 4, 0.0, 0.02, batch=1), alike(), 1000)
    assert found.seconds == pytest.approx(1000 * 2 * 0.02, rel=0.1)
    assert found.coordinator_share == pytest.approx(1.0, rel=0.1)


def test_larger_batches_unload_the_coordinator() -> None:
    fixed = run(SimulatedCluster(25, 4, 0.005, 0.02, batch=1), alike(0.1), 4000)
    sized = run(SimulatedCluster(25, 4, 0.005, 0.02), alike(0.1), 4000)
    assert sized.seconds < 0.3 * fixed.seconds


def test_slow_nodes_do_not_delay_the_others() -> None:
    speeds = [1.0] * 7 + [0.25]
    machine = SimulatedCluster(8, 4, speeds=speeds)
    found = run(machine, alike(0.5), 30_000)
    assert found.efficiency > 0.94
    plain = run(SimulatedCluster(8, 4, speeds=speeds, copies=False), alike(0.5), 30_000)
    assert found.seconds < plain.seconds - 20


@settings(max_examples=30)
@given(st.data())
def test_run_ends_within_the_bound_of_any_schedule(choose: st.DataObject) -> None:
    costs = choose.draw(st.lists(st.floats(0.01, 50), min_size=1, max_size=40), "seconds of the records")
    trace = CostTrace(([1 + k % 3 for k in range(len(costs))], costs), "bytes", 0.01, "drawn")
    records = choose.draw(st.integers(1, 400), "records")
    machine = SimulatedCluster(
        choose.draw(st.integers(1, 12), "nodes"), choose.draw(st.integers(1, 5), "cores"),
        choose.draw(st.sampled_from([0.0, 0.001, 0.3]), "latency"), choose.draw(st.sampled_from([0.0, 0.001]), "service"),
        choose.draw(st.sampled_from([None, 1, 2, 5]), "partition size"), batch=choose.draw(st.sampled_from([0, 1, 7]), "batch"),
        copies=choose.draw(st.booleans(), "copies"),
    )  # fmt: skip
    found = run(machine, trace, records)
    assert found.work_seconds == pytest.approx(sum(costs[k % len(costs)] for k in range(records)))
    least = max(found.work_seconds / found.cores, max(costs[: min(records, len(costs))]))
    assert found.seconds >= least
    assert 0 < found.efficiency <= 1
    # All are done one after the other at worst, each with its messages.
    assert found.seconds <= found.work_seconds + found.tasks * (0.01 + 4 * (machine.latency_seconds + 0.001)) + 3.0
    shares = (found.startup_share, found.starved_share, found.tail_share)
    assert all(-1e-9 <= share <= 1 for share in shares)


def test_equal_simulations_return_equal_figures() -> None:
    machine = SimulatedCluster(20, 3, partition_size=6)
    assert len({run(machine, load_cost_trace("lognormal:1,1"), 1000) for _ in range(2)}) == 1


# Faults


@pytest.mark.parametrize("partition_size", [None, 4])
def test_lost_node_costs_its_tasks_and_its_later_share(partition_size: int | None) -> None:
    whole = SimulatedCluster(8, 4, partition_size=partition_size)
    trace = alike(0.5)
    usual, without = run(whole, trace, 8000), run(replace(whole, deaths=[(20.0, 3), (20.0, 7)]), trace, 8000)
    lost = 2 * 4 * (usual.seconds - 20.0)  # slot seconds
    assert usual.seconds + lost / 32 < without.seconds < usual.seconds + lost / 24 + 10.0 + 5.0
    assert without.quarantined == 0


def test_all_nodes_but_the_first_may_be_lost() -> None:
    found = run(SimulatedCluster(5, 2, deaths=[(float(node), node) for node in range(1, 5)]), alike(), 100)
    assert 100 / 2 - 5 < found.seconds < 100


@pytest.mark.parametrize(("nodes", "partition_size", "node"), [(4, None, 0), (6, 3, 3), (4, None, 4)])
def test_node_whose_loss_restarts_the_run_cannot_be_lost(nodes: int, partition_size: int | None, node: int) -> None:
    with pytest.raises(ValueError, match=f"node {node} "):
        ClusterSimulation(SimulatedCluster(nodes, 2, partition_size=partition_size, deaths=[(1.0, node)]), alike(), 10)


@settings(max_examples=25)
@given(st.data())
def test_only_failing_records_are_quarantined(choose: st.DataObject) -> None:
    records = choose.draw(st.integers(200, 400), "records")
    failing = choose.draw(st.sets(st.integers(0, records - 1), max_size=5), "failing")
    machine = SimulatedCluster(
        choose.draw(st.integers(2, 6), "nodes"), choose.draw(st.integers(1, 3), "cores"),
        partition_size=choose.draw(st.sampled_from([None, 3]), "partition size"),
        fragments=choose.draw(st.sampled_from([0, 3]), "fragments"),
        deaths=choose.draw(st.sampled_from([[], [(3.0, 1)]]), "deaths"), failing=failing,
    )  # fmt: skip
    if machine.partition_size and machine.nodes > 3:
        machine = replace(machine, deaths=[])
    found = run(machine, alike(0.2), records)
    assert found.quarantined == len(failing)


def test_job_with_too_many_failures_reports_so() -> None:
    with pytest.raises(ToolError, match="the run would end before its time"):
        run(SimulatedCluster(4, 4, failing=range(2000)), alike(), 2000)


# The published experiments, small enough for every day; docs/scaling.md has them whole.


@pytest.mark.parametrize(("nodes", "records", "partition_size"), [(4, 760, None), again(16, 3040, None), (16, 3040, 4)])
def test_weak_scaling_of_hsp_wrap(nodes: int, records: int, partition_size: int | None) -> None:
    """The first rows of Table 4.1: its sequences a core, their mean time, the spread of the measured trace."""
    trace = load_cost_trace(str(BLASTP), mean_seconds=107.8)
    machine = SimulatedCluster(nodes, 12, partition_size=partition_size, output_bytes=3e5, write_bytes_per_second=1e9)
    assert run(machine, trace, records).efficiency > 0.95


@pytest.mark.slow
@pytest.mark.parametrize("workload", ["balanced", "skewed"])
def test_queries_of_mpiblast_pio_end_together(workload: str, scaling: ModuleType) -> None:
    """An eighth of its 5,000 queries, on an eighth of its 1,024 processors, in the fragments that a plan chooses."""
    trace = load_cost_trace(workload)
    machine = SimulatedCluster(64, 2, finish=0.02, passes=1, work=1.6, spread=41.0, output_bytes=1e6)
    planned = plan_simulated_fragments(machine, trace, 625)
    assert planned.fragments > 16 and planned.is_for_tail
    found = run(planned, trace, 625)
    assert found.efficiency > 0.92
    assert run(machine, trace, 625).efficiency < 0.8
    assert scaling.compute_static_seconds(trace, 625, 128) > 1.5 * found.seconds


@pytest.mark.parametrize(("slots", "records"), [(2, 12), (8, 100), (128, 625)])
def test_alike_queries_cost_little_more_for_the_tail(slots: int, records: int) -> None:
    """Nothing takes long, though it could: no more than an eighth of CPU for it, unless the run ends so much sooner."""
    trace = CostTrace(([300], [60.0]), "residues", 0.06, "alike")
    machine = SimulatedCluster(slots // 2, 2, finish=0.6, passes=1, work=1.6, spread=41.0)
    whole, cut = (run(each, trace, records) for each in (machine, plan_simulated_fragments(machine, trace, records)))
    more = (cut.busy_seconds - whole.busy_seconds) / whole.busy_seconds
    assert more <= max(0.12, 1.0 - cut.seconds / whole.seconds), (more, cut.seconds, whole.seconds)


def test_output_is_written_in_the_order_of_the_input() -> None:
    """The first record ends last, so what follows waits for it, and is written after it."""
    trace = CostTrace(([1] * 5, [10.0, 1.0, 1.0, 1.0, 1.0]), "records", 0.0, "first is long")
    machine = SimulatedCluster(1, 5, 0.0, 0.0, batch=1, output_bytes=28.0, write_bytes_per_second=10.0)
    found = run(machine, trace, 5)
    assert found.seconds == pytest.approx(10.0 + 14.0 / 2.8 * 2.8)
    assert found.write_seconds == pytest.approx(14.0)


def test_run_is_close_to_one_record_at_a_time(scaling: ModuleType) -> None:
    trace = load_cost_trace("lognormal:1,1", seed=3)
    records = 60 * 96
    ideal = scaling.compute_in_order_seconds(trace, records, 96)
    assert ideal >= trace.sum_seconds_before(records) / 96
    found = run(SimulatedCluster(8, 12), trace, records)
    assert 0.97 * ideal < found.seconds < 1.1 * ideal


def test_known_lengths_prevent_a_late_long_record() -> None:
    """Where length predicts time, the longest records start early."""
    known, unknown = load_cost_trace("lengths:1,1", seed=3), load_cost_trace("lognormal:1,1", seed=3)
    long, blind = (run(SimulatedCluster(8, 12), trace, 60 * 96) for trace in (known, unknown))
    assert long.efficiency > 0.93 > blind.efficiency + 0.04


def test_fragment_affinity_reduces_loads() -> None:
    """A node gets the fragments that it has read before."""
    trace = load_cost_trace("lognormal:1,0.5")
    machine = SimulatedCluster(8, 4, batch=4, fragments=16, resident=2, load_seconds=1.0)
    found = run(machine, trace, 400)
    scattered = run(replace(machine, homes=False), trace, 400)
    assert found.tasks == scattered.tasks == 100 * (16 + 1)
    assert found.loads < 0.3 * scattered.loads
    assert found.efficiency > scattered.efficiency
    plenty = run(replace(machine, resident=16), trace, 400)
    assert plenty.loads <= 8 * 16


def test_partitions_search_all_fragments_for_every_batch() -> None:
    """And its candidates once more."""
    machine = SimulatedCluster(6, 2, 0.0, 0.0, 2, batch=5, fragments=3)
    found = run(machine, alike(), 60)
    assert found.tasks == 12 * (3 + 1), "with the search of the candidates"
    assert found.seconds == pytest.approx(5.0, abs=1.7)


# Traces


@pytest.mark.parametrize("passes", [1, 2])
@pytest.mark.parametrize("partition_size", [None, 2])
def test_a_long_record_is_finished_in_slices(passes: int, partition_size: int | None) -> None:
    """Its candidates take 100 s in one task, while all other slots have nothing to do."""
    trace = CostTrace(([1], [1000.0]), "records", 0.1, "long")
    machine = SimulatedCluster(4, 4, partition_size=partition_size, fragments=16, finish=0.1)
    alone, sliced = (run(replace(machine, passes=n), trace, 1) for n in (0, passes))
    assert alone.slices == 0 and sliced.slices >= 16 * passes
    assert alone.seconds == pytest.approx(1000 / 16 + 100, abs=2.0)
    assert sliced.seconds < 1000 / 16 + 100 / 2


def test_common_candidates_are_finished_in_parts() -> None:
    trace = CostTrace(([1], [10.0]), "records", 0.1, "alike")
    machine = SimulatedCluster(2, 4, fragments=8, finish=0.5, batch=16)
    found = run(machine, trace, 16)
    assert found.tasks == 8 + 8, "the searches, and a part for each slot"
    assert found.seconds == pytest.approx(16 * 10 / 8 + 16 * 5 / 8, abs=2.0)


@settings(max_examples=25)
@given(st.data())
def test_slices_and_parts_end_after_any_loss_or_failure(choose: st.DataObject) -> None:
    records = choose.draw(st.integers(1, 60), "records")
    failing = choose.draw(st.sets(st.integers(0, records - 1), max_size=2), "failing") if records > 20 else set[int]()
    machine = SimulatedCluster(
        choose.draw(st.integers(2, 5), "nodes"), choose.draw(st.integers(1, 3), "cores"), batch=choose.draw(st.sampled_from([0, 1, 9]), "batch"),
        fragments=choose.draw(st.integers(2, 5), "fragments"), finish=choose.draw(st.sampled_from([0.1, 1.0]), "finish"),
        passes=choose.draw(st.sampled_from([0, 1, 2]), "passes"), deaths=choose.draw(st.sampled_from([[], [(4.0, 1)], [(40.0, 1)]]), "deaths"),
        failing=failing,
    )  # fmt: skip
    found = run(machine, alike(choose.draw(st.sampled_from([0.5, 30.0]), "seconds"), 0.05), records)
    assert found.quarantined == len(failing)


def test_a_measured_trace_has_the_time_of_its_run() -> None:
    trace = load_cost_trace(str(BLASTP))
    assert trace.unit == "residues"
    assert 0.01 < trace.startup_seconds < 0.1
    per_residue = trace.sum_seconds_before(POOL) / trace.count_units_before(POOL)
    assert trace.mean_seconds == pytest.approx(0.163, rel=0.1)
    assert per_residue == pytest.approx(0.163 / 490, rel=0.2)


def test_a_run_is_replayed_with_its_own_records_in_their_order() -> None:
    tasks = [json.loads(line) for line in BLASTP.read_text().splitlines()[1:]]
    trace = load_cost_trace(str(BLASTP), replay=True)
    assert trace.n_records == len(tasks) == 500
    assert [trace.count_units_before(k + 1) - trace.count_units_before(k) for k in range(500)] == [
        task["units"] for task in sorted(tasks, key=lambda task: task["first"])
    ]
    in_parts = load_cost_trace(str(BLASTP), fragments=4, replay=True)
    assert in_parts.n_records == 2000
    assert in_parts.sum_seconds_before(2000) == pytest.approx(trace.sum_seconds_before(500))


def test_event_log_of_a_run_directory_is_located(tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").write_bytes(BLASTP.read_bytes())
    assert load_cost_trace(str(tmp_path)).words == load_cost_trace(str(BLASTP)).words


@pytest.mark.parametrize(
    ("source", "mean", "longest"),
    [
        ("fixed:3", 3.0, 3.0),
        ("lognormal:2,0.5", 2.0, 60.0),
        ("pareto:2,1.5", 2.0, 1e4),
        ("balanced", 32 * 5.3, 32 * 50.0),
        ("skewed", 32 * 9.8, 32 * 400.0),
        again("lengths:2,0.5", 2.0, 60.0),
    ],
)
def test_distributions_have_their_stated_mean(source: str, mean: float, longest: float) -> None:
    trace = load_cost_trace(source)
    assert trace.mean_seconds == pytest.approx(mean, rel=0.03)
    assert trace.find_longest_seconds(POOL) <= longest
    assert load_cost_trace(source, mean_seconds=7.0).mean_seconds == pytest.approx(7.0)


def test_fragments_share_the_time_of_a_record() -> None:
    trace = load_cost_trace("fixed:8", fragments=4)
    assert trace.mean_seconds == trace.find_longest_seconds(4) == 2.0


@pytest.mark.parametrize(
    "source", ["no such file", "lognormal:1,2,3", "lognormal:a", "fixed:0", "pareto:1,0", "fixed:-1", "lognormal:0,1"]
)
def test_invalid_trace_is_refused(source: str) -> None:
    with pytest.raises(RefusedError):
        load_cost_trace(source)


def test_a_log_without_tasks_is_refused(tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").write_text('{"event":"run"}\n')
    with pytest.raises(RefusedError, match="no task was done"):
        load_cost_trace(str(tmp_path))


@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=20), st.integers(0, 100), st.integers(1, 200),
    st.integers(0, 30), st.integers(0, 60),
)  # fmt: skip
def test_a_batch_ends_with_the_record_that_reaches_its_limit(
    sizes: list[int], first: int, more: int, records: int, units: int
) -> None:
    trace = CostTrace((sizes, [1.0] * len(sizes)), "bytes", 0.0, "drawn")
    last = trace.find_batch_end(first, first + more, records, units)
    taken = [sizes[k % len(sizes)] for k in range(first, last)]
    assert 1 <= len(taken) <= min(more, records or more)
    if units:
        assert sum(taken[:-1]) < units
    stopped = len(taken) == more or (records and len(taken) == records) or (units and sum(taken) >= units)
    assert stopped
