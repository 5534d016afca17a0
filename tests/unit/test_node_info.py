"""Which programs may work together on nodes of several architectures."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from millrace.cluster.messages import NodeReady, SetUpNode
from millrace.cluster.node_info import ClusterPrograms, is_run_dir_shared
from millrace.core.errors import RefusedError, ToolError
from millrace.core.job import make_job
from millrace.core.tool_use import FetchedFile, RemoteFileView, ToolUse
from millrace.planning import result_fingerprint
from millrace.planning import run_plan as planner
from millrace.rundir.paths import RunDir

HERE = os.uname().machine


@pytest.fixture
def programs(tmp_path: Path) -> ClusterPrograms:
    (tmp_path / "tool").write_text("#!/bin/sh\n")
    (tmp_path / "tool").chmod(0o755)
    (tmp_path / "in.fa").write_text(">a\nAC\n")
    (tmp_path / "run").mkdir()
    values = {
        "command": "./tool in.fa out.fa",
        "input": "in.fa",
        "output": "out.fa",
        "arch": {HERE: {"exe": "./tool"}, "vax": {"exe": "tool-vax"}},
    }
    plan = planner.make_plan(make_job(values), tmp_path, os.environ)
    return ClusterPrograms(plan, RunDir(tmp_path / "run"))


def own(tmp_path: Path) -> NodeReady:
    return NodeReady("tool", result_fingerprint.fingerprint_content(tmp_path / "tool"), "")


def test_each_architecture_has_its_name_for_the_program(programs: ClusterPrograms) -> None:
    assert programs.choose_program_name("a", HERE) == "./tool"
    assert programs.choose_program_name("b", "vax") == "tool-vax"
    with pytest.raises(RefusedError, match=r"c is of architecture pdp11, the job's programs are for "):
        programs.choose_program_name("c", "pdp11")


def test_same_program_file_on_each_architecture(programs: ClusterPrograms, tmp_path: Path) -> None:
    same = own(tmp_path)
    programs.check_same_programs(
        [("a", HERE, same), ("b", "vax", NodeReady("t", "V", "")), ("c", "vax", NodeReady("t", "V", ""))]
    )
    with pytest.raises(ToolError, match=r"a: .* that the coordinator has"):
        programs.check_same_programs([("a", HERE, msgspec.structs.replace(same, content="other"))])
    with pytest.raises(ToolError, match=r"c: .* that other nodes of vax have"):
        programs.check_same_programs([("c", "vax", NodeReady("t", "W", ""))])  # the same as in the earlier start


def test_same_program_release_on_all_architectures(programs: ClusterPrograms) -> None:
    with pytest.raises(ToolError, match="b: tool-vax: is tool 2, the coordinator's"):
        programs.check_same_programs([("b", "vax", NodeReady("tool-vax", "V", "tool 2"))])


@pytest.mark.parametrize(
    ("arch", "words"),
    [({"vax": {"exe": ""}}, "arch"), ({"vax": {"ex": "t"}}, "ex"), ({"vax": "tool"}, "arch"), ({"vax": {}}, "exe")],
)
def test_program_without_a_name_is_refused(arch: object, words: str) -> None:
    with pytest.raises(RefusedError, match=words):
        make_job({"command": "tool", "arch": arch})


def make_setup(folder: Path, *, is_cut: bool, databases: tuple[Path, ...] = ()) -> SetUpNode:
    """Make a setup of which this node does not see the run directory."""
    use = ToolUse(adapter="generic", argv=("tool",), inputs=(), outputs=(), databases=databases)
    cut = FetchedFile("in.fq", "hdfs://nn/in.fq", "k", 9, "v", 0) if is_cut else None
    view = RemoteFileView(
        root=folder, folder=folder, files=(FetchedFile("db", "s3://b/db", "k", 9, "v", 0),), argv=(), cut_by_nodes=cut
    )
    return SetUpNode(
        use=use, cwd=str(folder), program="tool", command=None, environ={}, nice=0, run_dir=str(folder / "none"),
        run_id=b"id", journal="", sync=1.0, slots=1, first_slot=0, name="", staged=[], shared={}, world=[], view=view,
        copies={},
    )  # fmt: skip


def test_node_without_the_run_dir_may_cut_inputs_in_hdfs(tmp_path: Path) -> None:
    assert not is_run_dir_shared(make_setup(tmp_path, is_cut=True, databases=(tmp_path / "db",)))


def test_node_without_the_run_dir_is_refused_otherwise(tmp_path: Path) -> None:
    """Tasks may read any file of the folder that all nodes share."""
    with pytest.raises(RefusedError, match="is not here what it is at the coordinator"):
        is_run_dir_shared(make_setup(tmp_path, is_cut=False))


def test_unshared_file_of_a_task_is_refused(tmp_path: Path) -> None:
    """Each node might have another one; a file behind a URL is one for all."""
    with pytest.raises(RefusedError, match=r"ref\.fa: nodes that share no folder may each have another one"):
        is_run_dir_shared(make_setup(tmp_path, is_cut=True, databases=(Path("ref.fa"),)))
