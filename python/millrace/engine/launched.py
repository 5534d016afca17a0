"""What the launcher of an MPI job says in the environment of the processes that it starts. Pure, and without MPI."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Launched:
    """This process is one of ``size``, which ``launcher`` started."""

    launcher: str
    rank: int
    size: int


#: (launcher, variables of rank and size). The first whose variables are there counts: ``mpirun`` inside ``srun`` leaves
#: those of both, and those of the inner one come first here.
LAUNCHERS = (
    ("mpirun (Open MPI)", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("mpirun (MVAPICH)", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
    ("jsrun", "JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE"),
    ("a launcher of MPICH's kind", "PMI_RANK", "PMI_SIZE"),
    ("srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
)

#: Beginnings of names of variables that tell an MPI library of the job it is in.
OF_MPI = ("OMPI_", "PMIX_", "PMI_", "PRTE_", "OPAL_", "HYDRA_", "HYDI_", "MPIR_", "MPICH_", "MPIEXEC_", "MV2_")


def find(environ: Mapping[str, str]) -> Launched | None:
    """The job of several processes that this one is part of; None: it is alone."""
    for launcher, rank, size in LAUNCHERS:
        if launcher == "srun" and "SLURM_STEP_ID" not in environ:
            continue  # a batch script, which is no step
        if environ.get(rank, "").isdigit() and environ.get(size, "").isdigit():
            found = Launched(launcher, int(environ[rank]), int(environ[size]))
            return found if found.size > 1 else None
    return None


def for_tools(environ: Mapping[str, str]) -> dict[str, str]:
    """``environ`` as a tool should see it: without the MPI job, which a tool that knows MPI would try to join."""
    kept = {name: value for name, value in environ.items() if not name.startswith(OF_MPI)}
    prefixes = {environ[name] for name in ("OPAL_PREFIX", "PMIX_PREFIX", "PRTE_PREFIX") if environ.get(name)}
    if (paths := kept.get("LD_LIBRARY_PATH")) and prefixes:
        # mpirun put its own in front.
        mine = {f"{prefix}/{folder}" for prefix in prefixes for folder in ("lib", "lib64")}
        left = [path for path in paths.split(":") if path.rstrip("/") not in mine]
        if any(left):
            kept["LD_LIBRARY_PATH"] = ":".join(left)
        else:
            del kept["LD_LIBRARY_PATH"]
    return kept
