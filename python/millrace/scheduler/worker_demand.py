"""Number of worker jobs on a batch system, from what the runs on them have left. Pure: no clock, process or file.

Jobs are short, wait in a queue, and come one by one. A job is submitted if it would have work for a while, and only a
few wait in the queue at a time: each one that starts shows anew what is left. A worker without work ends.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from millrace.core.text_format import format_count, format_duration
from millrace.core.tool_use import ProgressSnapshot

#: Shortest time of a job, in seconds.
MIN_JOB_SECONDS = 60

#: Maximum number of submitted jobs whose worker is not there yet.
MAX_PENDING_JOBS = 2

#: A job is worth its start and its wait if all workers would then have so many seconds of work, or this part of a
#: job's time if that is less. A worker ends after as long without work.
MIN_WORK_SECONDS, MIN_WORK_PART = 60.0, 0.1

#: A waiting job is cancelled only if it would have less than this part of that: few jobs are cancelled soon after they
#: were submitted.
CANCEL_PART = 0.5

#: Seconds until the next submission after a job that ended without a worker; each further one doubles them.
FIRST_RETRY_SECONDS, MAX_RETRY_SECONDS = 15.0, 600.0


class RemainingWork(msgspec.Struct, frozen=True):
    """What is left of one run."""

    #: Seconds of one slot; None: nothing is measured yet.
    seconds: float | None
    #: Records, which is the maximum number of slots with work.
    records: int


class RemainingWorkMeter:
    """Estimates what a run has left: the input that is not done, at the measured seconds of slots per byte."""

    def __init__(self) -> None:
        self._seconds = 0.0
        self._first: ProgressSnapshot | None = None

    def add_task(self, seconds: float) -> None:
        """Count a finished task that took so many seconds of a slot."""
        self._seconds += seconds

    def estimate_rest(self, snapshot: ProgressSnapshot) -> RemainingWork:
        """Return what is left. Of an input whose end is unknown, as much as is done."""
        first = self._first = self._first or snapshot
        n_bytes, n_records = snapshot.bytes_done - first.bytes_done, snapshot.records_done - first.records_done
        if not self._seconds or n_bytes <= 0 or n_records <= 0:
            return RemainingWork(None, 1)
        rest = n_bytes if snapshot.bytes_total is None else max(snapshot.bytes_total - snapshot.bytes_done, 0)
        return RemainingWork(self._seconds * rest / n_bytes, math.ceil(n_records * rest / n_bytes))


class RunningWorker(msgspec.Struct, frozen=True):
    """A worker that is there; times in seconds."""

    name: str
    slots: int
    #: Until its job ends.
    left: float = math.inf
    #: Without a task.
    idle: float = 0.0


class WorkerJobLimits(msgspec.Struct, frozen=True):
    """What the user allows."""

    #: Jobs at a time.
    max_jobs: int
    #: Time of a job in seconds.
    job_seconds: float = math.inf

    @property
    def min_work_seconds(self) -> float:
        """Seconds of work for each worker that are worth a job."""
        return min(MIN_WORK_SECONDS, MIN_WORK_PART * self.job_seconds)


class WorkerDecision(msgspec.Struct, frozen=True):
    """What to do now. At most one of the three is not empty."""

    #: Jobs to submit.
    n_submit: int = 0
    #: Waiting jobs to cancel.
    n_cancel: int = 0
    #: Workers to end.
    ends: tuple[str, ...] = ()
    #: The reason, in words.
    why: str = ""


def decide_worker_jobs(
    work: Sequence[RemainingWork], n_pending: int, workers: Sequence[RunningWorker], limits: WorkerJobLimits, job_slots: int
) -> WorkerDecision:  # fmt: skip
    """Decide which jobs to submit or to cancel, and which workers to end.

    Args:
        work: What is left of each run that is connected.
        n_pending: Jobs whose worker is not there yet.
        workers: Those that are there.
        job_slots: Slots of a job, as far as known.
    """
    least = limits.min_work_seconds
    wanted = min(count_wanted_jobs(work, job_slots, least), limits.max_jobs)
    # A job that is about to end is replaced beforehand: the next one may wait in the queue.
    n_lasting = sum(worker.left > least for worker in workers)
    n_free = limits.max_jobs - len(workers) - n_pending
    n_submit = min(wanted - n_lasting - n_pending, MAX_PENDING_JOBS - n_pending, n_free)
    if n_submit > 0:
        why = f"{_describe_workers(workers, n_pending)}; {_describe_work(work)}: work for {wanted}"
        return WorkerDecision(n_submit=n_submit, why=why)
    kept = min(count_wanted_jobs(work, job_slots, CANCEL_PART * least), limits.max_jobs)
    if n_pending and n_lasting + n_pending > kept:
        n_cancel = min(n_pending, n_lasting + n_pending - kept)
        return WorkerDecision(n_cancel=n_cancel, why=f"{_describe_work(work)}: work for {kept}")
    idle = sorted((worker for worker in workers if worker.idle >= least), key=lambda worker: worker.left)
    ends = tuple(worker.name for worker in idle[: max(0, len(workers) - wanted)])
    return WorkerDecision(
        ends=ends, why=f"{_describe_work(work)}; no task for {format_duration(least)}" if ends else ""
    )


def count_wanted_jobs(work: Sequence[RemainingWork], job_slots: int, least: float) -> int:
    """Return the number of jobs that have work for ``least`` seconds; one for each run of which nothing is measured."""
    unknown = sum(rest.seconds is None for rest in work)
    seconds = sum(rest.seconds or 0.0 for rest in work)
    records = sum(rest.records for rest in work if rest.seconds)
    by_time = math.ceil(seconds / (job_slots * least))
    return unknown + min(by_time, math.ceil(records / job_slots))


def compute_retry_seconds(n_failures: int) -> float:
    """Return the seconds until the next submission, after so many jobs in a row that ended without a worker.

    >>> [compute_retry_seconds(n) for n in (0, 1, 2, 99)]
    [0.0, 15.0, 30.0, 600.0]
    """
    return min(FIRST_RETRY_SECONDS * 2.0 ** min(n_failures - 1, 20), MAX_RETRY_SECONDS) if n_failures else 0.0


def _describe_workers(workers: Sequence[RunningWorker], n_pending: int) -> str:
    slots = format_count(sum(worker.slots for worker in workers), "slot")
    there = f"{format_count(len(workers), 'worker')} with {slots}" if workers else "no worker"
    return f"{there}, {n_pending} waiting"


def _describe_work(work: Sequence[RemainingWork]) -> str:
    if not work:
        return "no run"
    seconds = sum(rest.seconds or 0.0 for rest in work)
    parts = [f"left: {format_duration(seconds)} of one slot"] if seconds else []
    if unknown := sum(rest.seconds is None for rest in work):
        parts.append(f"{format_count(unknown, 'run')} of unknown length")
    return ", ".join(parts) or "nothing left"
