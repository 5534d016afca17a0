"""The options that ``run``, ``plan`` and others share, the ``JobSpec`` made from them, and the URLs in a command.

URLs of inputs are fetched before planning; outputs are sent to theirs at the end.
"""

from __future__ import annotations

import functools
import os
import shlex
import stat
from _blake2 import blake2b  # as hashlib has it, which would load OpenSSL at each start
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from click.core import ParameterSource

from millrace.core.errors import RefusedError
from millrace.core.job import JobSpec, make_job, read_job_file
from millrace.host.site_defaults import STORE_VARIABLE

if TYPE_CHECKING:
    from millrace.core.tool_use import RemoteFileView, ToolUse
    from millrace.execution.url_inputs import UrlFiles
    from millrace.execution.url_outputs import OutputUploads
    from millrace.extensions.workflow.workflow_description import WorkflowDescription
    from millrace.planning.run_plan import RunPlan


#: A function that adds click options to a function.
Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

#: Key of the words after ``--`` in the click context.
COMMAND = "millrace.command"

#: Key of the ``JobFile`` and of the merged values, if the job has phases.
PHASES = "millrace.phases"

#: Key of the content of a job file that came on standard input.
PIPED = "millrace.piped"

#: The job file that stands for standard input; its name in messages; and seconds before a message that it is awaited.
STDIN, STDIN_NAME, STDIN_PATIENCE_SECONDS = Path("-"), "standard input", 2.0

#: Key of the list of values that did not come from the command line, each with its origin.
ORIGINS = "millrace.origins"


class JobCommand(click.Command):
    """A click command that takes a serial command after ``--``."""

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return ["[OPTIONS]", "[JOB.toml|JOB.hsp|-]", "-- TOOL [ARGS]..."]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" in args:
            at = args.index("--")
            args, ctx.meta[COMMAND] = args[:at], args[at + 1 :]
        elif words := find_tool_words(self, args):
            ours = args[: len(args) - len(words)]
            line = shlex.join(["millrace", str(self.name), *ours, "--", *words])
            raise RefusedError("write -- before the tool's command", line)
        return super().parse_args(ctx, args)


def find_tool_words(command: click.Command, args: list[str]) -> list[str]:
    """Return the arguments that look like a tool's command typed without ``--``; empty if there are none."""
    takes_value = {
        name
        for option in command.params
        if isinstance(option, click.Option) and not option.is_flag and not option.count
        for name in option.opts
    }
    at = 0
    while at < len(args):
        if not args[at].startswith("-"):
            return [] if _is_job_file(args[at], is_last=at == len(args) - 1) else args[at:]
        at += 2 if args[at] in takes_value else 1
    return []


def _is_job_file(word: str, *, is_last: bool) -> bool:
    """Tell whether an argument is a job file: by its name, or as the last one that is a file and no program."""
    return word.endswith((".toml", ".hsp")) or (is_last and os.path.isfile(word) and not os.access(word, os.X_OK))


