"""The command ``millrace run``."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from millrace import caller, debug
from millrace.cli.options import JobCommand, job_options, origins, workflow
from millrace.job import Job

if TYPE_CHECKING:
    from millrace.cluster.membership import Membership
    from millrace.launch.mpi_environment import Launched
    from millrace.launch.supervisor_link import Supervision
    from millrace.plan.plan import Plan
    from millrace.session.finished import Finished
    from millrace.session.outbox import Outbox
    from millrace.session.urls import Named
    from millrace.workflow.description import Workflow


@click.command("run", cls=JobCommand, short_help="Run a serial command on every core.")
@job_options
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print the summary as JSON: to standard output, or to standard error where the tool's results go to standard output.",
)
@click.option(
    "--pack-to",
    "pack",
    metavar="FILE.mrp",
    type=click.Path(path_type=Path),
    help="Pack the result while it is made (see millrace pack), and write nothing else, on this machine alone.",
)
@click.option("--with-queries", is_flag=True, help="With --pack-to: let the queries travel along.")
def command(job: Job, as_json: bool, pack: Path | None, with_queries: bool) -> None:
    """Run a serial command on every core; the output is the serial command's, byte for byte.

    \b
    millrace run -- blastp -query q.faa -db nr -outfmt 6 -out hits.tsv
    millrace run -- hmmscan --tblout t.txt -o o.txt pfam.hmm q.faa
    millrace run --format fasta -- ./myfilter < in.fa > out.txt
    millrace run --input q.fa --output out.txt -- mytool -i q.fa -o out.txt
    millrace run job.toml

    The same command again resumes a run that was stopped, killed or crashed.
    """
    from millrace.errors import LostError, MillraceError, RefusedError
    from millrace.launch import mpi_environment
    from millrace.launch.allocation import PHASE
    from millrace.launch.supervisor_link import Supervision

    caller.forget(os.environ)  # a tool may itself run Millrace
    phase: tuple[Workflow, Path, str] | None = None
    if flow := workflow():
        if pack:
            raise RefusedError("--pack-to: a job in phases is not packed", "run it, then: millrace pack")
        if not (name := os.environ.pop(PHASE, "")):  # a tool may itself run Millrace
            sys.exit(_phases(*flow))
        phase, job = (*flow, name), flow[0].phase(name).job
    if pack:
        from millrace.cli import pack_to

        finished = pack_to.run(job, here(), here() / pack, with_queries=with_queries)
        if as_json:
            print_json(finished.summary)
        sys.exit(finished.code)
    if with_queries:
        raise RefusedError("--with-queries belongs to --pack-to", "name the pack: --pack-to FILE.mrp")
    launched = mpi_environment.find(os.environ)
    if (log := os.environ.get(debug.VARIABLE)) or job.verbosity > 1:
        debug.begin(log or "", launched.rank if launched and launched.size > 1 else None)
        if job.progress == "auto":
            job = msgspec.structs.replace(job, progress="plain")  # log lines would break up a bar
    supervision = Supervision(os.environ, coordinator=not (launched and launched.rank))
    supervision.begin()
    try:
        code = _run(job, launched, supervision, as_json=as_json, phase=phase)
    except MillraceError as error:
        if isinstance(error, LostError):
            supervision.lost()
        else:
            supervision.ended(error.status)
        raise
    sys.stdout.flush()
    supervision.ended(code)
    sys.exit(code)


def _phases(flow: Workflow, file: Path) -> int:
    """Run a job in phases and return its exit code."""
    from millrace.errors import RefusedError
    from millrace.launch import allocation, mpi_environment
    from millrace.watch.told import Told
    from millrace.workflow import flow as phases

    launched = mpi_environment.find(os.environ)
    if launched and not _is_alone(launched):
        raise RefusedError(
            f"{file}: a job in phases starts its own ranks",
            "leave mpirun or srun out: millrace run --hosts ..., or in a batch job",
        )
    told = Told(phases.folder_of(flow, file, here()), flow.job.progress_shown, sys.stderr, os.environ)
    return phases.run(flow, file, here(), os.environ, allocation.find(flow.job.hosts, os.environ), told.look)


def _is_alone(launched: Launched | None) -> bool:
    """Tell whether this process is the only rank: ``srun`` may also have started just the shell of an allocation."""
    return launched is None or (launched.size == 1 and launched.launcher == "srun")


def _run(
    job: Job,
    launched: Launched | None,
    supervision: Supervision,
    *,
    as_json: bool,
    phase: tuple[Workflow, Path, str] | None,
) -> int:
    """Plan, run and report a job, and return its exit code.

    Args:
        phase: Workflow, its file and the name of the phase of which this process is a rank; None: no phase.
    """
    from millrace.cli import urls
    from millrace.launch import allocation
    from millrace.launch.mpi_environment import for_tools

    crew = None
    if launched:
        from millrace.session import rank

        crew = rank.join(launched, supervision, job)
    if supervision.active:
        job = msgspec.structs.replace(job, fresh=False)  # only the first start begins afresh
    in_job = launched is not None or supervision.active
    outbox = urls.outbox_of(job, here())
    job = outbox.job if outbox else job
    nodes = allocation.find(job.hosts, os.environ) if _is_alone(launched) else None
    environ = for_tools(os.environ) if in_job else os.environ
    if phase:
        from millrace.workflow.flow import plan_of_rank

        plan, behind = plan_of_rank(*phase[:2], here(), environ, phase[2]), None
    else:
        plan, behind = urls.plan(job, here(), environ, apart=crew is not None or nodes is not None, launched=in_job)
    if outbox:
        outbox.check(plan.use.outputs, plan.command.argv[0], plan.run_dir)
    _tell_plan(plan.notes, job, others=crew is not None)
    if nodes:
        from millrace.launch import supervise

        return supervise.run(plan, nodes, os.environ)
    finished = _carry_out(plan, supervision, crew, behind, outbox)
    _tell_end(finished, job, behind)
    if as_json and not phase:
        print_json(finished.summary, err=any(output.stdout for output in plan.use.outputs))
    if crew:
        crew.exit_code = finished.code
    return finished.code


def _carry_out(
    plan: Plan, supervision: Supervision, crew: Membership | None, behind: Named | None, outbox: Outbox | None
) -> Finished:
    """Run a plan; report it by name if the run directory disappears meanwhile."""
    from millrace.errors import MillraceError
    from millrace.session import carry_out  # imported late: a refused command need not wait for these imports

    gc.freeze()  # modules loaded by now live to the end: keep them out of garbage collections
    gc.enable()
    try:
        return carry_out.run(plan, supervision, crew, behind, outbox)
    except FileNotFoundError as error:
        if plan.run_dir.exists():
            raise
        hint = "the same command starts again, from the beginning"
        raise MillraceError(f"{plan.run_dir}: the run directory was removed, and the results in it", hint) from error
    except MillraceError as error:
        if crew:
            crew.exit_code = error.status
        raise


def _tell_end(finished: Finished, job: Job, behind: Named | None) -> None:
    """Print the summary and the final message of a run, and a warning if a fetched file has changed since."""
    from millrace.report import summary

    if behind and (place := behind.changed()):
        click.echo(
            f"millrace: {place}: has changed since; the output is that of the file as it was at the start", err=True
        )
    if finished.summary and job.verbosity >= 0:
        click.echo(summary.text(finished.summary), err=True)
    if finished.text and (job.verbosity >= 0 or finished.code):
        click.echo(f"millrace: {finished.text}", err=True)


def _tell_plan(notes: Sequence[str], job: Job, *, others: bool) -> None:
    """Log the notes of the plan, and print them with ``-v``.

    Args:
        others: Whether other ranks take part.
    """
    for note in (*origins(), *notes):
        debug.note("plan", note)
        # The note counts the slots of this process alone.
        if job.verbosity > 0 and not (others and note.startswith("slots: ")):
            click.echo(f"millrace: {note}", err=True)


def here() -> Path:
    """Return the working folder.

    Raises:
        RefusedError: It was removed.
    """
    from millrace.errors import RefusedError

    try:
        return Path.cwd()
    except OSError as error:
        raise RefusedError("the working folder does not exist any more", "cd to one that does") from error


def print_json(value: Any, *, err: bool = False) -> None:
    """Print a value as one indented JSON document, to standard error if ``err``."""
    from millrace.sealed import to_json

    click.echo(to_json(value).decode(), err=err)
