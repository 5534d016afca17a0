"""The command ``millrace run``, and its option ``--pack-to``."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import click
import msgspec

from millrace.cli.options import JobCommand, add_job_options, find_piped_job, find_workflow, list_value_origins
from millrace.core.job import JobSpec
from millrace.host import debug_log, lock_owner

if TYPE_CHECKING:
    from millrace.cluster.membership import JobMembership
    from millrace.execution.resume import FinishedRun
    from millrace.execution.url_inputs import UrlFiles
    from millrace.execution.url_outputs import OutputUploads
    from millrace.extensions.workflow.workflow_description import WorkflowDescription
    from millrace.launch.mpi_environment import LaunchedProcess
    from millrace.launch.supervisor_link import SupervisorLink
    from millrace.planning.run_plan import RunPlan
    from millrace.report.summary import RunSummary


@click.command("run", cls=JobCommand, short_help="Run a serial command on every core.")
@add_job_options
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
    help="Pack the hits as they are found (see millrace pack), and compute and write nothing else.",
)
@click.option("--with-queries", is_flag=True, help="With --pack-to: let the queries travel along.")
@click.option(
    "--verify-pack",
    metavar="SHARE",
    type=click.FloatRange(0, 1),
    default=0.0,
    help="With --pack-to: make this share of the result here, and compare it with what the command writes.",
)
def command(job: JobSpec, as_json: bool, pack: Path | None, with_queries: bool, verify_pack: float) -> None:
    """Run a serial command on every core; the output is the serial command's, byte for byte.

    \b
    millrace run -- blastp -query q.faa -db nr -outfmt 6 -out hits.tsv
    millrace run -- hmmscan --tblout t.txt -o o.txt pfam.hmm q.faa
    millrace run --format fasta -- ./myfilter < in.fa > out.txt
    millrace run --input q.fa --output out.txt -- mytool -i q.fa -o out.txt
    millrace run job.toml
    millrace run - < job.hsp

    The same command again resumes a run that was stopped, killed or crashed.
    """
    from millrace.core.errors import RefusedError
    from millrace.launch.node_allocation import PHASE

    lock_owner.remove_caller(os.environ)  # a tool may itself run Millrace
    phase: tuple[WorkflowDescription, Path, str] | None = None
    if flow := find_workflow():
        if pack:
            raise RefusedError("--pack-to: a job in phases is not packed", "run it, then: millrace pack")
        if not (name := os.environ.pop(PHASE, "").partition(":")[0]):  # a tool may itself run Millrace
            sys.exit(_run_phases(*flow))
        phase, job = (*flow, name), flow[0].get_phase(name).job
    if (with_queries or verify_pack) and not pack:
        option = "--with-queries" if with_queries else "--verify-pack"
        raise RefusedError(f"{option} belongs to --pack-to", "name the pack: --pack-to FILE.mrp")
    packing = PackRequest(get_working_folder() / pack, with_queries, verify_pack, job.keep_run_dir) if pack else None
    run_job(job, as_json=as_json, phase=phase, packing=packing)


def run_job(
    job: JobSpec, *, as_json: bool, phase: tuple[WorkflowDescription, Path, str] | None = None,
    packing: PackRequest | None = None,
) -> NoReturn:  # fmt: skip
    """Run a job, and exit with its code; see ``_plan_and_run``."""
    from millrace.core.errors import MillraceError
    from millrace.launch import mpi_environment
    from millrace.launch.supervisor_link import SupervisorLink

    launched = mpi_environment.find_launched_process(os.environ)
    if (log := os.environ.get(debug_log.VARIABLE)) or job.verbosity > 1:
        debug_log.start_debug_log(log or "", launched.rank if launched and launched.size > 1 else None)
        if job.progress == "auto":
            job = msgspec.structs.replace(job, progress="plain")  # log lines would break up a bar
    supervision = SupervisorLink(os.environ, coordinator=not (launched and launched.rank))
    supervision.redirect_standard_streams()
    notifies = job.notify and not supervision.active and not (launched and launched.rank)
    end = EndNotice(job) if notifies else None
    try:
        code = _plan_and_run(job, launched, supervision, as_json=as_json, phase=phase, packing=packing, end=end)
    except MillraceError as error:
        supervision.report_error(error)
        if end:
            end.send_notice(error.status, str(error))
        raise
    if end:
        end.send_notice(code)
    sys.stdout.flush()
    supervision.report_exit_code(code)
    sys.exit(code)


def _run_phases(flow: WorkflowDescription, file: Path) -> int:
    """Run a job in phases and return its exit code."""
    from millrace.core.errors import RefusedError
    from millrace.extensions.watch.terminal_screen import WorkflowProgress
    from millrace.extensions.workflow import workflow_run as phases
    from millrace.launch import mpi_environment, node_allocation

    if flow.job.metrics:
        raise RefusedError("--metrics: a job in phases has no such file", "millrace watch --web has its figures")
    if flow.job.dask:
        raise RefusedError("--dask: a job in phases does not run on a Dask cluster", "run its phases one by one")
    if flow.job.store:
        _print_message(flow.job, phases.WITHOUT_STORE)
    launched = mpi_environment.find_launched_process(os.environ)
    if launched and not _is_alone(launched):
        raise RefusedError(
            f"{file}: a job in phases starts its own ranks",
            "leave mpirun or srun out: millrace run --hosts ..., or in a batch job",
        )
    folder = phases.locate_job_folder(flow, file, get_working_folder())
    told = WorkflowProgress(folder, flow.job.progress_shown, sys.stderr, os.environ)
    nodes = node_allocation.find_node_allocation(flow.job.hosts, os.environ)
    code = phases.run_workflow(
        flow, file, get_working_folder(), os.environ, nodes, told.print_changes, find_piped_job()
    )  # fmt: skip
    if flow.job.notify:
        end = EndNotice(msgspec.structs.replace(flow.job, command=(str(file),)))
        end.run_dir = str(folder)
        end.send_notice(code)
    return code


def _is_alone(launched: LaunchedProcess | None) -> bool:
    """Tell whether this process is the only rank: ``srun`` may also have started just the shell of an allocation."""
    return launched is None or (launched.size == 1 and launched.launcher == "srun")


def _plan_rank_phase(flow: WorkflowDescription, file: Path, name: str, environ: Mapping[str, str]) -> RunPlan:
    from millrace.extensions.workflow.workflow_run import plan_rank_phase

    return plan_rank_phase(flow, file, get_working_folder(), environ, name)


def _plan_and_run(
    job: JobSpec, launched: LaunchedProcess | None, supervision: SupervisorLink, *,
    as_json: bool, phase: tuple[WorkflowDescription, Path, str] | None, packing: PackRequest | None,
    end: EndNotice | None = None,
) -> int:  # fmt: skip
    """Plan, run and report a job, and return its exit code.

    Args:
        phase: Workflow, its file and the name of the phase of which this process is a rank; None: no phase.
        packing: How the result is packed; None: it is written.
        end: Gets what the notice of the end says; None: there is none.
    """
    from millrace.cli import options
    from millrace.launch import node_allocation
    from millrace.launch.mpi_environment import remove_mpi_variables

    crew = None
    if job.dask and launched and not _is_alone(launched):
        from millrace.planning.dask_checks import make_two_kinds_error

        raise make_two_kinds_error(launched.launcher)
    if launched:
        from millrace.execution import plan_execution

        crew = plan_execution.join_mpi_job(launched, supervision, job)
    if supervision.active:
        job = msgspec.structs.replace(job, fresh=False)  # only the first start begins afresh
    in_job = launched is not None or supervision.active
    job = packing.prepare_job(job) if packing else job
    outbox = options.find_outbox(job, get_working_folder())
    job = outbox.job if outbox else job
    spread = _is_alone(launched) and not job.dask
    nodes = node_allocation.find_node_allocation(job.hosts, os.environ) if spread else None
    environ = remove_mpi_variables(os.environ) if in_job else os.environ
    if phase:
        plan, behind = _plan_rank_phase(*phase, environ), None
    else:
        plan, behind = options.plan_with_urls(
            job, get_working_folder(), environ, apart=crew is not None or nodes is not None, launched=in_job
        )
    if outbox:
        outbox.check_uploads(plan.use.outputs, plan.command.argv[0], plan.run_dir)
    _print_plan_notes(plan.notes, job, others=crew is not None)
    if end:
        end.run_dir = str(plan.run_dir)
    if packing:
        packing.check_plan(plan)
    if nodes:
        from millrace.launch import run_supervisor

        return run_supervisor.run_supervised(packing.hide_outputs(plan) if packing else plan, nodes, os.environ)

    def run_made_plan(made: RunPlan) -> FinishedRun:
        return _run_plan(made, supervision, crew, behind, outbox)

    if packing:
        finished = packing.run_and_pack(plan, supervision.active, run_made_plan)
    else:
        alone = crew is None and not supervision.active
        finished = _run_with_known(plan, run_made_plan, alone=alone, supervised=supervision.active)
    _print_ending(finished, job, behind)
    if end:
        end.summary = finished.summary
    if as_json and not phase:
        print_json(finished.summary, err=not packing and any(output.stdout for output in plan.use.outputs))
    if crew:
        crew.exit_code = finished.code
    return finished.code


def _run_with_known(
    plan: RunPlan, run: Callable[[RunPlan], FinishedRun], *, alone: bool, supervised: bool
) -> FinishedRun:
    """Run a plan, with what the user's store knows if there is one, and with one search for equal queries.

    Args:
        alone: Whether this is the only process.
        supervised: Whether a supervisor has started it.
    """
    print_message = partial(_print_message, plan.job)
    if plan.job.store:
        from millrace.extensions.reuse.store_run import run_with_store

        return run_with_store(plan, run, print_message, supervised=supervised)
    if alone and _has_equal_queries(plan):
        from millrace.extensions.reuse.equal_queries import run_with_equal_queries

        return run_with_equal_queries(plan, run, print_message)
    return run(plan)


def _has_equal_queries(plan: RunPlan) -> bool:
    from millrace.adapters import registry
    from millrace.planning.fragment_planning import has_equal_queries

    command = plan.command.resolved_command
    return has_equal_queries(plan.job, plan.use, command, registry.find_adapter(plan.command.argv[0]))


def _print_message(job: JobSpec, text: str) -> None:
    """Print a message, unless the user wants quiet."""
    if job.verbosity >= 0:
        click.echo(f"millrace: {text}", err=True)


def _run_plan(
    plan: RunPlan,
    supervision: SupervisorLink,
    crew: JobMembership | None,
    behind: UrlFiles | None,
    outbox: OutputUploads | None,
) -> FinishedRun:
    """Run a plan; report it by name if the run directory disappears meanwhile."""
    from millrace.core.errors import MillraceError
    from millrace.execution import plan_execution  # imported late: a refused command need not wait for these imports

    gc.freeze()  # modules loaded by now live to the end: keep them out of garbage collections
    gc.enable()
    try:
        return plan_execution.run_plan(plan, supervision, crew, behind, outbox)
    except FileNotFoundError as error:
        if plan.run_dir.exists():
            raise
        hint = "the same command starts again, from the beginning"
        raise MillraceError(f"{plan.run_dir}: the run directory was removed, and the results in it", hint) from error
    except MillraceError as error:
        if crew:
            crew.exit_code = error.status
        raise


def _print_ending(finished: FinishedRun, job: JobSpec, behind: UrlFiles | None) -> None:
    """Print the summary and the final message of a run, and a warning if a fetched file has changed since."""
    from millrace.report import summary

    if behind and (place := behind.find_changed_file()):
        click.echo(
            f"millrace: {place}: has changed since; the output is that of the file as it was at the start", err=True
        )
    if finished.summary and job.verbosity >= 0:
        click.echo(summary.format_summary(finished.summary), err=True)
    if finished.text and (job.verbosity >= 0 or finished.code):
        click.echo(f"millrace: {finished.text}", err=True)


def _print_plan_notes(notes: Sequence[str], job: JobSpec, *, others: bool) -> None:
    """Log the notes of the plan, and print them with ``-v``.

    Args:
        others: Whether other ranks take part.
    """
    for note in (*list_value_origins(), *notes):
        debug_log.log_note("plan", note)
        # The note counts the slots of this process alone.
        if job.verbosity > 0 and not (others and note.startswith("slots: ")):
            click.echo(f"millrace: {note}", err=True)


def get_working_folder() -> Path:
    """Return the working folder.

    Raises:
        RefusedError: It was removed.
    """
    from millrace.core.errors import RefusedError

    try:
        return Path.cwd()
    except OSError as error:
        raise RefusedError("the working folder does not exist any more", "cd to one that does") from error


def print_json(value: Any, *, err: bool = False) -> None:
    """Print a value as one indented JSON document, to standard error if ``err``."""
    from millrace.rundir.checksummed_json import encode_json

    click.echo(encode_json(value).decode(), err=err)


class EndNotice:
    """The notice of the end of a run for the user's command (``--notify``)."""

    def __init__(self, job: JobSpec) -> None:
        self._job = job
        self._cwd = ""
        with suppress(OSError):  # it was removed, which is the reason of the end
            self._cwd = os.getcwd()
        #: What is known of the run by then.
        self.run_dir = ""
        self.summary: RunSummary | None = None

    def send_notice(self, code: int, message: str = "") -> None:
        """Run the user's command, and wait for it for a while.

        Args:
            code: The exit code.
            message: Why the run did not reach its end; empty if it did.
        """
        from millrace.execution.user_notifier import UserNotifier, choose_wait, describe_command

        facts = describe_command(self._job.command, self._cwd, self.run_dir)
        notifier = UserNotifier(self._job.notify, facts, partial(_print_message, self._job))
        notifier.send_notice({"event": "end", "exit_code": code, "message": message, "summary": self.summary})
        notifier.wait_for_commands(choose_wait(self._job, interrupted=code > 128))


