"""The launcher of an MPI job: what it says in the environment of the processes that it starts, and where it is."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple


class Launched(NamedTuple):
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
    """The job that this process is part of, if a launcher started it."""
    for launcher, rank, size in LAUNCHERS:
        if launcher == "srun" and "SLURM_STEP_ID" not in environ:
            continue  # a batch script, which is no step
        if environ.get(rank, "").isdigit() and environ.get(size, "").isdigit():
            return Launched(launcher, int(environ[rank]), int(environ[size]))
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


#: Programs that start the processes of an MPI job on a machine, as the kernel names them.
PROGRAMS = ("prted", "prterun", "orted", "orterun", "mpirun", "mpiexec", "hydra_pmi_proxy", "pmi_proxy")


def process(started: int | None = None) -> int | None:
    """The process of the launcher that started a process (None: this one), perhaps by way of a shell; None: none that is known."""
    ancestor = os.getpid() if started is None else started
    try:
        while (ancestor := int(Path(f"/proc/{ancestor}/stat").read_text().rpartition(")")[2].split()[1])) > 1:
            if Path(f"/proc/{ancestor}/comm").read_text().strip() in PROGRAMS:
                return ancestor
    except OSError:
        pass
    return None


def garbles_stdin(environ: Mapping[str, str]) -> bool:
    """Whether what comes on standard input goes through the hands of the mpirun of Open MPI 5.

    It passes on some parts many times over, and never the end (https://github.com/openpmix/prrte/issues/2579).
    """
    if not environ.get("OMPI_VERSION", "").startswith("5."):
        return False
    try:
        ours = os.readlink("/proc/self/fd/0")
        folder = f"/proc/{process()}/fd"
        return ours.startswith("pipe:") and any(os.readlink(f"{folder}/{name}") == ours for name in os.listdir(folder))
    except OSError:
        return False
