"""The option ``--pack-to`` of ``millrace run``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from millrace.job import Job

if TYPE_CHECKING:
    from millrace.session.finished import Finished


def run(job: Job, cwd: Path, dest: Path, *, with_queries: bool) -> Finished:
    """Run a job in ``cwd``, pack its outputs into ``dest``, and return how the run ended."""
    from millrace.errors import ExitCode, RefusedError
    from millrace.launch import mpi_environment
    from millrace.pack import places, while_running
    from millrace.pack.packing import BATCH, Wishes
    from millrace.pack.regenerate import Settings
    from millrace.plan import plan as planner
    from millrace.replicas import are_named
    from millrace.report import summary

    if mpi_environment.find(os.environ) or job.hosts:
        raise RefusedError("--pack-to: a run is packed on one machine", "pack its run directory when it is done")
    if are_named((*job.command[1:], *job.input, *job.shared, *job.output)):
        raise RefusedError("the command names files by URLs, which do not travel", "name copies of them")
    places.check([dest])
    places.check_replaced(dest)
    keep, environ = job.keep_run_dir, dict(os.environ)
    job = while_running.job_for(job, dest)
    plan = planner.make(job, cwd, environ)
    places.refuse_read([dest], [*(cwd / item.path for item in plan.use.inputs), *plan.use.databases])
    settings = Settings(environ, job.slots, job.work_dir)
    wishes = Wishes(settings, min(job.batch_size[0] or BATCH, BATCH), with_queries)

    def say(text: str) -> None:
        if job.verbosity >= 0:
            click.echo(f"millrace: {text}", err=True)

    with places.in_words(dest):
        finished, packed = while_running.run(plan, dest, wishes, say, keep=keep)
    if finished.summary and job.verbosity >= 0:
        click.echo(summary.text(finished.summary), err=True)
    if finished.text and finished.code != ExitCode.DONE:
        say(finished.text)
    if packed:
        say(packed.words(dest))
    return finished
