"""Partitions: leaders hand out to others and pass on what is said, and nothing of the promise changes."""

from __future__ import annotations

import os
import signal
from dataclasses import replace

import pytest
from crash_site import Site
from mpi_jobs import NO_SILENCE, Mpi, find, said, with_limits
from test_mpi_failures import Job, resumed, site, words

__all__ = ["site"]  # a fixture

#: What differs in partitions is a leader; that others may be hurt like him is shown with ``-m slow``.
COORDINATOR, LEADER, OTHER = (
    pytest.param(rank, id=name, marks=[] if name == "leader" else pytest.mark.slow)
    for rank, name in ((0, "coordinator"), (3, "leader"), (4, "other"))
)

#: Nine processes: the coordinator and two others; a leader, of rank 3, and two others; the same with rank 6.
N_RANKS, LEADERS = 9, (3, 6)


@pytest.fixture(params=["openmpi", pytest.param("mpich", marks=pytest.mark.slow)], scope="module")
def mpi(request: pytest.FixtureRequest) -> Mpi:
    """What is said here goes the same ways under both; the other one has its turn with ``-m slow``."""
    return find(request.param)


def whole(mpi: Mpi, site: Site, *more: str, **environ: str) -> tuple[int, str]:
    return mpi.run(N_RANKS, words("--partition-size", "3", *more), site.folder, LOG=str(site.log), **environ)


def start(mpi: Mpi, site: Site, **environ: str) -> Job:
    return Job(mpi, N_RANKS, site, 12, ("--partition-size", "3"), **environ)


@pytest.mark.parametrize("batch", ["1", *(pytest.param(batch, marks=pytest.mark.slow) for batch in ("7", "auto"))])
def test_output_is_the_serial_tools(mpi: Mpi, site: Site, batch: str) -> None:
    code, text = whole(mpi, site, "--batch", batch, "--keep-run-dir", **({"SLEEP": "0.1"} if batch == "1" else {}))
    assert code == 0, text
    assert site.output.read_bytes() == site.expected
    if batch == "1":
        journals = [path for path in site.run_dir.glob("journal-*.mrj") if path.stat().st_size > 500]
        assert len(journals) == N_RANKS, "some process had nothing to do"


@pytest.mark.slow
@pytest.mark.parametrize("victim", [COORDINATOR, LEADER, OTHER])
def test_killed_process_ends_the_job_and_it_resumes(mpi: Mpi, site: Site, victim: int) -> None:
    job = start(mpi, site)
    os.kill(job.ranks[victim], signal.SIGKILL)
    assert job.ends() != 0
    code, text = whole(mpi, site, "--keep-run-dir")
    assert code == 0, text
    assert site.output.read_bytes() == site.expected
    assert resumed(site) > 0


@pytest.mark.slow
def test_frozen_partition_process_is_left_out(openmpi: Mpi, site: Site) -> None:
    job = start(openmpi, site)
    os.kill(job.ranks[7], signal.SIGSTOP)
    job.says("(rank 7) is lost: no sign of life for 10 s")
    job.goes_on()
    job.ends_well()
    assert site.output.read_bytes() == site.expected
    assert not site.run_dir.exists()


@pytest.mark.slow
def test_frozen_partition_process_at_the_end_is_not_awaited(openmpi: Mpi, site: Site) -> None:
    site.n = 120
    site.write_input()
    options = ("--partition-size", "3", "--write", "coordinator")
    job = Job(with_limits(openmpi, site.folder, NO_SILENCE), N_RANKS, site, 30, options)
    os.kill(job.ranks[7], signal.SIGSTOP)
    job.goes_on()
    job.ends_well()
    assert site.output.read_bytes() == site.expected


@pytest.mark.slow
@pytest.mark.parametrize("victim", [COORDINATOR, LEADER, OTHER])
def test_task_of_a_frozen_tool_runs_elsewhere(openmpi: Mpi, site: Site, victim: int) -> None:
    site.n = 120
    site.write_input()
    job = start(openmpi, site)
    job.freeze_tool(victim)
    job.goes_on()
    assert job.ends() == 0, said(site.folder)
    assert site.output.read_bytes() == site.expected
    assert not site.run_dir.exists()


@pytest.mark.slow
def test_frozen_leader_ends_the_run_and_it_resumes(openmpi: Mpi, site: Site) -> None:
    job = start(openmpi, site)
    os.kill(job.ranks[6], signal.SIGSTOP)
    assert job.ends() != 0  # who notices first, coordinator or others, ends it
    assert whole(openmpi, site)[0] == 0
    assert site.output.read_bytes() == site.expected


@pytest.mark.slow
def test_killed_partition_process_is_left_out_if_mpi_can(openmpi: Mpi, site: Site) -> None:
    tolerant = replace(openmpi, mpirun=(*openmpi.mpirun, "--with-ft", "ulfm"))
    job = start(tolerant, site)
    os.kill(job.ranks[4], signal.SIGKILL)
    job.says("(rank 4) is lost: its process is gone")
    job.goes_on()
    assert job.ends() == 0, said(site.folder)
    assert site.output.read_bytes() == site.expected


@pytest.mark.slow
def test_a_signal_stops_all_partitions_in_order(mpi: Mpi, site: Site) -> None:
    job = start(mpi, site)
    os.kill(job.ranks[8], signal.SIGTERM)
    job.says("no more work is handed out")
    job.goes_on()
    code = job.ends()
    assert code == 143, said(site.folder)
    assert "stopped by SIGTERM" in said(site.folder)
    assert whole(mpi, site)[0] == 0
    assert site.output.read_bytes() == site.expected


@pytest.mark.slow
def test_a_bad_record_is_quarantined_in_any_partition(mpi: Mpi, site: Site) -> None:
    code, text = whole(mpi, site, BAD="record17$")
    assert code == 3, text
    assert (site.run_dir / "quarantine" / "record-18").is_dir()


@pytest.mark.slow
def test_partition_error_is_reported_with_its_process(openmpi: Mpi, site: Site) -> None:
    # A limit on the size of files is what a full disk is to its writer: here, to one journal.
    limit = '[ "$OMPI_COMM_WORLD_RANK" != 8 ] || ulimit -f 1; exec "$0" "$@"'
    code, text = whole(replace(openmpi, before=("sh", "-c", limit)), site, "--batch", "1", SLEEP="0.2")
    assert code == 1, text
    assert "(rank 8): " in text and "a file may not become so large" in text
    assert whole(openmpi, site)[0] == 0
    assert site.output.read_bytes() == site.expected
