"""``millrace run``."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from millrace import debug
from millrace.cli.options import JobCommand, job_options, origins
from millrace.job import Job

if TYPE_CHECKING:
    from millrace.launch.mpi_environment import Launched
    from millrace.launch.supervisor_link import Supervision
    from millrace.session.urls import Named


@click.command("run", cls=JobCommand, short_help="Run a serial command on every core.")
@job_options
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON to standard output.")
def command(job: Job, as_json: bool) -> None:
    """Run a serial command on every core; the output is the serial command's, byte for byte.

    \b
    millrace run -- blastp -query q.faa -db nr -outfmt 6 -out hits.tsv
    millrace run -- hmmscan --tblout t.txt -o o.txt pfam.hmm q.faa
    millrace run --format fasta -- ./myfilter < in.fa > out.txt
    millrace run --input q.fa --output out.txt -- mytool -i q.fa -o out.txt
    millrace run job.toml

    The same command again resumes a run that was stopped, killed or crashed.
    """
    from millrace.errors import LostError, MillraceError
    from millrace.launch import mpi_environment
    from millrace.launch.supervisor_link import Supervision

    launched = mpi_environment.find(os.environ)
    if (log := os.environ.get(debug.VARIABLE)) or job.verbosity > 1:
        debug.begin(log or "", launched.rank if launched and launched.size > 1 else None)
        if job.progress == "auto":
            job = msgspec.structs.replace(job, progress="plain")  # a bar would be torn by the log
    supervision = Supervision(os.environ, coordinator=not (launched and launched.rank))
    supervision.begin()
    try:
        code = _run(job, launched, supervision, as_json=as_json)
    except MillraceError as error:
        if isinstance(error, LostError):
            supervision.lost()
        else:
            supervision.ended(error.status)
        raise
    sys.stdout.flush()
    supervision.ended(code)
    sys.exit(code)


def _run(job: Job, launched: Launched | None, supervision: Supervision, *, as_json: bool) -> int:
    """Plan, run and report; the exit code."""
    from millrace.errors import MillraceError
    from millrace.launch import allocation
    from millrace.launch.mpi_environment import for_tools
    from millrace.plan import plan as planner

    crew = None
    if launched:
        from millrace.session import rank

        crew = rank.join(launched, supervision, job)
    if supervision.active:
        job = msgspec.structs.replace(job, fresh=False)  # that was for the first start, and is done
    in_job = launched is not None or supervision.active
    behind = files_behind(job)
    plan = planner.make(
        job,
        here(),
        for_tools(os.environ) if in_job else os.environ,
        launched=in_job,
        view=behind.view if behind else None,
    )
    for note in (*origins(), *plan.notes):
        debug.note("plan", note)
    if job.verbosity > 0:
        for note in (*origins(), *plan.notes):
            if crew and note.startswith("slots: "):
                continue  # those of this process alone
            click.echo(f"millrace: {note}", err=True)
    alone = launched is None or (launched.size == 1 and launched.launcher == "srun")  # as in a shell of an allocation
    if alone and (nodes := allocation.find(job.hosts, os.environ)):
        from millrace.launch import supervise

        return supervise.run(plan, nodes, os.environ)
    from millrace.report import summary  # not before: what is refused need not wait for all that a run needs
    from millrace.session import carry_out

    gc.freeze()  # what is loaded by now stays to the end: no collection has to look at it
    gc.enable()
    try:
        finished = carry_out.run(plan, supervision, crew, behind)
    except MillraceError as error:
        if crew:
            crew.exit_code = error.status
        raise
    if behind and (place := behind.changed()):
        click.echo(
            f"millrace: {place}: has changed since; the output is that of the file as it was at the start", err=True
        )
    if finished.summary and job.verbosity >= 0:
        click.echo(summary.text(finished.summary), err=True)
    if finished.text and (job.verbosity >= 0 or finished.code):
        click.echo(f"millrace: {finished.text}", err=True)
    if as_json:
        print_json(finished.summary)
    if crew:
        crew.exit_code = finished.code
    return finished.code


def files_behind(job: Job) -> Named | None:
    """Fetch the files that the command names by URLs; None: it names none.

    Raises:
        MillraceError: A file is not there, cannot be read, or does not fit.
    """
    from millrace import replicas

    check_urls(job)
    if not replicas.are_named((*job.command[1:], *job.input, *job.shared, *job.output)):
        return None
    from millrace.session.urls import Named  # few commands do, and it imports much

    return Named(job, here(), lambda text: click.echo(f"millrace: {text}", err=True) if job.verbosity >= 0 else None)


def check_urls(job: Job) -> None:
    """See that the URLs of a command can be used, and may be written down.

    Raises:
        RefusedError: One is of no use, or may hold a password.
    """
    from millrace import replicas
    from millrace.tools import registry

    replicas.check_named(job.command[1:], registry.knows(job.command[0]))
    replicas.check_named((*job.input, *job.shared, *job.output), known_tool=True)


def here() -> Path:
    """The working folder.

    Raises:
        RefusedError: It was removed.
    """
    from millrace.errors import RefusedError

    try:
        return Path.cwd()
    except OSError as error:
        raise RefusedError("the working folder does not exist any more", "cd to one that does") from error


def print_json(value: Any) -> None:
    """Print a value of the model as one indented JSON document."""
    from millrace.sealed import to_json

    click.echo(to_json(value).decode())
