"""The command ``millrace plan``."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from millrace.cli.options import JobCommand, add_job_options, find_workflow, list_value_origins
from millrace.core.job import JobSpec

if TYPE_CHECKING:
    from millrace.execution.url_inputs import UrlFiles
    from millrace.launch.node_allocation import NodeAllocation
    from millrace.planning.run_plan import RunPlan


@click.command("plan", cls=JobCommand, short_help="Say what run would do and why; run nothing.")
@add_job_options
@click.option("--json", "as_json", is_flag=True, help="Print the plan as JSON.")
def command(job: JobSpec, as_json: bool) -> None:
    """Say what ``millrace run`` with the same arguments would do, and why. Nothing is written, and nothing is run but a
    known tool, to ask for its version.

    \b
    millrace plan -- blastp -query q.faa -db nr -outfmt 6 -out hits.tsv

    A tool that is named by its path and may be another user's is not started, nor are functions of a job file loaded.
    """
    from millrace.cli.run import get_working_folder, print_json

    if flow := find_workflow():
        from millrace.extensions.workflow import workflow_run

        for phase in flow[0].phases:
            if phase.kind == "command":
                _check_program(phase.job, get_working_folder())
        click.echo(workflow_run.draw_workflow(*flow, get_working_folder()), nl=False)
        if flow[0].job.store:
            click.echo(f"note:      {workflow_run.WITHOUT_STORE}")
        return
    found = _plan_command(job, get_working_folder())
    if as_json:
        print_json(_build_json_values(found))
        return
    for line in (*_format_tool_lines(found), *_format_file_lines(found), *_format_place_lines(found)):
        click.echo(line)


class _PlanFacts(NamedTuple):
    """The plan of one command and the facts that are printed with it."""

    plan: RunPlan
    #: Files behind URLs.
    behind: UrlFiles | None
    nodes: NodeAllocation | None
    #: Database files on this machine, without those behind URLs.
    databases: list[Path]
    notes: list[str]


def _plan_command(job: JobSpec, cwd: Path) -> _PlanFacts:
    """Plan a command and collect the facts to print; run nothing but a known tool for its version."""
    from millrace.cli import options
    from millrace.launch import node_allocation

    _check_program(job, cwd)
    outbox = options.find_outbox(job, cwd)
    job = outbox.job if outbox else job
    nodes = None if job.dask else node_allocation.find_node_allocation(job.hosts, os.environ)
    plan, behind = options.plan_with_urls(job, cwd, os.environ, apart=nodes is not None)
    view = plan.command.view
    own = [path for path in plan.use.databases if not (view and view.find_file(path))]
    sums = _explain_database_reads(plan, own, len(nodes.nodes) if nodes else 1)
    notes = [*list_value_origins(), *plan.notes, *sums, *(outbox.describe_uploads() if outbox else [])]
    if job.store:
        from millrace.extensions.reuse.store_run import describe_store

        notes.append(describe_store(plan))
    return _PlanFacts(plan, behind, nodes, own, notes)


def _check_program(job: JobSpec, cwd: Path) -> None:
    """Refuse to start a program of another user to learn its version; a program found on ``PATH`` is trusted.

    Raises:
        RefusedError: The program may be another user's.
    """
    from millrace.adapters import description_lookup, registry
    from millrace.core.errors import MillraceError, RefusedError
    from millrace.host.permissions import find_trust_problem
    from millrace.planning.program_lookup import find_program

    try:
        name = job.find_program(os.uname().machine)
        exe = find_program(name, cwd, os.environ, job.command)
    except MillraceError:
        return  # planning reports it
    if "/" not in name and not _is_found_by_relative_path(exe, cwd):
        return
    if not (registry.has_adapter(name) or description_lookup.find_description(exe.name, cwd, os.environ)):
        return  # it would not be started
    for place in (exe.parent, exe):
        if why := find_trust_problem(place):
            raise RefusedError(
                f"{place}: {why}, and plan would start {exe.name} to ask for its version",
                f"if you trust it, put its folder on PATH and name it {exe.name}; nothing was started",
            )


def _is_found_by_relative_path(exe: Path, cwd: Path) -> bool:
    """Tell whether ``PATH`` names the program's folder only by a relative path, such as ``.``."""
    return not any(
        os.path.isabs(entry) and Path(os.path.normpath(entry)) == exe.parent
        for entry in os.environ.get("PATH", "").split(os.pathsep)
    )


