"""How many worker jobs are submitted: rules that hold for all runs, workers and limits."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from millrace.core.tool_use import ProgressSnapshot
from millrace.scheduler.worker_demand import (
    MAX_PENDING_JOBS,
    RemainingWork,
    RemainingWorkMeter,
    RunningWorker,
    WorkerJobLimits,
    count_wanted_jobs,
    decide_worker_jobs,
)

rests = st.lists(
    st.builds(RemainingWork, st.none() | st.floats(0, 1e7), st.integers(1, 10_000)), max_size=3
)  # fmt: skip
limits = st.builds(WorkerJobLimits, st.integers(1, 60), st.just(math.inf) | st.floats(60, 1e5))
workers = st.lists(
    st.builds(RunningWorker, st.just(""), st.integers(1, 8), st.floats(0, 1e5), st.just(0.0) | st.floats(0, 1e3)),
    max_size=60,
).map(lambda found: [RunningWorker(f"w{k}", each.slots, each.left, each.idle) for k, each in enumerate(found)])
slots = st.integers(1, 8)


@given(rests, st.integers(0, 3), workers, limits, slots)
def test_decision_keeps_to_the_limits(work, n_pending, workers, limits, slots) -> None:  # type: ignore[no-untyped-def]
    found = decide_worker_jobs(work, n_pending, workers, limits, slots)
    if found.n_submit:
        assert found.n_submit + n_pending <= MAX_PENDING_JOBS
        assert found.n_submit + n_pending + len(workers) <= limits.max_jobs
        assert work, "nobody is there"
    assert 0 <= found.n_cancel <= n_pending
    assert bool(found.n_submit) + bool(found.n_cancel) + bool(found.ends) <= 1
    busy = {worker.name for worker in workers if worker.idle < limits.min_work_seconds}
    assert not busy & {*found.ends}, "a worker with a task is not ended"
    assert bool(found.why) == bool(found.n_submit or found.n_cancel or found.ends)


@given(rests, st.integers(0, 2), workers, limits, slots)
def test_decision_is_not_taken_back_at_once(work, n_pending, workers, limits, slots) -> None:  # type: ignore[no-untyped-def]
    found = decide_worker_jobs(work, n_pending, workers, limits, slots)
    left = [worker for worker in workers if worker.name not in found.ends]
    after = decide_worker_jobs(work, n_pending + found.n_submit - found.n_cancel, left, limits, slots)
    if found.n_submit:
        assert not after.n_cancel
    if found.n_cancel or found.ends:
        assert not after.n_submit or any(worker.left <= limits.min_work_seconds for worker in workers)


@given(rests, limits, slots)
def test_jobs_grow_to_what_is_wanted_and_no_more(work, limits, slots) -> None:  # type: ignore[no-untyped-def]
    there: list[RunningWorker] = []
    while (found := decide_worker_jobs(work, 0, there, limits, slots)).n_submit:
        there += [RunningWorker(f"w{len(there) + k}", slots) for k in range(found.n_submit)]
    assert len(there) == min(count_wanted_jobs(work, slots, limits.min_work_seconds), limits.max_jobs)


@given(rests, st.floats(1, 1e6), slots)
def test_more_work_wants_no_fewer_jobs(work, more, slots) -> None:  # type: ignore[no-untyped-def]
    larger = [RemainingWork(rest.seconds + more, rest.records) if rest.seconds else rest for rest in work]
    assert count_wanted_jobs(larger, slots, 60.0) >= count_wanted_jobs(work, slots, 60.0)


@given(st.integers(0, 2), workers, limits)
def test_without_runs_all_jobs_end(n_pending, workers, limits) -> None:  # type: ignore[no-untyped-def]
    found = decide_worker_jobs([], n_pending, workers, limits, 1)
    assert not found.n_submit and found.n_cancel == n_pending
    if not n_pending:
        assert {*found.ends} == {worker.name for worker in workers if worker.idle >= limits.min_work_seconds}


def test_unmeasured_run_gets_one_job_until_measured() -> None:
    limits = WorkerJobLimits(50, 1800.0)
    first = decide_worker_jobs([RemainingWork(None, 1)], 0, [], limits, 1)
    assert first.n_submit == 1 and first.why == "no worker, 0 waiting; 1 run of unknown length: work for 1"
    there = [RunningWorker("w1", 8)]
    assert decide_worker_jobs([RemainingWork(None, 1)], 0, there, limits, 8).n_submit == 0
    found = decide_worker_jobs([RemainingWork(7200.0, 900)], 0, there, limits, 8)
    assert found.n_submit == 2
    assert found.why == "1 worker with 8 slots, 0 waiting; left: 2 h of one slot: work for 15"


def test_job_about_to_end_is_replaced() -> None:
    limits, work = WorkerJobLimits(2, 1800.0), [RemainingWork(1e5, 1000)]
    there = [RunningWorker("w1", 8, left=50.0)]
    assert decide_worker_jobs(work, 0, there, limits, 8).n_submit == 1, "the maximum holds, too"


def test_few_records_want_few_jobs() -> None:
    """However long each takes."""
    assert count_wanted_jobs([RemainingWork(1e6, 9)], 8, 60.0) == 2


def make_snapshot(records: int, done: int, total: int | None) -> ProgressSnapshot:
    return ProgressSnapshot(
        elapsed=0.0, slots=1, slots_busy=1, records_done=records, units_done=0, unit="residues", bytes_done=done,
        bytes_total=total,
    )  # fmt: skip


def test_rest_is_measured_from_finished_tasks() -> None:
    meter = RemainingWorkMeter()
    assert meter.estimate_rest(make_snapshot(40, 4000, 10_000)) == RemainingWork(None, 1), "done by an earlier start"
    meter.add_task(3.0)
    meter.add_task(1.0)
    assert meter.estimate_rest(make_snapshot(50, 5000, 10_000)) == RemainingWork(20.0, 50)
    assert meter.estimate_rest(make_snapshot(90, 10_000, 10_000)) == RemainingWork(0.0, 0)


def test_rest_of_unknown_end_is_what_is_done() -> None:
    meter = RemainingWorkMeter()
    meter.estimate_rest(make_snapshot(0, 0, None))
    meter.add_task(6.0)
    assert meter.estimate_rest(make_snapshot(3, 300, None)) == RemainingWork(6.0, 3)
