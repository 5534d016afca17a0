"""A few of the random scenarios of ``bench.storm``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_random_scenarios_end_with_the_serial_bytes_or_a_message() -> None:
    command = [sys.executable, "-m", "bench.storm", "--runs", "6", "--jobs", "2", "--seed", "1"]
    done = subprocess.run(command, cwd=REPO, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "6 scenarios" in done.stdout, f"{done.stdout}\n{done.stderr}"