def add_job_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a job to ``function``, which gets the resolved ``JobSpec`` as ``job``."""
    option = click.option
    decorators: list[Decorator] = [
        click.argument("job_file", metavar="[JOB.toml|JOB.hsp|-]", required=False, type=click.Path(path_type=Path)),
        add_slots_option,
        option("--as", "known_as", metavar="TOOL", help="The program is this known tool, under another name or behind a script."),
        option("--run-dir", metavar="DIR", help="Where results are kept until the end (default: OUTPUT.millrace)."),
        option("--store", envvar=STORE_VARIABLE, metavar="DIR", help="Folder with run directories, in which a run is found by what it computes, wherever it is typed; and with what runs have computed, which is not computed again. At a URL only the latter."),
        option("--no-store", is_flag=True, help="Use no store, whatever MILLRACE_STORE or millrace.toml name."),
        option("--work-dir", envvar="MILLRACE_WORK", metavar="DIR", help="Where batches and unfinished results lie while the run lasts (default: in memory, or on disk if memory is short)."),
        option("--fresh", is_flag=True, help="Start over; forget what an earlier run did."),
        option("--input", multiple=True, metavar="FILE[:FORMAT]", help="Input that is cut into records. Several advance together."),
        option("--output", multiple=True, metavar="FILE", help="File that the tool writes."),
        option("--join", multiple=True, metavar="[OUTPUT=]HOW", help="How an output is joined: concat (default), header[:N|:REGEX], footer[:N|:REGEX], totals:REGEX, csv, sam, jsonl, xml:TAG."),
        option("--shared", multiple=True, metavar="FILE", help="File that the tool reads whole, such as a database."),
        option("--ok-status", type=int, multiple=True, metavar="N", help="Exit status besides 0 with which the tool ends well ('nothing found')."),
        option("--format", metavar="FORMAT", help="Record format of inputs that name none (fasta, fastq, mol2, sdf, lines...)."),
        option("--records", is_flag=True, help="The program stays alive and takes records one by one, by the record protocol."),
        option("--warm", is_flag=True, help="Start the tool once a slot and fork it for each task, where it first touches its input: for tools that take long to start."),
        option("--record-start", metavar="REGEX", help="A record begins at a line that matches."),
        option("--record-end", metavar="REGEX", help="A record ends after a line that matches."),
        option("--batch", metavar="auto|N|SIZE", help="Records (100) or bytes (64K) a task; auto measures (default)."),
        option("--fragments", metavar="auto|N|SIZE", help="Search the database in N parts, or in parts of SIZE (500M); auto decides (default)."),
        option("--retries", type=int, metavar="N", help="Further tries of a failing task before it is split (default 1)."),
        option("--record-timeout", type=float, metavar="SECONDS", help="Longest time for one record."),
        option("--on-failure", type=click.Choice(["quarantine", "stop"]), help="What to do with a record that fails (default quarantine)."),
        option("--max-quarantined", metavar="auto|N|N%", help="Records that may be given up before the run stops (default 1 %, at least 100)."),
        option("--retry-quarantined", is_flag=True, help="Try again what an earlier run gave up."),
        option("--keep-run-dir", is_flag=True, help="Keep journal and events of a run that is done, for report and gather."),
        option("--atomic-output/--growing-output", default=None, help="Let an output have its name only when it is whole (default: in Snakemake, Nextflow, make and Galaxy)."),
        option("--grace", type=float, metavar="SECONDS", help="Longest time between a signal and the end of the run (default 10)."),
        option("--profile-io", flag_value="tasks", help="Measure what each task reads and writes, and how long it waits, for events.jsonl and the report; millrace profile does so file by file."),
        option("--sync", type=float, metavar="SECONDS", help="Longest time that a result waits for the disk (default 1)."),
        option("--independent", is_flag=True, help="Say that a script treats each record by itself, where that is not certain."),
        option("--verify", type=float, metavar="FRACTION", help="Run this share of the input again, cut elsewhere, and compare the bytes (default: a sample if the tool is not known; 0: nothing)."),
        option("--progress", type=click.Choice(["auto", "bar", "plain", "json", "none"]), help="How to show progress (default auto)."),
        option("--metrics", metavar="FILE", help="Keep this file with the latest figures of the run, as OpenMetrics (for the textfile collector of node_exporter)."),
        option("--notify", metavar="COMMAND", help="Run this shell command at trouble and at the end of the run; it gets a JSON object on standard input."),
        option("--hosts", metavar="A,B,...", help="Spread the run over these nodes, reached by ssh (default: those of the batch job)."),
        option("--dask", metavar="ADDRESS|FILE", help="Run on the workers of a Dask cluster: the address of its scheduler, or its scheduler file."),
        option("--patience", type=float, metavar="SECONDS", help="With --dask: longest time without Dask's scheduler (default 600)."),
        option("--partition-size", type=int, metavar="N", help="Nodes of a partition, which one of them leads (default: partitions beyond 256 nodes)."),
        option("--stage", metavar="auto|ram|disk|off|DIR", help="Where nodes keep copies of databases on shared storage (default auto: in memory if they fit)."),
        option("--replicas", type=int, metavar="N", help="Let N nodes keep each volume of a database on shared storage, which is then read N times in all (default: volumes where no node can hold the database, as often as memory allows)."),
        option("--write", type=click.Choice(["merge", "individual", "collective", "coordinator"]), help="Who writes the output on several nodes: in turn who has most of it (default), each its own part, all together by MPI-IO, or the coordinator alone. With individual and collective the file has gaps until the end."),
        option("--nice", type=int, metavar="N", help="Lower the priority of the tools by N (0 to 19)."),
        option("-q", "--quiet", is_flag=True, help="Say only what went wrong."),
        option("-v", "--verbose", count=True, help="Say how the work is planned; -vv: and log each message, event and decision (MILLRACE_LOG=FILE: in a file)."),
    ]  # fmt: skip

    @click.pass_context
    @functools.wraps(function)
    def with_job(ctx: click.Context, /, job_file: Path | None, **values: Any) -> Any:
        rest = {name: values.pop(name) for name in list(values) if name not in list_job_fields()}
        return function(job=_build_job(ctx, job_file, values), **rest)

    for decorate in reversed(decorators):
        with_job = decorate(with_job)
    return with_job


def add_slots_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the option ``--slots`` to ``function``."""
    return click.option("--slots", type=int, metavar="N", help="Tool processes side by side (default: the cores this process may use).")(function)  # fmt: skip


