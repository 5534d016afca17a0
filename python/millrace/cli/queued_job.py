"""The commands ``millrace slurm`` and ``millrace pbs``: a run on several nodes as a job of a batch scheduler."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from millrace.cli.options import COMMAND, JobCommand, add_job_options, find_piped_job, find_workflow, list_job_fields
from millrace.core.errors import RefusedError, ToolError
from millrace.core.job import JobSpec
from millrace.launch import job_script
from millrace.launch.job_script import JobScriptRequest, submit_job_script

if TYPE_CHECKING:
    from millrace.extensions.workflow.workflow_description import WorkflowDescription


def add_queue_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options of a batch job to ``function``.

    It is called with ``request`` (a ``JobScriptRequest``), ``words`` (the command of the run), ``run_dir`` and ``dry_run``.
    """
    option = click.option
    decorators = [
        option("-N", "--nodes", type=click.IntRange(1), required=True, metavar="N", help="Number of nodes."),
        option("-t", "--time", required=True, metavar="H:MM:SS", help="Wall time; a run that needs more is queued again."),
        option("-p", "--queue", "--partition", "queue", default="", metavar="NAME", help="Partition or queue."),
        option("-A", "--account", default="", metavar="NAME", help="Account that pays."),
        option("-c", "--cpus", type=click.IntRange(1), default=None, metavar="N", help="Cores of each node (default: whole nodes)."),
        option("--mem", "memory", type=job_script.check_memory_size, default="", metavar="SIZE", help="Memory of each node, as in 4G."),
        option("-J", "--job-name", "name", default="", metavar="NAME", help="Name of the job (default: the tool's)."),
        option("--setup", multiple=True, metavar="LINE", help="Line of shell before the run, such as 'module load blast'."),
        option("--option", "more", multiple=True, metavar="OPTION", help="Further option of the scheduler, as it is."),
        option("--dry-run", is_flag=True, help="Print the job script; submit nothing."),
    ]  # fmt: skip

    @click.pass_context
    @functools.wraps(function)
    def with_request(
        ctx: click.Context, /, job: JobSpec, cpus: int | None, name: str, dry_run: bool, **values: Any
    ) -> None:
        check_queued_job(job)
        flow = find_workflow()
        known_as = flow[1].stem if flow else Path(job.command[0]).name
        request = JobScriptRequest(name=name or known_as, cpus=cpus or 0, **values)
        words = [str(Path(sys.executable).parent / "millrace"), "run", *_list_typed_words(ctx, job)]
        missing = bool(request.setup)
        run_dir, extra = (_locate_job_folder(*flow, missing), []) if flow else _locate_run_dir(job, missing)
        at = words.index("--")
        function(request=request, words=[*words[:at], *extra, *words[at:]], run_dir=run_dir, dry_run=dry_run)

    made: Callable[..., None] = add_job_options(with_request)
    for decorate in reversed(decorators):
        made = decorate(made)
    return made


def check_queued_job(job: JobSpec) -> None:
    """Refuse what cannot hold for a job that is queued again.

    Raises:
        RefusedError: ``--fresh`` or ``--hosts`` was given, or the job file on standard input.
    """
    if find_piped_job():
        raise RefusedError(
            "a job file on standard input cannot be read again when the job begins", "write it to a file, and name that"
        )
    if job.fresh:
        raise RefusedError("--fresh: a job that is queued again would start over each time", "remove the run directory")
    if job.hosts:
        raise RefusedError("--hosts: the scheduler gives the nodes", "leave it out, and say how many with --nodes")


