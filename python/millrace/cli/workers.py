"""The command ``millrace workers``: a Dask cluster whose workers are short jobs, as many as there is work for."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from millrace.core.errors import RefusedError
from millrace.launch import job_script
from millrace.launch.worker_jobs import (
    GridEngineWorkerQueue,
    SlurmWorkerQueue,
    SshWorkerQueue,
    WorkerJobRequest,
    WorkerQueue,
    check_queue_command,
)
from millrace.scheduler.worker_demand import MIN_JOB_SECONDS, WorkerJobLimits

#: The scheduler file, in the working folder.
DEFAULT_FILE = "millrace-workers.json"


@click.group("workers", short_help="Start workers for millrace run --dask, as many as there is work for.")
def command() -> None:
    """Start a Dask scheduler, and short jobs with workers, as many as there is work for. Until Ctrl-C.

    \b
    millrace workers slurm --max 50 --time 30m &
    millrace run --dask millrace-workers.json -- blastp -query q.faa -db nr -outfmt 6 -out hits.tsv
    """


def add_worker_options(function: Callable[..., None], *, is_queued: bool) -> Callable[..., None]:
    """Add the options that all kinds of workers have to ``function``.

    It is called with ``request`` and the other values.

    Args:
        is_queued: Jobs of a batch system.
    """
    option = click.option
    decorators = [
        option("-t", "--time", required=is_queued, default="", metavar="TIME", help="Time of a job, as in 30m or 4:00:00; at its end another one follows if there is work."),
        option("--setup", multiple=True, metavar="LINE", help="Line of shell before the worker, such as 'module load blast'."),
        option("--file", type=click.Path(path_type=Path, dir_okay=False), default=DEFAULT_FILE, metavar="FILE", help=f"The scheduler file, for millrace run --dask FILE (default {DEFAULT_FILE})."),
        option("--interface", default="", metavar="NAME", help="Network interface by which workers reach this machine, such as ib0."),
    ]  # fmt: skip
    if is_queued:
        decorators += [
            option("--max", "max_jobs", type=click.IntRange(1), required=True, metavar="N", help="Maximum number of jobs at a time."),
            option("-p", "--queue", "--partition", "queue", default="", metavar="NAME", help="Partition or queue."),
            option("-A", "--account", default="", metavar="NAME", help="Account or project that pays."),
            option("--mem", "memory", type=job_script.check_memory_size, default="", metavar="SIZE", help="Memory of each job, as in 4G."),
            option("--option", "more", multiple=True, metavar="OPTION", help="Further option of the batch system, as it is."),
        ]  # fmt: skip

    @functools.wraps(function)
    def with_request(time: str, **values: Any) -> None:
        own = {name: values.pop(name) for name in WorkerJobRequest.__struct_fields__ if name in values}
        seconds = job_script.parse_wall_seconds(time, MIN_JOB_SECONDS) if time else 0
        function(request=WorkerJobRequest(seconds=seconds, **own), **values)

    made: Callable[..., None] = with_request
    for decorate in reversed(decorators):
        made = decorate(made)
    return made


add_queued_options = functools.partial(add_worker_options, is_queued=True)
add_ssh_options = functools.partial(add_worker_options, is_queued=False)
cpus_option = click.option("-c", "--cpus", type=click.IntRange(0), default=0, metavar="N", help="Cores of each worker (default: all of its node).")  # fmt: skip


@command.command("slurm")
@cpus_option
@add_queued_options
def slurm_command(request: WorkerJobRequest, max_jobs: int, file: Path, interface: str) -> None:
    """Workers in jobs of Slurm.

    \b
    millrace workers slurm --max 50 --time 30m
    """
    check_queue_command("sbatch")
    serve_workers(lambda tag, logs: SlurmWorkerQueue(request, tag, logs), max_jobs, request, file, interface)


@command.command("sge")
@add_queued_options
def grid_engine_command(request: WorkerJobRequest, max_jobs: int, file: Path, interface: str) -> None:
    """Workers in jobs of Grid Engine, with one core each, or as many as a parallel environment gives.

    \b
    millrace workers sge --max 50 --time 30m --option '-pe smp 8'
    """
    check_queue_command("qsub")
    serve_workers(lambda tag, logs: GridEngineWorkerQueue(request, tag, logs), max_jobs, request, file, interface)


@command.command("ssh")
@click.argument("hosts", nargs=-1, required=True, metavar="HOST...")
@cpus_option
@add_ssh_options
def ssh_command(request: WorkerJobRequest, hosts: Sequence[str], file: Path, interface: str) -> None:
    """Workers on hosts that are reached by ssh.

    \b
    millrace workers ssh node1 node2 node3
    """
    names = list(dict.fromkeys(host for word in hosts for host in word.split(",") if host))
    if odd := [name for name in names or [""] if not name.strip() or name.startswith("-")]:
        raise RefusedError(f"{odd[0] or '(empty)'}: not the name of a host", "as in: millrace workers ssh node1 node2")
    serve_workers(
        lambda _, logs: SshWorkerQueue(request, names, logs, os.environ), len(names), request, file, interface
    )


def serve_workers(
    make_queue: Callable[[str, Path], WorkerQueue], max_jobs: int, request: WorkerJobRequest, file: Path, interface: str
) -> None:  # fmt: skip
    """Serve a cluster until a signal ends it.

    Raises:
        MillraceError: It cannot start, or its jobs do not.
    """
    try:
        from millrace.cluster.dask.worker_cluster import WorkerCluster
    except ImportError as error:
        raise RefusedError("millrace workers: Dask is not installed", "pip install 'millrace[dask]'") from error
    path = file.absolute()
    logs = path.with_name(f"{path.name}.jobs")
    limits = WorkerJobLimits(max_jobs, request.seconds) if request.seconds else WorkerJobLimits(max_jobs)
    queue = make_queue(f"millrace-{os.urandom(4).hex()}", logs)

    def report(text: str) -> None:
        click.echo(text, file=sys.stderr)

    WorkerCluster(queue, limits, path, logs, interface, report).run()
