"""What a run on a Dask cluster cannot do, refused before anything starts. Loads nothing of Dask."""

from __future__ import annotations

from importlib.util import find_spec

import msgspec

from millrace.core.errors import RefusedError
from millrace.core.job import JobSpec


def prepare_dask_job(job: JobSpec) -> JobSpec:
    """Return the job as it runs on a Dask cluster: databases are searched whole, unless the user asks for fragments.

    How many fragments pay depends on the number of slots, which changes while such a run lasts.

    Raises:
        RefusedError: Dask is not installed, or other options contradict.
    """
    if job.hosts:
        raise make_two_kinds_error("--hosts")
    if find_spec("distributed") is None:
        raise RefusedError("--dask: Dask is not installed", "pip install 'millrace[dask]'")
    if job.records:
        raise RefusedError(
            "--dask with --records: programs that stay alive run on one machine, or by MPI", "leave one of them out"
        )
    return msgspec.structs.replace(job, fragments="1") if job.fragments == "auto" else job


def make_two_kinds_error(other: str) -> RefusedError:
    """Make the error of ``--dask`` together with another way to several nodes."""
    return RefusedError(
        f"--dask with {other}: both bring slots of their own",
        "leave one of them out: with --dask, one process starts the run, and Dask's workers have the slots",
    )
