"""The benchmark of the messages of a cluster runs: it stands in for a node, of which nothing else uses that face."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import mpi_jobs
import pytest

REPO = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("more", [[], ["--partition-size", "2"]])
def test_all_tasks_of_the_benchmark_end(more: list[str]) -> None:
    mpirun = mpi_jobs.find("openmpi").mpirun[0]
    command = [
        sys.executable,
        "-m",
        "bench.cluster",
        "--ranks",
        "3",
        "--slots",
        "2",
        "--tasks",
        "60",
        "--mpirun",
        mpirun,
    ]
    done = subprocess.run([*command, *more], cwd=REPO, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[0])["tasks"] == 60
