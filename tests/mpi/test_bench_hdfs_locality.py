"""The benchmark of a database in a real HDFS runs, at its smallest size."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import harness
import namespace_nodes
import pytest

REPO = Path(__file__).resolve().parents[2]


def skip_without_hdfs(*programs: str) -> None:
    """Skip where there can be no nodes with an HDFS, or a program is missing."""
    pytest.importorskip("hdfs_native")
    if reason := namespace_nodes.reason_not():
        pytest.skip(reason)
    if missing := [name for name in ("java", *programs) if not shutil.which(name)]:
        pytest.skip(f"not installed: {', '.join(missing)}")
    if not (REPO / ".tools" / "hadoop").is_dir():
        pytest.skip("not installed: Hadoop in .tools/hadoop (make tools, with mvn)")


@pytest.mark.slow
def test_filters_over_hdfs_write_the_serial_bytes() -> None:
    """By where the blocks are, and anywhere; what is local goes over no link."""
    skip_without_hdfs("tc")
    words = ["--nodes", "2", "--megabytes", "6", "--block", "1", "--ways", "HDFS, by the blocks", "HDFS, anywhere"]
    command = [sys.executable, "-m", "bench.hdfs_input", *words]
    done = subprocess.run(command, cwd=REPO, capture_output=True, text=True, timeout=harness.LONGEST_SECONDS)
    assert done.returncode == 0, done.stderr
    rows = [line.split("|") for line in done.stdout.splitlines() if line.startswith("| HDFS")]
    assert len(rows) == 2, done.stdout


@pytest.mark.slow
def test_benchmark_searches_write_the_serial_bytes() -> None:
    """By where the blocks are, anywhere, and with a DataNode that dies meanwhile."""
    skip_without_hdfs("makeblastdb", "tc")
    words = ["--nodes", "2", "--fragments", "2", "--megabytes", "1", "--queries", "1"]
    command = [sys.executable, "-m", "bench.hdfs_locality", *words]
    done = subprocess.run(command, cwd=REPO, capture_output=True, text=True, timeout=harness.LONGEST_SECONDS)
    assert done.returncode == 0, done.stderr
    rows = [line.split("|") for line in done.stdout.splitlines() if line.startswith("| ")]
    assert len(rows) == 5 and all(row[-2].strip() == "yes" for row in rows[2:]), done.stdout
    assert all(int(row[2]) >= 2 for row in rows[2:]), done.stdout
