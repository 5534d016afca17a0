"""Kills at every moment: nothing lost, nothing twice, nothing left behind."""

from __future__ import annotations

import dataclasses
import os
import shutil
import signal
import time
from contextlib import suppress
from pathlib import Path

import harness
import pytest
from parameter_choice import some

#: Several outputs of whole tasks; fragments are killed in `test_fragments_killed`, too.
CASES = some(["blastp_fragments", "hmmscan", "blastp"], "hmmscan")


@pytest.fixture(scope="module", params=CASES)
def case(request: pytest.FixtureRequest, data: Path, tmp_path_factory: pytest.TempPathFactory) -> harness.Case:
    """A small real command with what it gives by itself."""
    program = request.param.partition("_")[0]
    if not shutil.which(program):
        pytest.skip(f"{program} is not installed")
    made: harness.Case = getattr(harness, request.param)(tmp_path_factory.mktemp(request.param), data)
    made.serial()
    return made


def test_run_killed_at_any_moment_loses_nothing(case: harness.Case) -> None:
    """No result is computed twice, and nothing is left behind."""
    chaos = harness.Chaos(case, seed=7)
    for moment, target in zip(
        harness.MOMENTS,
        ("millrace", "again", "watchdog", "group", "stopped", "millrace", "tool"),
        strict=True,
    ):
        chaos.once(moment, target)
    chaos.until(3)  # where runs were over before their moment had come
    assert not chaos.problems


def test_a_killed_tool_is_run_again(case: harness.Case) -> None:
    process = case.start("tool-killed")
    killed = 0
    while process.poll() is None and not killed:
        for pid in harness.tools(process.pid)[:1]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                killed += 1
        time.sleep(0.001)
    assert process.wait() == 0 and killed
    assert not case.differing()
    assert not case.run_dir.exists()


def test_next_run_sweeps_after_a_killed_run_and_watchdog(case: harness.Case) -> None:
    process = case.start("watchdog-killed")
    assert harness.wait_until(lambda: bool(harness.tools(process.pid)), process)
    pids = [pid for pid, name in harness.children(process.pid) if name == "millrace-watch"]
    assert len(pids) == 1
    work = harness.work_of(process.pid)
    assert work.is_dir()
    os.kill(pids[0], signal.SIGKILL)
    process.kill()
    process.wait()
    assert harness.wait_until(lambda: not harness.marked("watchdog-killed")), "a tool outlives its parent"
    assert case.start("next").wait() == 0
    assert not work.exists()
    assert not case.differing()


def test_two_runs_of_one_command_exclude_each_other(case: harness.Case) -> None:
    first, second = case.start("both"), case.start("both")
    codes = sorted([first.wait(), second.wait()])
    # The one that comes second is refused, or finds the first done.
    assert codes in ([0, 2], [0, 0])
    assert not case.differing()
    assert not case.run_dir.exists()
    assert not harness.left_over("both")


@pytest.mark.slow
@pytest.mark.parametrize("measure", ["tasks", "files"])
def test_profiled_run_killed_fifty_times_loses_nothing(data: Path, tmp_path: Path, measure: str) -> None:
    case = harness.hmmscan(tmp_path, data)
    case.serial()
    options = ("--profile-io",) if measure == "tasks" else ()
    verb = "run" if measure == "tasks" else "profile"
    chaos = harness.Chaos(dataclasses.replace(case, options=(*case.options, *options), verb=verb), seed=11)
    chaos.until(50)
    assert not chaos.problems
