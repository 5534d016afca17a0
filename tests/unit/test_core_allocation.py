"""Cores that batch systems grant, as they say so in the environment."""

from __future__ import annotations

import pytest

from millrace.host.core_allocation import choose_least_limit, expand_node_list, find_granted_cores, make_grant_variable

#: Files that batch systems name.
FILES = {
    "torque": "n1\nn1\nn1\nn2\n",
    "pro": "n1.site\nn2.site\n",
    "engine": "n1.site 4 all.q@n1.site UNDEFINED\nn2.site 3 all.q@n2.site UNDEFINED\n",
}

SLURM = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[1-3]", "SLURM_JOB_CPUS_PER_NODE": "4(x2),2"}
STEP = {**SLURM, "SLURM_STEP_ID": "0", "SLURM_CPUS_ON_NODE": "4", "SLURM_NODEID": "0"}


def read(path: str) -> str:
    return FILES.get(path, "")


@pytest.mark.parametrize(
    ("environ", "cores", "source"),
    [
        ({}, 0, ""),
        (SLURM, 4, "SLURM_JOB_CPUS_PER_NODE"),
        ({**SLURM, "SLURMD_NODENAME": "n3"}, 2, "SLURM_JOB_CPUS_PER_NODE"),
        # In the batch script of sbatch -n2 -c1 on one node.
        ({"SLURM_JOB_NODELIST": "n1", "SLURM_JOB_CPUS_PER_NODE": "2", "SLURM_CPUS_PER_TASK": "1"}, 2, "SLURM_JOB_CPUS_PER_NODE"),
        # The shell of salloc may be on a node that is not of the job.
        ({**SLURM, "SLURM_JOB_NODELIST": "a,b,c"}, 2, "SLURM_JOB_CPUS_PER_NODE"),
        ({**SLURM, "SLURM_JOB_CPUS_PER_NODE": "many", "SLURM_CPUS_PER_TASK": "3"}, 3, "SLURM_CPUS_PER_TASK"),
        ({**STEP, "SLURM_CPUS_PER_TASK": "2", "SLURM_STEP_TASKS_PER_NODE": "1(x3)"}, 2, "SLURM_CPUS_PER_TASK"),
        ({**STEP, "SLURM_CPUS_PER_TASK": "2", "SLURM_STEP_TASKS_PER_NODE": "2,1(x2)"}, 4, "SLURM_CPUS_ON_NODE"),
        ({**STEP, "MILLRACE_GRANTED": "n1=3 n2=1"}, 3, "batch system"),
        ({"PBS_NODEFILE": "torque"}, 3, "PBS_NODEFILE"),
        ({"PBS_NODEFILE": "pro", "NCPUS": "8"}, 8, "NCPUS"),
        ({"PBS_NODEFILE": "gone", "NCPUS": "8"}, 8, "NCPUS"),
        ({"PBS_NP": "12", "PBS_NUM_PPN": "6"}, 6, "PBS_NUM_PPN"),
        ({"PBS_NP": "12"}, 12, "PBS_NP"),
        ({"NSLOTS": "7", "PE_HOSTFILE": "engine"}, 4, "PE_HOSTFILE"),
        ({"NSLOTS": "7"}, 7, "NSLOTS"),
        ({"SLURM_JOB_CPUS_PER_NODE": "16", "HQ_TASK_ID": "0", "HQ_CPUS": "2,3,5"}, 3, "HQ_CPUS"),
        ({"LSB_DJOB_NUMPROC": "6", "LSB_MCPU_HOSTS": "n2 4 n1 2"}, 2, "LSB_MCPU_HOSTS"),
        ({"LSB_DJOB_NUMPROC": "6"}, 6, "LSB_DJOB_NUMPROC"),
        ({"NCPUS": "0", "NSLOTS": "undefined"}, 0, ""),
    ],
)  # fmt: skip
def test_granted_cores_on_the_first_node(environ: dict[str, str], cores: int, source: str) -> None:
    found = find_granted_cores(environ, "n1.site", read)
    assert found is None if not cores else found and found[0] == cores and source in found[1]


@pytest.mark.parametrize(
    ("environ", "handed"),
    [
        ({}, {}),
        (SLURM, {"n1": 4, "n2": 4, "n3": 2}),
        ({"PBS_NODEFILE": "torque"}, {"n1": 3, "n2": 1}),
        ({"PBS_NODEFILE": "pro", "NCPUS": "8"}, {"n1.site": 8, "n2.site": 8}),
    ],
)
def test_other_nodes_get_their_own_grant(environ: dict[str, str], handed: dict[str, int]) -> None:
    told = make_grant_variable(environ, read)
    assert bool(told) == bool(handed)
    for host, cores in handed.items():
        found = find_granted_cores(told, host, read)
        assert found and found[0] == cores
    assert not handed or find_granted_cores(told, "elsewhere", read) is None


def test_grant_is_limited_to_the_cores_of_the_machine() -> None:
    machine = (2, "cores of this machine")
    assert choose_least_limit([machine, (400, "granted by Slurm")]) == machine
    assert choose_least_limit([machine, (1, "CPU quota"), (2, "granted by Slurm")])[0] == 1
    assert choose_least_limit([machine, (2, "granted by Slurm")]) == (2, "granted by Slurm")


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n1", ["n1"]),
        ("n[1-3]", ["n1", "n2", "n3"]),
        ("n[08-11]", ["n08", "n09", "n10", "n11"]),
        ("gpu-[1,3],login", ["gpu-1", "gpu-3", "login"]),
        ("r[1-2]n[1-2].site", ["r1n1.site", "r1n2.site", "r2n1.site", "r2n2.site"]),
    ],
)
def test_a_packed_list_of_nodes_is_unpacked(text: str, names: list[str]) -> None:
    assert list(expand_node_list(text)) == names