def add_search_store_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--store`` to a command that finds kept runs by their outputs."""

    def set_store(_context: click.Context, _parameter: click.Parameter, value: str | None) -> None:
        if value:
            os.environ[STORE_VARIABLE] = value

    return click.option("--store", metavar="DIR", expose_value=False, callback=set_store, help="Store in which a run is looked for, too (default: MILLRACE_STORE, or that of millrace.toml).")(function)  # fmt: skip


def add_packing_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--slots`` and ``--work-dir``, for every command that regenerates results."""
    work_dir = click.option("--work-dir", envvar="MILLRACE_WORK", default="", metavar="DIR", help="Where batches and unfinished results lie meanwhile.")  # fmt: skip
    return add_slots_option(work_dir(function))


def add_regenerating_options(*, required: bool) -> Decorator:
    """Add the options of every command that writes a packed result again.

    Args:
        required: Whether the outputs must be named.
    """
    option, path = click.option, click.Path(path_type=Path)
    decorators: list[Decorator] = [
        option("-o", "--output", "outputs", metavar="FILE", multiple=True, required=required, type=path, help="Where to write; once for each output of the command, in its order."),
        option("--db", default="", metavar="DB", help="The database here (default: the name that the result has of it)."),
        option("--queries", metavar="FILE", type=path, help="The queries, if they did not travel along."),
        option("--any-version", is_flag=True, help="Try another version of the tool, too."),
        option("--hosts", metavar="A,B,...", default="", help="Regenerate on these nodes, reached by ssh, which all see the folder of the result (default: those of the batch job)."),
        add_packing_options,
    ]  # fmt: skip

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        for each in reversed(decorators):
            function = each(function)
        return function

    return decorate


def list_job_fields() -> set[str]:
    """Return the names of the parameters from which a job is made."""
    return {*JobSpec.__struct_fields__, "no_store", "quiet", "verbose"}


def _build_job(ctx: click.Context, job_file: Path | None, values: dict[str, Any]) -> JobSpec:
    """Merge the values of a job: option beats environment beats job file beats the site's file beats default.

    Store the origins, and the phases if there are any, in ``ctx.meta``.
    """
    from millrace.host import site_defaults

    sources = {name: ctx.get_parameter_source(name) for name in values}
    said = {name: value for name, value in values.items() if sources[name] not in (ParameterSource.DEFAULT, None)}
    _apply_no_store(said, sources)
    quiet, verbose = said.pop("quiet", False), said.pop("verbose", 0)
    if quiet and verbose:
        raise RefusedError("-q and -v contradict each other", "give one of them")
    if quiet or verbose:
        said["verbosity"] = -1 if quiet else min(verbose, 2)
    layers = site_defaults.read_defaults(os.environ)
    read = _read_job(ctx, job_file)
    if read:
        layers.append(site_defaults.SiteDefaults(read.where, read.values))
        _print_job_notes(read, quiet=quiet)
    merged = site_defaults.merge_defaults(layers)
    origins = {key: layer.file for layer in layers for key in layer.values}
    keys = dict(zip(JobSpec.__struct_fields__, JobSpec.__struct_encode_fields__, strict=True))
    for name, value in said.items():
        key = keys.get(name, name.replace("_", "-"))
        merged[key] = value
        origins[key] = "the environment" if sources.get(name) is ParameterSource.ENVIRONMENT else ""
    ctx.meta[ORIGINS] = [
        f"{key}: {_format_value(merged[key])}, from {origin}"
        for key, origin in origins.items()
        if origin and key not in ("command", "replica")
    ]
    if COMMAND in ctx.meta:
        merged["command"] = ctx.meta[COMMAND]
    merged.setdefault("command", [])
    where = read.where if read else ""
    if read and "phase" in merged:
        ctx.meta[PHASES] = (read, merged)
        merged = {key: value for key, value in merged.items() if key != "phase"} | {"command": ["workflow"]}
    job = make_job(merged, where)
    if "costs" in merged:
        from millrace.storage import cost_table

        cost_table.load_cost_model(job.costs)  # refuses an unknown one
    return job


