"""What changes between the plan of a run and its start: as if it had changed while the run was on."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from millrace.core.errors import CorruptError
from millrace.core.job import JobSpec
from millrace.execution import plan_execution
from millrace.launch.supervisor_link import SupervisorLink
from millrace.planning import run_plan as planner

N = 4


def job(*inputs: str) -> JobSpec:
    return JobSpec(
        command=("sh", "tool", *inputs, "out.txt"), input=inputs, output=("out.txt",), slots=1, batch="1", verify=0.0, verbosity=-1,
        progress="none",
    )  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tool").write_text('cat "$1" > "$2"\n')
    (tmp_path / "in").mkdir()
    for k in range(N):
        (tmp_path / f"in/{k}.fa").write_text(f">r{k}\nMKVMKV\n")
    return tmp_path


def test_changed_single_record_file_is_refused(folder: Path) -> None:
    made = planner.make_plan(job("in"), folder, os.environ)
    (folder / "in/2.fa").write_text(">r2\nMK\n")
    with pytest.raises(CorruptError, match=r"input in/2\.fa: is not what it was: it changed while the run was on"):
        plan_execution.run_plan(made, SupervisorLink({}))
    assert not (folder / "out.txt").exists()


def test_unchanged_files_are_accepted(folder: Path) -> None:
    plan_execution.run_plan(planner.make_plan(job("in"), folder, os.environ), SupervisorLink({}))
    assert (folder / "out.txt").read_text() == "".join(f">r{k}\nMKVMKV\n" for k in range(N))
