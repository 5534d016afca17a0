"""The option ``--pack-to`` of ``millrace run``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from millrace.core.job import JobSpec

if TYPE_CHECKING:
    from millrace.execution.finished_run import FinishedRun


def run_and_pack(job: JobSpec, cwd: Path, dest: Path, *, with_queries: bool) -> FinishedRun:
    """Run a job in ``cwd``, pack its outputs into ``dest``, and return how the run ended."""
    from millrace.core.errors import ExitCode, RefusedError
    from millrace.core.replica_rules import has_url_arguments
    from millrace.extensions.pack import live_packing, pack_destinations
    from millrace.extensions.pack.regeneration_run import RegenerationSettings
    from millrace.extensions.pack.result_packer import QUERIES_PER_BATCH, PackOptions
    from millrace.launch import mpi_environment
    from millrace.planning import run_plan as planner
    from millrace.report import summary

    if mpi_environment.find_launched_process(os.environ) or job.hosts:
        raise RefusedError("--pack-to: a run is packed on one machine", "pack its run directory when it is done")
    if has_url_arguments((*job.command[1:], *job.input, *job.shared, *job.output)):
        raise RefusedError("the command names files by URLs, which do not travel", "name copies of them")
    pack_destinations.check_destinations([dest])
    pack_destinations.check_replaced_file(dest)
    keep, environ = job.keep_run_dir, dict(os.environ)
    job = live_packing.make_packable_job(job, dest)
    plan = planner.make_plan(job, cwd, environ)
    pack_destinations.refuse_overwritten_inputs(
        [dest], [*(cwd / item.path for item in plan.use.inputs), *plan.use.databases]
    )
    settings = RegenerationSettings(environ, job.slots, job.work_dir)
    wishes = PackOptions(settings, min(job.batch_size[0] or QUERIES_PER_BATCH, QUERIES_PER_BATCH), with_queries)

    def print_message(text: str) -> None:
        if job.verbosity >= 0:
            click.echo(f"millrace: {text}", err=True)

    with pack_destinations.explain_write_errors(dest):
        finished, packed = live_packing.run_and_pack(plan, dest, wishes, print_message, keep=keep)
    if finished.summary and job.verbosity >= 0:
        click.echo(summary.format_summary(finished.summary), err=True)
    if finished.text and finished.code != ExitCode.DONE:
        print_message(finished.text)
    if packed:
        print_message(packed.describe_packing(dest))
    return finished
