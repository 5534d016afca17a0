"""Which nodes a job has, as batch systems and the user say."""

from __future__ import annotations

from pathlib import Path

import pytest

from millrace.core.errors import RefusedError
from millrace.host import core_allocation
from millrace.launch import launch_commands
from millrace.launch.node_allocation import NodeAllocation, find_node_allocation, parse_hosts

SLURM = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[1-3]"}


@pytest.mark.parametrize("text", ["", ",", "a b", "-rf", "a,$(x)"])
def test_invalid_host_is_refused(text: str) -> None:
    with pytest.raises(RefusedError):
        parse_hosts(text)


def test_named_hosts_override_the_job() -> None:
    assert find_node_allocation(("a,b", "a"), SLURM) == NodeAllocation("hosts", ("a", "b"))


def test_slurm_job_of_several_nodes_is_detected() -> None:
    assert find_node_allocation((), SLURM) == NodeAllocation("slurm", ("n1", "n2", "n3"))


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n1", "SLURMD_NODENAME": "n1"},
        {**SLURM, "MILLRACE_SUPERVISED": "1"},
        {**SLURM, "SLURM_STEP_ID": "0", "SLURM_STEP_NODELIST": "n2"},
    ],
    ids=["no job", "one node", "supervised", "a step of one node"],
)
def test_a_run_stays_on_its_machine(environ: dict[str, str]) -> None:
    assert find_node_allocation((), environ) is None


def test_shell_of_salloc_uses_the_granted_node() -> None:
    """It is started where it was typed, as a rule."""
    assert find_node_allocation((), {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n1"}) == NodeAllocation(
        "slurm", ("n1",)
    )


#: What a heterogeneous job has, of two parts.
PARTS = {
    "SLURM_JOB_ID": "4", "SLURM_JOB_NODELIST": "n1", "SLURM_HET_SIZE": "2", "SLURM_JOB_NODELIST_HET_GROUP_0": "n1", "SLURMD_NODENAME": "n1",
    "SLURM_JOB_NODELIST_HET_GROUP_1": "n[2-3]", "SLURM_JOB_CPUS_PER_NODE_HET_GROUP_0": "1", "SLURM_JOB_CPUS_PER_NODE_HET_GROUP_1": "4(x2)",
}  # fmt: skip


def test_heterogeneous_job_is_used_whole() -> None:
    found = find_node_allocation((), PARTS)
    assert found == NodeAllocation("slurm", ("n1", "n2", "n3"))
    words = launch_commands.build_node_command(found, "n3", ["true"], PARTS)
    assert words[:2] == ["srun", "--het-group=1"] and words[-1] == "true"
    assert core_allocation.make_grant_variable(PARTS, lambda _: "") == {core_allocation.GRANTED: "n1=1 n2=4 n3=4"}


def test_hosts_of_other_batch_systems_are_detected(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("a 2 all.q@a UNDEFINED\nb 1 all.q@b UNDEFINED\nb 1 big.q@b UNDEFINED\n")
    engine = {"JOB_ID": "3", "PE_HOSTFILE": str(hosts), "NSLOTS": "4"}
    assert find_node_allocation((), engine) == NodeAllocation("grid engine", ("a", "b"))
    assert core_allocation.make_grant_variable(engine, lambda path: Path(path).read_text()) == {
        core_allocation.GRANTED: "a=2 b=2"
    }
    lsf = {"LSB_JOBID": "3", "LSB_MCPU_HOSTS": "a 2 b 4"}
    assert find_node_allocation((), lsf) == NodeAllocation("lsf", ("a", "b"))
    assert launch_commands.build_node_command(NodeAllocation("lsf", ("a", "b")), "b", ["true"], lsf) == [
        "blaunch",
        "b",
        "true",
    ]
    hosts.write_text("a\na\nb\n")
    assert find_node_allocation((), {"LSB_JOBID": "3", "LSB_DJOB_HOSTFILE": str(hosts)}) == NodeAllocation(
        "lsf", ("a", "b")
    )


def test_hyperqueue_task_stays_on_its_node() -> None:
    assert find_node_allocation((), {**SLURM, "HQ_TASK_ID": "0", "HQ_CPUS": "2,3"}) is None


def test_an_interactive_step_has_the_whole_job() -> None:
    interactive = {**SLURM, "SLURM_STEP_ID": str(0xFFFFFFFA), "SLURM_STEP_NODELIST": "n1"}
    assert find_node_allocation((), interactive) == NodeAllocation("slurm", ("n1", "n2", "n3"))


def test_the_nodes_of_a_pbs_job_count_once_each(tmp_path: Path) -> None:
    (tmp_path / "nodes").write_text("a\na\nb\nb\n")
    environ = {"PBS_JOBID": "1.server", "PBS_NODEFILE": str(tmp_path / "nodes")}
    assert find_node_allocation((), environ) == NodeAllocation("pbs", ("a", "b"))
