"""The launcher of an MPI job: the environment variables that it sets for its processes, and its own process."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple


class LaunchedProcess(NamedTuple):
    """This process as one of ``size`` that ``launcher`` started."""

    launcher: str
    rank: int
    size: int


#: (launcher, variables of rank and size). The first whose variables are set counts: ``mpirun`` inside ``srun`` leaves
#: those of both, and the inner one comes first here.
LAUNCHERS = (
    ("mpirun (Open MPI)", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("mpirun (MVAPICH)", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
    ("jsrun", "JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE"),
    ("a launcher of MPICH's kind", "PMI_RANK", "PMI_SIZE"),
    ("srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
)

#: Prefixes of variables that describe the job to an MPI library.
OF_MPI = ("OMPI_", "PMIX_", "PMI_", "PRTE_", "OPAL_", "HYDRA_", "HYDI_", "MPIR_", "MPICH_", "MPIEXEC_", "MV2_")


def find_launched_process(environ: Mapping[str, str]) -> LaunchedProcess | None:
    """Find the rank and size of this process; None: no launcher started it."""
    for launcher, rank, size in LAUNCHERS:
        if launcher == "srun" and "SLURM_STEP_ID" not in environ:
            continue  # a batch script, which is no step
        if environ.get(rank, "").isdigit() and environ.get(size, "").isdigit():
            return LaunchedProcess(launcher, int(environ[rank]), int(environ[size]))
    return None


def remove_mpi_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return ``environ`` without the variables of the MPI job, which a tool that uses MPI would try to join."""
    kept = {name: value for name, value in environ.items() if not name.startswith(OF_MPI)}
    prefixes = {environ[name] for name in ("OPAL_PREFIX", "PMIX_PREFIX", "PRTE_PREFIX") if environ.get(name)}
    if (paths := kept.get("LD_LIBRARY_PATH")) and prefixes:
        # mpirun prepends its own folders.
        mine = {f"{prefix}/{folder}" for prefix in prefixes for folder in ("lib", "lib64")}
        left = [path for path in paths.split(":") if path.rstrip("/") not in mine]
        if any(left):
            kept["LD_LIBRARY_PATH"] = ":".join(left)
        else:
            del kept["LD_LIBRARY_PATH"]
    return kept


#: Programs that start the processes of an MPI job on a machine, as the kernel names them.
LAUNCHER_PROCESSES = ("prted", "prterun", "orted", "orterun", "mpirun", "mpiexec", "hydra_pmi_proxy", "pmi_proxy")


def find_launcher_process(started: int | None = None) -> int | None:
    """Find the launcher among the ancestors of process ``started`` (None: this one); None: no known launcher."""
    ancestor = os.getpid() if started is None else started
    try:
        while (ancestor := int(Path(f"/proc/{ancestor}/stat").read_text().rpartition(")")[2].split()[1])) > 1:
            if Path(f"/proc/{ancestor}/comm").read_text().strip() in LAUNCHER_PROCESSES:
                return ancestor
    except OSError:
        pass
    return None


def is_stdin_garbled(environ: Mapping[str, str]) -> bool:
    """Tell whether standard input is forwarded by the mpirun of Open MPI 5.

    It repeats some parts many times, and never closes the pipe (https://github.com/openpmix/prrte/issues/2579).
    """
    if not environ.get("OMPI_VERSION", "").startswith("5."):
        return False
    try:
        ours = os.readlink("/proc/self/fd/0")
        folder = f"/proc/{find_launcher_process()}/fd"
        return ours.startswith("pipe:") and any(os.readlink(f"{folder}/{name}") == ours for name in os.listdir(folder))
    except OSError:
        return False
