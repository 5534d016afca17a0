"""Runs in the jobs of a real Grid Engine with several hosts."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import harness
import pytest
from cluster_site import Site
from mpi_jobs import find
from private_grid_engine import GridEngine

#: A job script: warnings are for the run, and not the end of the script; a run that was stopped is queued again.
SCRIPT = """#!/bin/bash
trap : USR1 USR2
{command}
code=$?
[ $code != 143 ] || exit {stopped}
exit $code
"""


class Jobs:
    """Jobs of one site, whose log gets what they write, one behind the other."""

    def __init__(self, engine: GridEngine, site: Site) -> None:
        self.engine, self.site = engine, site
        self.path = site.folder.with_name(f"{site.folder.name}.log")

    @property
    def log(self) -> str:
        return self.path.read_text(errors="replace") if self.path.exists() else ""

    def submit(self, *options: str, mpi: str = "openmpi", stopped: int = 143, words: tuple[str, ...] = ()) -> str:
        """Submit a job; its number."""
        command = shlex.join([find(mpi).millrace, *(words or ("run", *self.site.options()))])
        (self.site.folder / "job.sh").write_text(SCRIPT.format(command=command, stopped=stopped))
        words = ("qsub", "-terse", "-cwd", "-j", "y", "-o", str(self.path), *options, "job.sh")
        return self.engine.ask(shlex.join(words), str(self.site.folder)).strip()

    def wait_for(self, words: str) -> None:
        """Wait until the log has these words."""
        self.engine.wait(lambda: words in self.log, f"{words!r} in {self.log}")

    def is_there(self, job: str) -> bool:
        return re.search(rf"^ *{job} ", self.engine.ask("qstat"), re.MULTILINE) is not None

    def wait_for_end(self, job: str) -> None:
        self.engine.wait(lambda: not self.is_there(job), f"end of the job: {self.log}")

    def check(self) -> None:
        """Check that the run is done, with the serial bytes, and has left nothing."""
        assert self.site.output.read_bytes() == self.site.expected, self.log
        assert self.site.left_over() == []


@pytest.fixture
def jobs(grid_engine: GridEngine, site: Site) -> Iterator[Jobs]:
    made = Jobs(grid_engine, site)
    yield made
    grid_engine.ask("qdel -u root")
    grid_engine.wait(lambda: "job" not in grid_engine.ask("qstat"), "empty queue")
    made.path.unlink(missing_ok=True)


@pytest.mark.parametrize("mpi", ["openmpi", pytest.param("mpich", marks=pytest.mark.slow)])
def test_parallel_environment_is_used_on_all_hosts(jobs: Jobs, mpi: str) -> None:
    """By ``qrsh -inherit``: no other way leads from host to host here."""
    words = ("run", *jobs.site.options("--batch", "8", "-v"))
    job = jobs.submit("-pe", "spread", "4", mpi=mpi, words=tuple(word for word in words))
    jobs.wait_for_end(job)
    assert "2 nodes of the Grid Engine job" in jobs.log and "in 2 processes on 2 nodes" in jobs.log
    jobs.check()


@pytest.mark.parametrize(
    ("options", "slots"),
    [((), "1 (granted by Grid Engine: NSLOTS"), (("-pe", "spread", "2"), "2 (granted by Grid Engine: PE_HOSTFILE")],
    ids=["no parallel environment", "one host"],
)
def test_job_on_one_host_uses_its_granted_slots(jobs: Jobs, options: tuple[str, ...], slots: str) -> None:
    plan = ("plan", "--input", "in.fa", "--output", "out.fa", "--", "./tool", "in.fa", "out.fa")
    jobs.wait_for_end(jobs.submit(*options, words=plan))
    assert f"slots: {slots}" in jobs.log


def test_qdel_with_notice_stops_in_order(jobs: Jobs) -> None:
    with jobs.site.held():
        job = jobs.submit("-pe", "spread", "4", "-notify")
        jobs.engine.wait(lambda: jobs.site.under_way, f"results: {jobs.log}")
        jobs.engine.ask(f"qdel {job}")
        jobs.wait_for("no more work is handed out")
    jobs.wait_for("stopped by SIGUSR2; everything done so far is kept")
    jobs.wait_for_end(job)
    # The next job goes on, and appends to the same log.
    jobs.wait_for_end(jobs.submit("-pe", "spread", "4", "-notify"))
    assert "by earlier runs" in jobs.log
    jobs.check()


def test_timed_out_job_on_one_host_is_requeued(jobs: Jobs) -> None:
    """Grid Engine 8.1.9 does not start a job on several hosts again, whatever it runs: it waits for a clean up."""
    with jobs.site.held():
        job = jobs.submit("-pe", "spread", "2", "-l", "s_rt=00:00:15", "-r", "y", stopped=99)
        jobs.wait_for("SIGUSR1: no more work is handed out")
    jobs.wait_for("stopped by SIGUSR1; everything done so far is kept")
    jobs.wait_for_end(job)
    assert "by earlier runs" in jobs.log
    jobs.check()


def test_suspended_job_with_checkpoints_resumes_elsewhere(jobs: Jobs) -> None:
    with jobs.site.held():
        job = jobs.submit("-pe", "spread", "2", "-ckpt", "again")
        jobs.engine.wait(lambda: jobs.site.under_way, f"results: {jobs.log}")
        jobs.engine.ask(f"qmod -sj {job}")
        jobs.engine.wait(lambda: f"rescheduling job {job}.1" in jobs.engine.messages(), "second start")
    jobs.wait_for_end(job)
    assert "by earlier runs" in jobs.log
    jobs.check()


def test_lost_host_does_not_end_the_job(jobs: Jobs) -> None:
    engine = jobs.engine
    job = jobs.submit("-pe", "spread", "4", "-v", "SLEEP=1")
    engine.wait(lambda: jobs.site.written, f"results: {jobs.log}")
    master = re.search(rf"^ *{job} .*all\.q@(\S+)", engine.ask("qstat"), re.MULTILINE)
    assert master
    lost = next(host for host in engine.hosts[1:] if host != master[1])
    engine.nodes.kill(lost)
    try:
        engine.wait(lambda: "status      done" in jobs.log, f"end: {jobs.log}", 2 * harness.LONGEST_SECONDS)
        assert f"{lost} (rank 1) is lost" in jobs.log or f"({lost} not answering)" in jobs.log
        engine.wait(lambda: not jobs.site.left_over(), "cleaned folder")
        jobs.check()
    finally:
        engine.ask(f"qdel -f {job}")
        engine.nodes.start(lost)
        engine.start(lost)
