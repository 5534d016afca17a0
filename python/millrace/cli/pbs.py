"""The command ``millrace pbs``."""

from __future__ import annotations

import click

from millrace.cli.options import JobCommand
from millrace.cli.queued_job import add_queue_options, submit_script
from millrace.launch import job_script
from millrace.launch.job_script import JobScriptRequest


@click.command("pbs", cls=JobCommand, short_help="Submit a run on several nodes to PBS.")
@add_queue_options
def command(request: JobScriptRequest, words: list[str], run_dir: str, dry_run: bool) -> None:
    """Submit a run on several nodes to PBS Pro or OpenPBS. Near the end of its wall time the job is queued again, and
    resumes, until all is done. (Not yet tried on a real PBS server.)

    \b
    millrace pbs -N 8 -t 4:00:00 -- blastp -query q.faa -db nr -outfmt 6 -out hits.tsv
    """
    submit_script("qsub", job_script.build_pbs_script(request, words, run_dir), dry_run=dry_run)
