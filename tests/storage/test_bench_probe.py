"""The benchmark of predicted transfers runs, at its smallest size; what it finds depends on the machine."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import harness
import namespace_nodes
import pytest

REPO = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_benchmark_compares_predictions_with_transfers() -> None:
    pytest.importorskip("requests")
    if reason := namespace_nodes.reason_not() or ("" if shutil.which("tc") else "tc is not installed"):
        pytest.skip(reason)
    command = [sys.executable, "-m", "bench.probe", "--mbit", "200", "--seconds", "0.2", "--repeats", "1"]
    done = subprocess.run(command, cwd=REPO, capture_output=True, text=True, timeout=harness.LONGEST_SECONDS)
    assert done.returncode in (0, 1) and not done.stderr, done.stderr
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]] for line in done.stdout.splitlines() if line.startswith("| ")
    ]
    assert [row[:3] for row in rows[2:]] == [["200 Mbit/s", "1", "5 MB"], ["200 Mbit/s", "4", "5 MB"]], done.stdout
