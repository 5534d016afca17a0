"""The simulation of workers in jobs: cases whose outcome can be said beforehand, and rules that hold for all."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from in_process_cli import told

from millrace.cli.simulate import command
from millrace.extensions.simulate.cost_trace import CostTrace, SimulatedCluster
from millrace.extensions.simulate.job_simulation import JobSimulation, JobSimulationOutcome
from millrace.scheduler.worker_demand import MAX_PENDING_JOBS, WorkerJobLimits


def run(n_records: int, max_jobs: int, job_seconds: float, wait: float = 0.0, cores: int = 1) -> JobSimulationOutcome:
    trace = CostTrace(([1], [1.0]), "records", 0.0, "alike")
    limits = WorkerJobLimits(max_jobs, job_seconds)
    return JobSimulation(SimulatedCluster(1, cores, 0.0, 0.0, batch=1), trace, n_records, limits, wait, 1).run_jobs()


def test_one_job_does_what_it_has_time_for() -> None:
    found = run(90, 1, 100.0)
    assert (found.jobs, found.timed_out, found.lost_tasks) == (1, 0, 0)
    assert found.seconds == pytest.approx(90.0) and found.used_share == pytest.approx(1.0)


def test_job_at_its_time_limit_costs_one_task_a_slot() -> None:
    found = run(200, 1, 100.5)
    assert (found.jobs, found.timed_out, found.lost_tasks) == (2, 1, 1)
    assert found.work_seconds == 200.0 and found.slot_seconds == pytest.approx(found.seconds, abs=2.0)


def test_jobs_come_while_there_is_work_for_them() -> None:
    many, few = run(2000, 10, 1000.0), run(100, 10, 1000.0)
    assert many.peak_workers == 10 and few.peak_workers == 2
    assert many.seconds < 250 and few.seconds < 60
    assert many.used_share > 0.9


def test_long_queue_cancels_what_is_not_worth_it_any_more() -> None:
    found = run(100, 10, 1000.0, wait=1e6)
    assert found.peak_workers == 1 and found.cancelled == found.jobs - 1 > 0


@settings(max_examples=30)
@given(st.integers(1, 400), st.integers(1, 6), st.floats(60, 300), st.floats(0, 100), st.integers(1, 4))
def test_simulated_jobs_do_all_and_keep_limits(n: int, jobs: int, seconds: float, wait: float, cores: int) -> None:
    found = run(n, jobs, seconds, wait, cores)
    assert found.work_seconds == n and found.seconds >= n / (cores * found.peak_workers) - 1e-6
    assert found.peak_workers <= jobs and found.lost_tasks <= cores * found.timed_out
    assert found.jobs <= 1 + sum("submitted" in words for _, words in found.decisions)
    assert all(f"{MAX_PENDING_JOBS} waiting" not in words for _, words in found.decisions if "submitted" in words)
    assert 0 < found.used_share <= 1.0 + 1e-9


def test_job_shorter_than_a_record_is_refused() -> None:
    code, words = told(
        command, "--nodes", "3", "--cores", "4", "--trace", "fixed:90", "--records", "9", "--job-time", "1m"
    )
    assert code == 2 and "--job-time 1m: a record takes 1 min 30 s, and would never end" in words
