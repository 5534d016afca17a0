"""``millrace plan``."""

from __future__ import annotations

import os

import click

from millrace.cli.options import JobCommand, job_options, origins
from millrace.job import Job


@click.command("plan", cls=JobCommand, short_help="Say what run would do and why; run nothing.")
@job_options
@click.option("--json", "as_json", is_flag=True, help="Print the plan as JSON.")
def command(job: Job, as_json: bool) -> None:
    """Say what ``millrace run`` with the same arguments would do, and why. Nothing is run or written.

    \b
    millrace plan -- blastp -query q.faa -db nr -outfmt 6 -out hits.tsv
    """
    from millrace.cli.run import files_behind, here, print_json
    from millrace.launch import allocation
    from millrace.plan import plan as planner
    from millrace.plan import staging
    from millrace.plan.sources import in_words
    from millrace.storage import sources
    from millrace.tools.joins import words

    behind = files_behind(job)
    plan = planner.make(job, here(), os.environ, view=behind.view if behind else None)
    use, view = plan.use, plan.command.view
    own = [path for path in use.databases if not (view and view.file(path))]
    nodes = allocation.find(job.hosts, os.environ)
    files = staging.look(own, plan.command.cwd)
    arithmetic = []
    if files:
        known = sources.look(files, len(nodes.nodes) if nodes else 1, plan.slots, job.replica, os.environ)
        arithmetic = [
            *in_words(known.question),
            *([] if job.stage == "auto" else [f"databases: --stage {job.stage}, as asked"]),
        ]
    notes = [*origins(), *plan.notes, *arithmetic]
    if as_json:
        print_json({
            "adapter": use.adapter, "command": plan.command.argv, "program": str(plan.command.exe), "version": use.version,
            "inputs": use.inputs, "outputs": use.outputs, "databases": [str(path) for path in use.databases],
            "slots": plan.slots, "fragments": len(use.fragmented.fragments) if use.fragmented else 1, "threads": use.threads, "run_dir": str(plan.run_dir), "notes": notes,
        })  # fmt: skip
        return
    click.echo(f"tool:      {plan.command.exe} ({use.version or 'version unknown'}), known as {use.adapter}")
    for item in use.inputs:
        name = "standard input" if item.path == "-" else item.path
        if item.format == "files":
            name = f"{len(item.path.split(chr(0)))} files, each one record: {item.path.split(chr(0))[0]}..."
        click.echo(f"input:     {name} ({item.format})")
    copies = behind.copies(view) if behind and view else {}
    for file in view.files if view else ():
        click.echo(f"fetched:   {file.place}, seen as {file.name}; copy: {copies[file.name]}")
    for output in use.outputs:
        name = "standard output" if output.path == "-" else output.path
        click.echo(
            f"output:    {name} ({output.name}, joined by: {words(output.join) if output.layout == 'file' else output.layout})"
        )
    for path in own[:8]:
        click.echo(f"database:  {path}")
    if len(own) > 8:
        click.echo(f"database:  ... and {len(own) - 8} more files")
    click.echo(
        f"run dir:   {plan.run_dir}{' (exists: the run would resume)' if (plan.run_dir / 'job.json').exists() else ''}"
    )
    if nodes:
        click.echo(f"nodes:     {len(nodes.nodes)} of {nodes.words}: {', '.join(nodes.nodes)}")
    for note in notes:
        click.echo(f"note:      {note}")
