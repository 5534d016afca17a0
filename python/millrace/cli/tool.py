"""The command ``millrace tool``: support for programs of your own."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from contextlib import suppress
from pathlib import Path

import click
import msgspec

from millrace import api
from millrace.cli.options import COMMAND, JobCommand, add_job_options, find_workflow
from millrace.cli.run import get_working_folder
from millrace.core.errors import RefusedError
from millrace.core.job import JobSpec


@click.group("tool", short_help="Write and check programs and adapters of your own.")
def command() -> None:
    """Write and check programs and adapters of your own."""


@command.command("include-dir")
def include_dir() -> None:
    """Print the folder with millrace.h, for C and C++ programs that take records one by one.

    \b
    cc -I"$(millrace tool include-dir)" -o prog prog.c
    """
    click.echo(str(Path(api.__file__).resolve().parent.parent / "include"))


@command.command("list")
def list_() -> None:
    """List the tools that files describe: program, purpose, file.

    For a program on several lines, the first counts.
    """
    from millrace.adapters import description_lookup
    from millrace.core.text_format import escape_unprintable

    found = list(description_lookup.list_descriptions(get_working_folder(), os.environ))
    for each in found:
        name = each.programs[0] if each.programs else "?"
        where = each.source if each.source == "millrace" else str(each.path)
        if each.source == "project" and not description_lookup.is_content_confirmed(each.content, os.environ):
            where += f", not confirmed: {description_lookup.format_allow_command(each.path, get_working_folder())}"
        click.echo(escape_unprintable(f"{name:<12} {each.about}  [{where}]"))


@command.command("allow")
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
def allow(file: Path) -> None:
    """Confirm the present content of a tool's description in a working folder. Read it before.

    \b
    millrace tool allow millrace-tools/mytool.toml

    Confirmations are kept in ~/.local/state/millrace/tools by a digest of the content; confirm a changed file again.
    Descriptions in ~/.config/millrace/tools need no confirmation.
    """
    from millrace.adapters import description_lookup, tool_description
    from millrace.core.text_format import escape_unprintable

    path = get_working_folder() / file
    try:
        content = path.read_bytes()
    except OSError as error:
        raise RefusedError(f"{file}: {error.strerror}", "name a description of a tool") from error
    said = tool_description.parse_description(content, path)
    description_lookup.confirm_content(content, os.environ)
    asked = f", asked for its version by: {shlex.join([said.programs[0], *said.version])}" if said.version else ""
    click.echo(escape_unprintable(f"{file}: confirmed; describes {', '.join(said.programs)}{asked}"))


@command.command("check", cls=JobCommand)
@add_job_options
def check(job: JobSpec) -> None:
    """Run a command serially and in parallel on a small sample, and say in words what differs.

    \b
    millrace tool check -- mytool -d nr -o hits.txt sample.fa

    Nothing is written in the working folder. The parallel runs: one record a batch, batches that cut badly, the records
    in reverse order, and a run that is killed and resumed. Of a large sample the first 100 records are taken. Exit code
    1: a difference was found.
    """
    import sys
    import tempfile

    from millrace.extensions.check.check_folder import raise_on_signals
    from millrace.extensions.check.exactness_check import ExactnessCheck
    from millrace.planning import run_plan as planner

    if flow := find_workflow():
        raise RefusedError(f"{flow[1]}: a job in phases", "check the command of each: millrace tool check -- COMMAND")
    use = planner.make_plan(msgspec.structs.replace(job, fresh=True), get_working_folder(), os.environ).use
    with raise_on_signals(), tempfile.TemporaryDirectory(prefix="millrace-check-") as folder:
        source = None
        if any(item.path == "-" for item in use.inputs):
            source = Path(folder) / "stdin"
            with source.open("wb") as file:
                shutil.copyfileobj(sys.stdin.buffer, file)
        patterns = (job.record_start, job.record_end)
        check = ExactnessCheck(
            job.command, use, get_working_folder(), Path(folder), source, list_job_options(job), patterns
        )
        for line in check.shortened:
            click.echo(line, err=True)
        differs = False
        for found in check.run_rounds():
            click.echo(f"{found.round:<34} {found.difference or 'equal'}")
            differs |= bool(found.difference)
    sys.exit(1 if differs else 0)


def list_job_options(job: JobSpec) -> list[str]:
    """Return the options of a job that the runs of a check need, as typed."""
    options = [
        word
        for name in ("input", "output", "join", "shared", "ok_status")
        for each in getattr(job, name)
        for word in (f"--{name.replace('_', '-')}", str(each))
    ]
    for name in ("format", "record_start", "record_end", "record_timeout"):
        if value := getattr(job, name):
            options += [f"--{name.replace('_', '-')}", str(value)]
    return [*options, "--records"] if job.records else options


class NewCommand(JobCommand):
    """A click command that takes a name, and a tool's command after ``--``."""

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return ["NAME", "-- TOOL [ARGS]..."]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" not in args and args and not args[0].startswith("-"):
            raise RefusedError(
                "a name and a command are needed", "millrace tool new mytool -- mytool -o out.txt sample.fa"
            )
        return super().parse_args(ctx, args)


@command.command("new", cls=NewCommand)
@click.argument("name")
@click.pass_context
def new(ctx: click.Context, name: str) -> None:
    """Write a first description of a tool, from its help text and a trial of one command on a small sample.

    \b
    millrace tool new mytool -- mytool -d nr.fa -o hits.txt sample.fa

    It is written to millrace-tools/NAME.toml, with ?? at each guess. The command is run once, in a temporary folder.
    """
    import tempfile

    from millrace.adapters import description_lookup
    from millrace.adapters.description_lookup import IN_PROJECT
    from millrace.adapters.tool_description import parse_description
    from millrace.extensions.check.check_folder import raise_on_signals
    from millrace.extensions.check.description_draft import (
        draft_description,
        find_verb,
        find_written_files,
        read_help_text,
    )
    from millrace.planning.program_lookup import find_program

    words: list[str] = ctx.meta.get(COMMAND, [])
    if not words or not re.fullmatch(r"[\w.+-]+", name):
        raise RefusedError("a name and a command are needed", "millrace tool new mytool -- mytool -o out.txt sample.fa")
    find_program(words[0], get_working_folder(), os.environ, tuple(words))
    path = get_working_folder() / IN_PROJECT / f"{name}.toml"
    if path.exists():
        raise RefusedError(f"{path}: is there already", "remove it, or take another name")
    with raise_on_signals(), tempfile.TemporaryDirectory(prefix="millrace-new-") as folder:
        written, verb = (
            find_written_files(words, get_working_folder(), Path(folder)),
            find_verb(words, get_working_folder()),
        )
        said = read_help_text(words[: 2 if verb else 1], get_working_folder())
    path.parent.mkdir(exist_ok=True)
    content = draft_description(words, verb, said, written, get_working_folder()).encode()
    with path.open("xb") as file:  # through no link
        file.write(content)
    parse_description(content, path)
    with suppress(RefusedError):  # without a home folder, the user confirms it as any other
        description_lookup.confirm_content(content, os.environ)
    click.echo(
        f"{IN_PROJECT / path.name}: look at what is marked with ??, then: millrace tool check -- {shlex.join(words)}"
    )
    click.echo(f"after each change: {description_lookup.format_allow_command(path, get_working_folder())}")