def _apply_no_store(said: dict[str, Any], sources: dict[str, ParameterSource | None]) -> None:
    """Replace ``--no-store`` in ``said`` by an empty store, unless it is a variable and the store was typed.

    Raises:
        RefusedError: Both were typed.
    """
    typed = [name for name in ("store", "no_store") if sources[name] is ParameterSource.COMMANDLINE]
    if not said.pop("no_store", False) or typed == ["store"]:
        return
    if "store" in typed:
        raise RefusedError("--store and --no-store contradict each other", "give one of them")
    said["store"], sources["store"] = "", ParameterSource.COMMANDLINE


def _format_value(value: Any) -> str:
    """Format a value for a message; lists with commas."""
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


class JobFile(NamedTuple):
    """A job file that was read."""

    #: Of a job on standard input a name made from its content, which no file has.
    path: Path
    #: Its name in messages.
    where: str
    values: dict[str, Any]
    #: Notes on what has no effect here.
    notes: Sequence[str] = ()


def _read_job(ctx: click.Context, typed: Path | None) -> JobFile | None:
    """Read the job file, in TOML or in the format of HSP-Wrap; None: there is none.

    Standard input is read if it is named ``-``, or if nothing else says what to run and something may come in there.
    """
    if typed is None and (COMMAND in ctx.meta or not _may_bring_job()):
        return None
    if typed and typed.suffix == ".toml":
        return JobFile(typed, str(typed), read_job_file(typed))
    if typed and typed != STDIN:
        return _parse_hsp_job(_read_hsp_file(typed), typed, str(typed))
    content = _read_standard_input(is_named=typed is not None)
    if typed is None and not content.strip():
        return None
    ctx.meta[PIPED] = content
    path = Path(f"job-{blake2b(content, digest_size=4).hexdigest()}.hsp")
    return _parse_hsp_job(content, path, STDIN_NAME, is_named=typed is not None)


def _read_hsp_file(file: Path) -> bytes:
    from millrace.extensions.workflow.hsp_wrap import MAX_JOB_BYTES  # few job files have this format

    try:
        with file.open("rb") as opened:
            return opened.read(MAX_JOB_BYTES + 1)
    except OSError as error:
        raise RefusedError(f"{file}: {error.strerror}", "check the path of the job file") from error


def _parse_hsp_job(content: bytes, path: Path, where: str, *, is_named: bool = True) -> JobFile:
    """Parse a job file of HSP-Wrap.

    Args:
        is_named: Whether the user has named it, or standard input was read for want of a command.
    """
    from millrace.extensions.workflow.hsp_wrap import read_hsp_job
    from millrace.launch.node_allocation import PHASE

    # Ranks read it as the supervisor did, on whatever machine they are.
    machine = os.environ.get(PHASE, "").partition(":")[2] or os.uname().machine
    try:
        return JobFile(path, where, *read_hsp_job(content, where, Path.cwd(), machine))
    except RefusedError as error:
        if not is_named or path.suffix != ".hsp":
            error.hint += "; it was read as a job file of HSP-Wrap, as no command is given: a command stands after --"
        raise


def _print_job_notes(job: JobFile, *, quiet: bool) -> None:
    """Print the notes on a job file, once: the ranks of a phase read it too."""
    if job.notes and not quiet:
        from millrace.launch.node_allocation import PHASE

        for note in () if PHASE in os.environ else job.notes:
            click.echo(f"millrace: {job.where}: {note}", err=True)


def _may_bring_job() -> bool:
    """Tell whether standard input is a file or a pipe, and not a terminal or ``/dev/null``."""
    mode = os.fstat(0).st_mode
    return stat.S_ISREG(mode) or stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def _read_standard_input(*, is_named: bool) -> bytes:
    """Read standard input, not much further than a job file may go; say so if it is awaited and was not named."""
    import select  # only for this

    from millrace.extensions.workflow.hsp_wrap import MAX_JOB_BYTES

    if not is_named and not select.select([0], [], [], STDIN_PATIENCE_SECONDS)[0]:
        click.echo("millrace: no command is given: waiting for a job file of HSP-Wrap on standard input", err=True)
    try:
        with open(0, "rb", closefd=False) as file:
            return file.read(MAX_JOB_BYTES + 1)
    except OSError as error:
        raise RefusedError(f"{STDIN_NAME}: {error.strerror}", "name the job file") from error


