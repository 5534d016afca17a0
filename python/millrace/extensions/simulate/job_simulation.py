"""A simulated run on workers in short jobs, which wait in a queue: when each is submitted, and what it is used for.

Real, beside what ``ClusterSimulation`` has: the rule for jobs (``millrace.scheduler.worker_demand``), and its meter of what
is left. Simulated: the queue, in which each job waits for a random time, with the mean given; jobs that end at their
time limit, with the tasks at work; workers that end when they have none.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from millrace.core.text_format import format_count
from millrace.core.tool_use import ProgressSnapshot
from millrace.extensions.simulate.cost_trace import CostTrace, SimulatedCluster, SimulationOutcome
from millrace.extensions.simulate.simulated_nodes import ClockEvent, ClockHandler
from millrace.extensions.simulate.simulation import ClusterSimulation
from millrace.scheduler.worker_demand import RemainingWorkMeter, RunningWorker, WorkerJobLimits, decide_worker_jobs

#: Seconds between two decisions.
DECIDE_SECONDS = 1.0


@dataclass
class JobSimulationOutcome:
    """The outcome of a run on workers in jobs; times in seconds, from the start of the first job."""

    seconds: float
    #: Time of all records on one slot.
    work_seconds: float
    #: Seconds of slots that were there, in all jobs, until the end of the run.
    slot_seconds: float
    #: The part of them that was used for work that counted.
    used_share: float
    jobs: int = 1
    peak_workers: int = 1
    #: Jobs that were cancelled in the queue; that ended at their time limit; without a task.
    cancelled: int = 0
    timed_out: int = 0
    idle_ended: int = 0
    #: Tasks at work in jobs that ended at their time limit.
    lost_tasks: int = 0
    #: (seconds, words) of each decision.
    decisions: list[tuple[float, str]] = field(default_factory=list)


@dataclass
class _SimulatedJob:
    """A job whose worker is there."""

    joined: float
    idle_since: float
    ended: float | None = None


class JobSimulation(ClusterSimulation):
    """The simulation of one run; call ``run_jobs`` once.

    Args:
        machine: ``nodes`` is 1: that of the first job.
        wait_seconds: Mean time of a job in the queue.
        seed: Of these times.
    """

    def __init__(
        self, machine: SimulatedCluster, trace: CostTrace, records: int, limits: WorkerJobLimits, wait_seconds: float, seed: int
    ) -> None:  # fmt: skip
        super().__init__(replace(machine, nodes=1), trace, records)
        self._limits, self._wait_seconds, self._random = limits, wait_seconds, random.Random(seed)
        self._meter = RemainingWorkMeter()
        #: By node, which is the number of the job.
        self._jobs = {0: _SimulatedJob(0.0, 0.0)}
        self._waiting: list[int] = []
        self._units_done, self._records_done = 0.0, 0
        self._n_units = trace.count_units_before(records)
        self._found = JobSimulationOutcome(0.0, trace.sum_seconds_before(records), 0.0, 0.0)
        self._clock.schedule_event(limits.job_seconds, ClockEvent.JOB_ENDS, 0, 0)
        self._clock.schedule_event(0.0, ClockEvent.DECIDE, 0, 0)

    def run_jobs(self) -> JobSimulationOutcome:
        """Run to the end, and return the figures."""
        outcome: SimulationOutcome = self.run()
        found, cores = self._found, self._machine.cores
        found.seconds = outcome.seconds
        found.slot_seconds = sum(
            cores * ((found.seconds if job.ended is None else job.ended) - job.joined) for job in self._jobs.values()
        )
        found.used_share = found.work_seconds / found.slot_seconds
        return found

    def _list_handlers(self) -> Mapping[ClockEvent, ClockHandler]:
        return {
            **super()._list_handlers(),
            ClockEvent.DECIDE: self._decide_jobs,
            ClockEvent.NODE_JOINS: self._handle_join,
            ClockEvent.JOB_ENDS: self._handle_time_limit,
        }

    def _handle_root_report(self, member: int, task: int, now: float) -> None:
        if self._nodes.is_dead(member):
            return  # its connection is gone
        work = self._work.get(task)
        if work and not work.fails:
            self._meter.add_task(work.seconds)
            self._units_done += work.units
            self._records_done += self._coordinator.count_records(work)
        super()._handle_root_report(member, task, now)

    # Jobs

    def _list_workers(self, now: float) -> list[RunningWorker]:
        workers = []
        for node, job in self._jobs.items():
            if job.ended is None:
                job.idle_since = now if self._nodes.count_running(node) else job.idle_since
                left = self._limits.job_seconds - (now - job.joined)
                workers.append(RunningWorker(str(node), self._machine.cores, left, now - job.idle_since))
        return workers

    def _decide_jobs(self, _: int, __: int, now: float) -> None:
        found, workers = self._found, self._list_workers(now)
        work = self._meter.estimate_rest(self._make_snapshot(now))
        decision = decide_worker_jobs([work], len(self._waiting), workers, self._limits, self._machine.cores)
        if decision.n_submit:
            job = self._nodes.add_node()
            found.jobs += 1
            self._waiting.append(job)
            wait = self._random.expovariate(1.0 / self._wait_seconds) if self._wait_seconds else 0.0
            self._clock.schedule_event(now + wait, ClockEvent.NODE_JOINS, job, 0)
            found.decisions.append((now, f"submitted job {job + 1}: {decision.why}"))
        if decision.n_cancel:
            found.cancelled += decision.n_cancel
            del self._waiting[-decision.n_cancel :]
            found.decisions.append(
                (now, f"cancelled {format_count(decision.n_cancel, 'job')} that waited: {decision.why}")
            )
        for name in decision.ends:
            found.idle_ended += 1
            self._end_job(int(name), now)
            found.decisions.append((now, f"ended job {int(name) + 1}: {decision.why}"))
        self._clock.schedule_event(now + DECIDE_SECONDS, ClockEvent.DECIDE, 0, 0)

    def _make_snapshot(self, now: float) -> ProgressSnapshot:
        return ProgressSnapshot(
            elapsed=now, slots=0, slots_busy=0, records_done=self._records_done, units_done=0, unit=self._trace.unit,
            bytes_done=round(self._units_done), bytes_total=self._n_units,
        )  # fmt: skip

    def _handle_join(self, job: int, _: int, now: float) -> None:
        if job not in self._waiting:
            return  # cancelled
        self._waiting.remove(job)
        self._jobs[job] = _SimulatedJob(now, now)
        self._found.peak_workers = max(self._found.peak_workers, self._n_workers)
        self._root.dispatcher.add_node(job, self._machine.cores, now)
        self._change_slots(now)
        self._clock.schedule_event(now + self._limits.job_seconds, ClockEvent.JOB_ENDS, job, 0)

    @property
    def _n_workers(self) -> int:
        return sum(job.ended is None for job in self._jobs.values())

    def _change_slots(self, now: float) -> None:
        self._coordinator.change_slots(max(1, self._machine.cores * self._n_workers), now)
        self._root.send_assignments(now)

    def _handle_time_limit(self, job: int, _: int, now: float) -> None:
        if self._jobs[job].ended is None:
            self._found.timed_out += 1
            self._found.lost_tasks += self._nodes.count_running(job)
            self._end_job(job, now)

    def _end_job(self, job: int, now: float) -> None:
        self._jobs[job].ended = now
        self._nodes.kill_node(job, now)
        self._root.dispatcher.remove_node(job, now)
        self._change_slots(now)
