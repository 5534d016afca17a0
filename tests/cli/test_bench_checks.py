"""The benchmark of the checks counts functions that there are, and leaves the bytes of a job alone."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import harness
import pytest

REPO = Path(__file__).resolve().parents[2]


@pytest.mark.skipif(not shutil.which("muscle3"), reason="muscle3 is not installed")
def test_file_checks_of_benchmark_are_counted(data: Path) -> None:
    words = ["-m", "bench.checks", "muscle3", "--scale", "0.005", "--repeats", "1", "--before", sys.executable]
    done = subprocess.run(
        [sys.executable, *words], cwd=REPO, capture_output=True, text=True, timeout=harness.LONGEST_SECONDS, check=False
    )
    assert done.returncode == 0 and "bytes: the same" in done.stdout, done.stdout + done.stderr
    (row,) = [line.split("|") for line in done.stdout.splitlines() if line.startswith("| muscle3")]
    looks, milliseconds = int(row[4]), float(row[5])
    assert looks > 4 and milliseconds > 0, "each of the four files is looked at, and more"