def find_workflow() -> tuple[WorkflowDescription, Path] | None:
    """Return the workflow of the current command's job file, and the file; None: the job has no phases.

    Raises:
        RefusedError: The description of the phases is invalid.
    """
    found: tuple[JobFile, dict[str, Any]] | None = click.get_current_context().meta.get(PHASES)
    if found is None:
        return None
    from millrace.extensions.workflow.workflow_description import parse_workflow

    file, values = found
    return parse_workflow(values, file.where), file.path


def find_piped_job() -> bytes:
    """Return the job file of the current command if it came on standard input; empty: it did not."""
    content: bytes = click.get_current_context().meta.get(PIPED, b"")
    return content


def list_value_origins() -> list[str]:
    """Return a line for each value that did not come from the command line, with its origin."""
    found: list[str] = click.get_current_context().meta[ORIGINS]
    return found


def check_urls(job: JobSpec) -> None:
    """Check that the URLs of a command are usable and hold no password, as they are written to logs.

    Raises:
        RefusedError: One is unusable, or may hold a password.
    """
    from millrace.adapters import registry
    from millrace.core import replica_rules

    replica_rules.check_url_arguments(job.command[1:], registry.has_adapter(job.known_as or job.command[0]))
    replica_rules.check_url_arguments((*job.input, *job.shared, *job.output), known_tool=True)


def find_outbox(job: JobSpec, cwd: Path) -> OutputUploads | None:
    """Return the outputs of the command that go to URLs; None: there are none.

    Raises:
        RefusedError: One cannot be written.
    """
    from millrace.core import replica_rules

    check_urls(job)
    if not replica_rules.has_url_arguments((*job.command[1:], *job.output)):
        return None
    from millrace.execution.url_outputs import OutputUploads

    return OutputUploads(job, cwd) or None


def plan_with_urls(
    job: JobSpec, cwd: Path, environ: Mapping[str, str], *, apart: bool, launched: bool = False
) -> tuple[RunPlan, UrlFiles | None]:
    """Fetch the files that a command names by URLs, then plan it.

    Args:
        apart: There are several nodes: leave database volumes, one for each fragment, to those that search them.
        launched: See ``millrace.planning.run_plan.make_plan``.

    Returns:
        The plan, and the fetched files, in use until closed; None: the command names no URL.

    Raises:
        MillraceError: The command cannot be planned, or a file is missing, unreadable or too large for the cache.
    """
    from millrace.planning import run_plan as planner

    if job.replicas:
        from millrace.planning.volume_keeping import check_replicas

        check_replicas(job)
    cuts = apart and job.batch_size == (0, 0) and len(job.input) == 1
    behind = _open_url_files(job, cwd, apart=apart and job.fragment_size == (0, 0), cuts=cuts)
    view = behind.view if behind else None
    made = planner.make_plan(job, cwd, environ, launched=launched, spread=apart, view=view)
    if behind and behind.view and not _can_leave_to_nodes(behind.view, made.use):
        behind.close()
        behind = _open_url_files(job, cwd, apart=False)
        view = behind.view if behind else None
        made = planner.make_plan(job, cwd, environ, launched=launched, spread=apart, view=view)
    return made, behind


def _can_leave_to_nodes(view: RemoteFileView, use: ToolUse) -> bool:
    """Tell whether a database can be searched volume by volume, and an input be cut by nodes, as far as they were left so."""
    if view.later and not use.n_fragments:
        return False
    if not view.cut_by_nodes:
        return True
    from millrace.core.input_pieces import CUT_BY_NODES  # few commands need it

    item = use.inputs[0]
    return use.adapter == "generic" and item.format in CUT_BY_NODES and not item.packed and len(use.inputs) == 1


def _open_url_files(job: JobSpec, cwd: Path, *, apart: bool, cuts: bool = False) -> UrlFiles | None:
    """Fetch the files that a command names by URLs; None: it names none."""
    from millrace.core import replica_rules

    check_urls(job)
    if not replica_rules.has_url_arguments((*job.command[1:], *job.input, *job.shared, *job.output)):
        return None
    from millrace.execution.url_inputs import UrlFiles  # few commands have URLs, and it imports much

    def print_message(text: str) -> None:
        if job.verbosity >= 0:
            click.echo(f"millrace: {text}", err=True)

    return UrlFiles(job, cwd, print_message, apart=apart, cuts=cuts)
