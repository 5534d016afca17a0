"""A Dask cluster whose workers are jobs of a batch system: its scheduler, here, and the loop that submits and ends the jobs.

Runs connect by the scheduler file, and publish what they have left. ``millrace.scheduler.worker_demand`` decides. When
this process ends in whatever way, the workers lose their connection, and end.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import logging
import os
import signal
import time
import warnings
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, Any

import msgspec
from distributed import Scheduler, Security

from millrace.cluster.dask.scheduler_connection import CERTIFICATE_KEY, make_security, read_published_work
from millrace.core.errors import MillraceError, RefusedError
from millrace.core.text_format import format_count
from millrace.launch.worker_jobs import WorkerCommand, WorkerQueue, read_log_end
from millrace.scheduler.worker_demand import (
    RunningWorker,
    WorkerDecision,
    WorkerJobLimits,
    compute_retry_seconds,
    decide_worker_jobs,
)

#: Seconds between two decisions, and between two questions to the batch system.
DECIDE_SECONDS, LIST_SECONDS = 0.5, 5.0

#: Jobs in a row that end without a worker, while no worker is there, after which the command ends.
MAX_FAILURES = 3

#: Signals that end the cluster.
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class _WorkerJob(msgspec.Struct):
    """A job, from its submission to its end. Times are monotonic, in seconds."""

    submitted: float
    #: Its worker's address at Dask's scheduler; empty: it is not there yet.
    address: str = ""
    joined: float = 0.0
    #: Since then its worker has no task.
    idle_since: float = 0.0
    slots: int = 0


class WorkerCluster:
    """The cluster; ``run`` returns when a signal has ended it.

    Args:
        file: Becomes the scheduler file.
        logs: Folder for the certificate, and for the output of jobs; that of a job with a worker is removed.
        interface: Network interface by which workers reach the scheduler; empty: Dask's choice.
        report: Writes a line.
    """

    def __init__(
        self, queue: WorkerQueue, limits: WorkerJobLimits, file: Path, logs: Path, interface: str, report: Callable[[str], None]
    ) -> None:  # fmt: skip
        self._queue, self._limits, self._file, self._logs = queue, limits, file, logs
        self._certificate = logs / "certificate.pem"
        self._interface, self._report = interface, report
        self._jobs: dict[str, _WorkerJob] = {}
        self._job_slots = 1
        self._n_failures, self._failed_at, self._listed_at = 0, 0.0, 0.0
        self._stop = asyncio.Event()

    def run(self) -> None:
        """Serve the cluster until a signal ends it.

        Raises:
            RefusedError: Another process has the scheduler file, or a package is missing.
            MillraceError: Jobs end without a worker, again and again.
        """
        for name in ("distributed", "tornado"):
            logging.getLogger(name).setLevel(logging.CRITICAL)  # what matters is reported in our words
        with ExitStack() as stack, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            file = stack.enter_context(_lock_scheduler_file(self._file))
            stack.callback(self._remove_files)
            self._make_folder()
            asyncio.run(self._serve(file))

    def _make_folder(self) -> None:
        """Make the folder for certificate and logs; those of an earlier cluster with this scheduler file go."""
        self._logs.mkdir(mode=0o700, exist_ok=True)
        self._logs.chmod(0o700)
        for old in self._logs.glob("*.log"):
            old.unlink()
        self._certificate.unlink(missing_ok=True)

    def _remove_files(self) -> None:
        self._file.unlink(missing_ok=True)
        self._certificate.unlink(missing_ok=True)
        with suppress(OSError):  # logs of failed jobs stay
            self._logs.rmdir()

    async def _serve(self, file: IO[str]) -> None:
        loop = asyncio.get_running_loop()
        for number in STOPPING:
            loop.add_signal_handler(number, self._stop.set)
        certificate = create_certificate()
        scheduler = await self._start_scheduler(certificate)
        try:
            with open(os.open(self._certificate, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as kept:
                kept.write(certificate)
            command = WorkerCommand(scheduler.address, self._certificate)
            json.dump({**scheduler.identity(), CERTIFICATE_KEY: certificate}, file)
            file.flush()
            self._report(
                f"Dask's scheduler: {scheduler.address}; use it by: millrace run --dask {self._file} -- COMMAND"
            )
            while not self._stop.is_set():
                await self._update_jobs(scheduler)
                await self._execute_decision(scheduler, command, self._decide_jobs(scheduler))
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._stop.wait(), DECIDE_SECONDS)
        finally:
            await self._end_jobs(scheduler)

    async def _start_scheduler(self, certificate: str) -> Scheduler:
        """Start Dask's scheduler.

        Raises:
            RefusedError: There is no such network interface, or no port.
        """
        make: Any = Scheduler  # not typed
        options = {"protocol": "tls", "security": make_security(certificate), "dashboard": False, "port": 0}
        try:
            scheduler: Scheduler = await make(**options, interface=self._interface or None)
        except (ValueError, OSError, RuntimeError) as error:
            raise RefusedError(
                f"Dask's scheduler does not start: {error.__cause__ or error}",
                "name a network interface with --interface",
            ) from error
        return scheduler

    async def _end_jobs(self, scheduler: Scheduler) -> None:
        """End all workers, and cancel the jobs that are left."""
        self._report(f"ending {format_count(len(self._jobs), 'job')}")
        await asyncio.to_thread(self._file.unlink, missing_ok=True)
        if jobs := [*self._jobs]:
            await asyncio.to_thread(self._queue.cancel_jobs, jobs)
            for job in jobs:
                self._remove_log(job)
        await scheduler.close()

    # What is there

    async def _update_jobs(self, scheduler: Scheduler) -> None:
        """Compare the jobs with the workers that are there, and with the batch system."""
        now = time.monotonic()
        workers = {str(worker.name): worker for worker in scheduler.workers.values()}
        for name, job in [*self._jobs.items()]:
            worker = workers.get(name)
            if worker and not job.address:
                job.address, job.joined, job.idle_since, job.slots = worker.address, now, now, worker.nthreads
                self._job_slots, self._n_failures = worker.nthreads, 0
                waited = now - job.submitted
                self._report(
                    f"job {name}: {format_count(job.slots, 'slot')} after {waited:.1f} s; {self._describe_workers()}"
                )
            elif worker:
                job.idle_since = job.idle_since if not worker.processing else now
            elif job.address:
                self._forget_job(name)
                self._report(f"job {name} has ended; {self._describe_workers()}")
        waiting = [name for name, job in self._jobs.items() if not job.address]
        if waiting and now - self._listed_at >= LIST_SECONDS:
            self._listed_at = now
            found = await asyncio.to_thread(self._queue.list_jobs)
            there = {str(worker.name) for worker in scheduler.workers.values()}
            for name in waiting if found is not None else ():
                if name not in there.union(found or ()):
                    self._count_failure(name)

    def _forget_job(self, name: str) -> None:
        del self._jobs[name]
        self._remove_log(name)

    def _remove_log(self, name: str) -> None:
        with suppress(OSError):
            (self._logs / f"{name}.log").unlink()

    def _count_failure(self, name: str) -> None:
        """Count a job that has ended without a worker.

        Raises:
            MillraceError: So have those before it, and there are no others.
        """
        del self._jobs[name]
        said = read_log_end(self._logs, name)
        words = f"job {name} has ended without a worker{f': {said}' if said else ''}"
        if self._n_failures + 1 >= MAX_FAILURES and not self._jobs:
            raise MillraceError(f"{words}; so have {self._n_failures} before it", f"their output is in {self._logs}")
        self._delay_next_job(words)

    def _delay_next_job(self, why: str) -> None:
        self._n_failures, self._failed_at = self._n_failures + 1, time.monotonic()
        self._report(f"{why}; the next one in {compute_retry_seconds(self._n_failures):.0f} s at the earliest")

    def _describe_workers(self) -> str:
        there = [job for job in self._jobs.values() if job.address]
        slots = format_count(sum(job.slots for job in there), "slot")
        return f"{format_count(len(there), 'worker')} with {slots}"

    # What to do

    def _decide_jobs(self, scheduler: Scheduler) -> WorkerDecision:
        now = time.monotonic()
        workers = [
            RunningWorker(name, job.slots, self._limits.job_seconds - (now - job.joined), now - job.idle_since)
            for name, job in self._jobs.items()
            if job.address
        ]
        n_pending = len(self._jobs) - len(workers)
        return decide_worker_jobs(read_published_work(scheduler), n_pending, workers, self._limits, self._job_slots)

    async def _execute_decision(self, scheduler: Scheduler, command: WorkerCommand, decision: WorkerDecision) -> None:
        if decision.n_submit and time.monotonic() >= self._failed_at + compute_retry_seconds(self._n_failures):
            await self._submit_job(command, decision.why)
        if decision.n_cancel:
            waiting = [name for name, job in self._jobs.items() if not job.address][-decision.n_cancel :]
            await asyncio.to_thread(self._queue.cancel_jobs, waiting)
            for name in waiting:
                self._forget_job(name)
            self._report(f"{self._queue.name}: cancelled job {', '.join(waiting)}, which waited: {decision.why}")
        if decision.ends:
            self._report(f"{self._queue.name}: ending job {', '.join(decision.ends)}: {decision.why}")
            addresses = [self._jobs[name].address for name in decision.ends]
            await scheduler.retire_workers(workers=addresses, close_workers=True, remove=True)

    async def _submit_job(self, command: WorkerCommand, why: str) -> None:
        """Submit one job; the next decision knows of it.

        Raises:
            MillraceError: It is not accepted, and there are no others: at a limit of the batch system there are.
        """
        try:
            name = await asyncio.to_thread(self._queue.submit_job, command)
        except MillraceError as error:
            if not self._jobs:
                raise
            self._delay_next_job(error.message)
            return
        self._jobs[name] = _WorkerJob(time.monotonic())
        self._report(f"{self._queue.name}: submitted job {name}, one of at most {self._limits.max_jobs}: {why}")


def create_certificate() -> str:
    """Create a certificate with its key, as text: who has it is a part of the cluster.

    Raises:
        RefusedError: A package is missing.
    """
    make: Any = Security.temporary
    try:
        found = make()
    except ImportError as error:
        raise RefusedError("cryptography is not installed", "pip install 'millrace[dask]'") from error
    return f"{found.tls_ca_file}{found.tls_client_key}"


def _lock_scheduler_file(path: Path) -> IO[str]:
    """Open a new scheduler file that only the user can read, and lock it.

    Raises:
        RefusedError: Another process has it, or it cannot be written.
    """
    try:
        file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "w", encoding="utf-8")
        os.fchmod(file.fileno(), 0o600)
    except OSError as error:
        raise RefusedError(f"{path}: {error.strerror}", "name another scheduler file with --file") from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.close()
        raise RefusedError(
            f"{path}: another millrace workers has this scheduler file", "end that, or name another one with --file"
        ) from error
    file.truncate(0)
    return file