def _list_typed_words(ctx: click.Context, job: JobSpec) -> list[str]:
    """Return the typed options that ``run`` takes, then ``--`` and the tool's command."""
    found: list[str] = []
    names = list_job_fields()
    for parameter in ctx.command.params:
        value = ctx.params.get(str(parameter.name))
        if ctx.get_parameter_source(str(parameter.name)) is not ParameterSource.COMMANDLINE:
            continue
        if isinstance(parameter, click.Argument):
            found.append(str(value))
        elif parameter.name in names:
            flag = isinstance(parameter, click.Option) and parameter.is_flag
            for each in value if isinstance(value, tuple) else (value,):
                found += [parameter.opts[-1]] if flag else [parameter.opts[-1], str(each)]
    return [*found, "--", *ctx.meta.get(COMMAND, ())]


def _locate_run_dir(job: JobSpec, may_be_missing: bool) -> tuple[str, list[str]]:
    """Return the run directory, and the options that name it if the command cannot be planned here.

    Raises:
        MillraceError: ``millrace run`` would refuse the command.
    """
    from millrace.cli import options
    from millrace.cli.run import get_working_folder
    from millrace.core.replica_rules import has_url_arguments
    from millrace.planning import run_plan as planner

    options.check_urls(job)
    fetches = has_url_arguments((*job.command[1:], *job.input, *job.shared))
    may_be_missing = may_be_missing or fetches  # no download to a machine that will not run the job
    try:
        if fetches:
            raise ToolError("")
        plan = planner.make_plan(job, get_working_folder(), os.environ)
    except ToolError:
        if not may_be_missing:
            raise
    else:
        if any(item.stdin for item in plan.use.inputs):
            raise RefusedError(
                "the job will have nothing on its standard input",
                "name the file in the command; if the tool takes none, put the tool and its < FILE into a script, and add --input FILE",
            )
        return str(plan.run_dir), []
    # The job's setup makes the program available; the command is checked there.
    name = job.run_dir or f"{Path(job.command[0]).name}.millrace"
    return str(get_working_folder() / name), [] if job.run_dir else ["--run-dir", name]


def _locate_job_folder(flow: WorkflowDescription, file: Path, may_be_missing: bool) -> str:
    """Return the folder of a job in phases.

    Raises:
        MillraceError: ``millrace run`` would refuse it.
    """
    from millrace.cli.run import get_working_folder
    from millrace.extensions.workflow import workflow_run as phases

    try:
        phases.plan_workflow(flow, file, get_working_folder(), os.environ)
    except ToolError:
        if not may_be_missing:
            raise
    return str(phases.locate_job_folder(flow, file, get_working_folder()))


def submit_script(command: str, script: str, *, dry_run: bool) -> None:
    """Print the script, or submit it and print the scheduler's answer."""
    click.echo(script if dry_run else submit_job_script(command, script), nl=not dry_run)


@click.command("slurm", cls=JobCommand, short_help="Submit a run on several nodes to Slurm.")
@add_queue_options
def slurm_command(request: JobScriptRequest, words: list[str], run_dir: str, dry_run: bool) -> None:
    """Submit a run on several nodes to Slurm. Near the end of its wall time the job goes back into the queue, and
    resumes, until all is done.

    \b
    millrace slurm -N 8 -t 4:00:00 -- blastp -query q.faa -db nr -outfmt 6 -out hits.tsv
    millrace slurm -N 8 -t 4:00:00 --setup 'module load blast' --dry-run -- blastp ...
    """
    submit_script("sbatch", job_script.build_slurm_script(request, words, run_dir), dry_run=dry_run)


@click.command("pbs", cls=JobCommand, short_help="Submit a run on several nodes to PBS.")
@add_queue_options
def pbs_command(request: JobScriptRequest, words: list[str], run_dir: str, dry_run: bool) -> None:
    """Submit a run on several nodes to PBS Pro or OpenPBS. Near the end of its wall time the job is queued again, and
    resumes, until all is done. (Not yet tried on a real PBS server.)

    \b
    millrace pbs -N 8 -t 4:00:00 -- blastp -query q.faa -db nr -outfmt 6 -out hits.tsv
    """
    submit_script("qsub", job_script.build_pbs_script(request, words, run_dir), dry_run=dry_run)
