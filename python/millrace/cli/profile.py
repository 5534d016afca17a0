"""The command ``millrace profile``: a run that shows what the tool does with each of its files."""

from __future__ import annotations

import os

import click
import msgspec

from millrace.cli import run
from millrace.cli.options import JobCommand, add_job_options, find_workflow
from millrace.core.errors import RefusedError
from millrace.core.job import JobSpec
from millrace.host import lock_owner


@click.command("profile", cls=JobCommand, short_help="Run a command and show what it reads and writes.")
@add_job_options
@click.option("--json", "as_json", is_flag=True, help="Print the summary with all files as JSON, as run does.")
def command(job: JobSpec, as_json: bool) -> None:
    """Run a serial command on every core, and show what it reads and writes: bytes, calls, sizes and waits, by file.

    \b
    millrace profile -- blastp -query q.faa -db nr -outfmt 6 -out hits.tsv
    millrace report hits.tsv.millrace

    It is millrace run with a library that is preloaded into the tool and counts its calls, merged over tasks and nodes;
    the output is the same. Of static and setuid programs the kernel's totals are shown alone; millrace run --profile-io
    measures these for little.
    """
    lock_owner.remove_caller(os.environ)  # as run does
    if find_workflow():
        raise RefusedError("a job in phases is not profiled as a whole", "profile the command of one phase")
    run.run_job(msgspec.structs.replace(job, profile_io="files"), as_json=as_json)
