"""The command ``millrace slurm``."""

from __future__ import annotations

import click

from millrace.cli.options import JobCommand
from millrace.cli.queued_job import add_queue_options, submit_script
from millrace.launch import job_script
from millrace.launch.job_script import JobScriptRequest


@click.command("slurm", cls=JobCommand, short_help="Submit a run on several nodes to Slurm.")
@add_queue_options
def command(request: JobScriptRequest, words: list[str], run_dir: str, dry_run: bool) -> None:
    """Submit a run on several nodes to Slurm. Near the end of its wall time the job goes back into the queue, and
    resumes, until all is done.

    \b
    millrace slurm -N 8 -t 4:00:00 -- blastp -query q.faa -db nr -outfmt 6 -out hits.tsv
    millrace slurm -N 8 -t 4:00:00 --setup 'module load blast' --dry-run -- blastp ...
    """
    submit_script("sbatch", job_script.build_slurm_script(request, words, run_dir), dry_run=dry_run)