class PackRequest(NamedTuple):
    """The options of a run that is packed."""

    dest: Path
    with_queries: bool
    #: Share of the queries to verify.
    verify: float
    #: Whether the user wants the run directory kept.
    keep: bool

    def prepare_job(self, job: JobSpec) -> JobSpec:
        """Return ``job`` as it is run for packing.

        Raises:
            RefusedError: It cannot be packed, or not into this file.
        """
        from millrace.core.errors import RefusedError
        from millrace.core.replica_rules import has_url_arguments
        from millrace.extensions.pack import live_packing, pack_destinations

        if has_url_arguments((*job.command[1:], *job.input, *job.shared, *job.output)):
            raise RefusedError("the command names files by URLs, which do not travel", "name copies of them")
        if job.dask:
            raise RefusedError("--pack-to: a run on a Dask cluster is not packed", "leave --dask out")
        pack_destinations.check_destinations([self.dest])
        pack_destinations.check_replaced_file(self.dest)
        return live_packing.make_packable_job(job, self.dest)

    def check_plan(self, plan: RunPlan) -> None:
        """Check that the pack replaces no file that the command reads.

        Raises:
            RefusedError: It does.
        """
        from millrace.extensions.pack import pack_destinations

        inputs = [plan.command.cwd / item.path for item in plan.use.inputs]
        pack_destinations.refuse_overwritten_inputs([self.dest], [*inputs, *plan.use.databases])

    def hide_outputs(self, plan: RunPlan) -> RunPlan:
        """Return ``plan`` for a supervisor: without outputs, as the coordinator packs them."""
        job, use = msgspec.structs.replace(plan.job, keep_run_dir=self.keep), plan.use
        return msgspec.structs.replace(plan, job=job, use=msgspec.structs.replace(use, outputs=()))

    def run_and_pack(self, plan: RunPlan, supervised: bool, carry_out: Callable[[RunPlan], FinishedRun]) -> FinishedRun:
        """Run a plan by ``carry_out``, and pack its outputs; a supervisor removes the run directory itself."""
        from millrace.core.errors import ExitCode
        from millrace.extensions.pack import live_packing, pack_destinations
        from millrace.extensions.pack.regeneration_run import RegenerationSettings
        from millrace.extensions.pack.result_packer import QUERIES_PER_BATCH, PackOptions

        job = plan.job
        settings = RegenerationSettings(plan.command.environ, job.slots, job.work_dir)
        most = min(job.batch_size[0] or QUERIES_PER_BATCH, QUERIES_PER_BATCH)
        wishes = PackOptions(settings, most, self.with_queries, verify=self.verify)
        print_message = partial(_print_message, job)
        keep = self.keep or supervised
        with pack_destinations.explain_write_errors(self.dest):
            finished, packed = live_packing.run_and_pack(plan, self.dest, wishes, print_message, carry_out, keep=keep)
        if packed:
            print_message(packed.describe_packing(self.dest))
        # The run directory, of which the text tells, is gone or of no use to the user.
        return msgspec.structs.replace(finished, text="") if finished.code == ExitCode.DONE else finished
