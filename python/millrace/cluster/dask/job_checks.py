"""What a run on a Dask cluster cannot do, refused before anything starts. Loads nothing of Dask."""

from __future__ import annotations

from importlib.util import find_spec

import msgspec

from millrace.core.errors import RefusedError
from millrace.core.job import JobSpec
from millrace.planning.run_plan import RunPlan


def prepare_dask_job(job: JobSpec, *, launched: bool) -> JobSpec:
    """Return the job as it runs on a Dask cluster: databases are searched whole.

    Args:
        launched: Whether an MPI launcher has started this process.

    Raises:
        RefusedError: Dask is not installed, or other options contradict.
    """
    if launched or job.hosts:
        raise RefusedError(
            "--dask: the processes of mpirun, srun or --hosts have their own slots",
            "leave one of them out: with --dask, one process starts the run, and Dask's workers have the slots",
        )
    if find_spec("distributed") is None:
        raise RefusedError("--dask: Dask is not installed", "pip install 'millrace[dask]'")
    if job.fragments not in ("auto", "1"):
        raise RefusedError(
            f"--fragments {job.fragments}: workers of a Dask cluster search databases whole", "leave --fragments out"
        )
    return msgspec.structs.replace(job, fragments="1")


def check_dask_plan(plan: RunPlan) -> None:
    """Refuse what a run on a Dask cluster cannot do exactly.

    Raises:
        RefusedError: With the way that works.
    """
    use = plan.use
    if use.served:
        raise RefusedError(
            "--dask with --records: programs that stay alive run on one machine, or by MPI", "leave one of them out"
        )
