"""``millrace simulate`` as a user types it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

MILLRACE = Path(sys.executable).parent / "millrace"
BLASTP = Path(__file__).parents[2] / "bench" / "traces" / "blastp.jsonl"


def simulate(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [MILLRACE, "simulate", "--nodes", "3", "--cores", "4", *arguments], capture_output=True, text=True, timeout=300
    )


def test_a_measured_trace_is_simulated() -> None:
    ended = simulate("--trace", str(BLASTP), "--work", "60")
    assert ended.returncode == 0 and not ended.stderr
    for words in (
        "500 tasks with 500 records of blastp",
        "3 nodes, 12 cores, no partitions",
        "efficiency:",
        "coordinator:",
    ):
        assert words in ended.stdout


def test_default_simulation_replays_the_run_elsewhere() -> None:
    assert json.loads(simulate("--trace", str(BLASTP), "--json").stdout)["records"] == 500


def test_figures_are_printed_as_json() -> None:
    ended = simulate("--trace", "fixed:1", "--records", "120", "--batch", "1", "--partition-size", "2", "--json")
    found = json.loads(ended.stdout)
    assert found["tasks"] == found["records"] == 120
    assert found["cores"] == 12 and found["partitions"] == 2
    assert 10 < found["seconds"] < 12


def test_nodes_are_lost_and_records_fail() -> None:
    common = ("--trace", "fixed:1", "--records", "600")
    ended = simulate(*common, "--lose", "2", "--failing", "3")
    assert ended.returncode == 0, ended.stderr
    assert "2 nodes lost," in ended.stdout and "3 records quarantined" in ended.stdout
    found = [json.loads(simulate(*common, "--json", *more).stdout) for more in ((), ("--lose", "2"))]
    assert found[1]["seconds"] > found[0]["seconds"] + 10


def test_a_long_record_is_finished_in_slices() -> None:
    ended = simulate("--trace", "fixed:1000", "--records", "1", "--fragments", "12", "--finish", "0.2")
    assert ended.returncode == 0, ended.stderr
    words = re.search(r"fragments: +12; (\d+) slices", ended.stdout)
    assert words and int(words[1]) > 12


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--trace", "nowhere"), "nowhere: no such run directory, event log or distribution"),
        (("--trace", "lognormal:x"), "'lognormal:x' is no distribution"),
        (("--trace", "fixed:1", "--records", "1", "--work", "1"), "--records and --work contradict each other"),
        (("--trace", "fixed:1", "--lose", "3"), "--lose 3: 2 of 3 nodes can be lost"),
        (("--trace", "fixed:1", "--records", "5", "--failing", "6"), "--failing 6: there are 5 records"),
        (("--trace", "fixed:1", "--finish", "0.1"), "--finish: the database is whole"),
        (("--trace", "fixed:1", "--latency", "-1"), "invalid value for '--latency'"),
    ],
)
def test_impossible_simulation_is_refused(arguments: tuple[str, ...], words: str) -> None:
    ended = simulate(*arguments)
    assert ended.returncode == 2
    assert words in ended.stderr and not ended.stdout