def _explain_database_reads(plan: RunPlan, databases: list[Path], n_nodes: int) -> list[str]:
    """Return lines that say from where databases are read, and why."""
    from millrace.planning import database_reads
    from millrace.storage import database_sources, staging_choice
    from millrace.storage.database_sources import describe_read_ways

    files, job = staging_choice.list_database_files(databases, plan.command.cwd), plan.job
    if not files:
        return []
    known = database_sources.find_sources(
        files, n_nodes, database_reads.estimate_plan_reads(plan, plan.slots, n_nodes), job, os.environ
    )
    asked = [] if job.stage == "auto" else [f"databases: --stage {job.stage}, as asked"]
    return [*describe_read_ways(known.question), *asked]


def _build_json_values(found: _PlanFacts) -> dict[str, Any]:
    """Return the plan as values for JSON."""
    plan, use = found.plan, found.plan.use
    return {
        "adapter": use.adapter, "command": plan.command.argv, "program": str(plan.command.exe), "version": use.version,
        "inputs": use.inputs, "outputs": use.outputs, "databases": [str(path) for path in use.databases],
        "slots": plan.slots, "fragments": use.n_fragments or 1, "threads": use.threads, "run_dir": str(plan.run_dir), "notes": found.notes,
    }  # fmt: skip


def _format_tool_lines(found: _PlanFacts) -> Iterator[str]:
    """Yield lines about the tool and its inputs."""
    plan, use = found.plan, found.plan.use
    yield f"tool:      {plan.command.exe} ({use.version or 'version unknown'}), known as {use.adapter}"
    for item in use.inputs:
        name = "standard input" if item.path == "-" else item.path
        if item.format == "files":
            name = f"{len(item.path.split(chr(0)))} files, each one record: {item.path.split(chr(0))[0]}..."
        yield f"input:     {name} ({item.format})"


def _format_file_lines(found: _PlanFacts) -> Iterator[str]:
    """Yield lines about fetched files, outputs and databases."""
    from millrace.adapters.joins import describe_join
    from millrace.planning.dependency_files import classify_shared_file

    view = found.plan.command.view
    copies = found.behind.map_copies(view) if found.behind and view else {}
    for file in view.files if view else ():
        yield f"fetched:   {file.place}, seen as {file.name}; copy: {copies[file.name]}"
    for file in view.later if view else ():
        yield f"later:     {file.place}, fetched by each node that searches it"
    for output in found.plan.use.outputs:
        name = "standard output" if output.path == "-" else output.path
        join = describe_join(output.join) if output.layout == "file" else output.layout
        yield f"output:    {name} ({output.name}, joined by: {join})"
    for path in found.databases[:8]:
        yield f"{f'{classify_shared_file(found.plan.use, path)}:':<11}{path}"
    if len(found.databases) > 8:
        yield f"database:  ... and {len(found.databases) - 8} more files"


def _format_place_lines(found: _PlanFacts) -> Iterator[str]:
    """Yield lines about the run directory, the nodes and the notes of the plan."""
    plan, nodes = found.plan, found.nodes
    yield f"run dir:   {plan.run_dir}{' (exists: the run would resume)' if (plan.run_dir / 'job.json').exists() else ''}"
    if nodes:
        yield f"nodes:     {len(nodes.nodes)} of {nodes.words}: {', '.join(nodes.nodes)}"
    for note in found.notes:
        yield f"note:      {note}"
