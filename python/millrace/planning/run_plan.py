"""The plan of a run: all decisions from a job, with their reasons.

Refuses commands without an exact result. Among the decisions are the number of slots, the threads of each, and the
warm start of a tool (``millrace run --warm``): it is started once a slot, and forked for each task.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

from millrace.adapters import registry
from millrace.core.errors import RefusedError
from millrace.core.job import JobSpec
from millrace.core.replica_rules import is_url
from millrace.core.text_format import format_count
from millrace.core.tool_use import FrozenValue, RecordProtocol, RemoteFileView, ToolUse, UserCommand
from millrace.host import core_allocation, permissions
from millrace.planning import (
    dependency_files,
    folder_view,
    input_sniffing,
    kept_files,
    result_fingerprint,
    work_dir_location,
)
from millrace.planning.command_recognition import recognise_command
from millrace.planning.file_checks import (
    can_bring_data,
    check_inputs,
    check_outputs,
    check_own_file,
    check_pipes,
    check_record_boundaries,
    detect_input_formats,
    resolve_record_files,
)
from millrace.planning.fragment_planning import plan_fragments, should_sample_queries
from millrace.planning.input_sniffing import add_query_sizes, sample_queries
from millrace.planning.program_lookup import (
    check_script,
    check_starters,
    describe_check,
    describe_untested_version,
    find_program,
)
from millrace.rundir import run_history
from millrace.scheduler.batch_sizing import CostModel


def count_slots(job: JobSpec, use: ToolUse, environ: Mapping[str, str]) -> tuple[ToolUse, int, str]:
    """Return ``use`` with the threads of each task, the number of slots, and the reason in words."""
    n_cores, source = core_allocation.count_usable_cores(environ)
    if not use.threads:
        slots = job.slots or 1
        use = set_threads(use, max(1, n_cores // slots))
        asked = "as asked" if job.slots else f"as {use.adapter} itself spreads its work over all cores ({source})"
        return use, slots, f"slots: {slots} of {format_count(use.threads, 'thread')}, {asked}"
    return use, *_count_slots_by_threads(job, use, n_cores, source)


def set_threads(use: ToolUse, threads: int) -> ToolUse:
    """Set the threads of a tool that uses as many as it gets; they share the cost of its start."""
    cost = msgspec.structs.replace(use.cost, startup_seconds=use.cost.startup_seconds / threads)
    return msgspec.structs.replace(use, threads=threads, cost=cost)


def _count_slots_by_threads(job: JobSpec, use: ToolUse, n_cores: int, source: str) -> tuple[int, str]:
    if job.slots:
        more = f"; {use.threads} threads each" if use.threads > 1 else ""
        over = "" if job.slots * use.threads <= n_cores else f" (more than the {n_cores} cores there are)"
        return job.slots, f"slots: {job.slots}, as asked{more}{over}"
    slots = max(1, n_cores // use.threads)
    if use.threads > 1:
        return slots, (
            f"slots: {slots} of {use.threads} threads each on {n_cores} cores ({source}); "
            "without the tool's own threads every core would have a slot, which is usually faster"
        )
    return slots, f"slots: {slots} ({source})"


def apply_warm_start(job: JobSpec, use: ToolUse) -> tuple[ToolUse, str, str]:
    """Mark a use for a warm start; return it, a note for the plan, and a warning for the start of the run.

    Raises:
        RefusedError: The program stays alive anyway.
    """
    if not job.warm:
        return use, "", ""
    if use.served:
        raise RefusedError("--warm with --records: the program stays alive anyway", "leave --warm out")
    if why := _explain_cold_start(use):
        return use, "", f"it cannot stay warm (--warm), and is started for each task: {why}"
    note = "warm: one process a slot starts, waits where it first touches its input, and is forked for each task"
    return msgspec.structs.replace(use, warm=True), note, ""


def _explain_cold_start(use: ToolUse) -> str:
    """Explain why the tool cannot stay warm, in words; empty: no reason is known."""
    if use.fragmented:
        return "its database is searched in fragments (--fragments 1 searches it whole)"
    if any(item.stdin for item in use.inputs):
        return "it reads its standard input, not a file"
    if any(item.format == "files" for item in use.inputs) or any(output.layout == "record" for output in use.outputs):
        return "each task has files of other names"
    return ""


class RunPlan(FrozenValue, frozen=True):
    """All decisions that are made before the run."""

    job: JobSpec
    command: UserCommand
    use: ToolUse
    slots: int
    run_dir: Path
    #: Folder for the work directory, if this is the only process.
    work_place: Path
    #: Fingerprints of inputs, databases and program.
    fingerprints: dict[str, str]
    notes: tuple[str, ...]
    #: Inputs, databases and program as they were then.
    world: tuple[dependency_files.DependencyFile, ...]
    #: Key under which ``millrace.planning.result_fingerprint`` keeps the cost of tasks; empty: it is of no use to another run.
    cost_key: str = ""
    #: Notes that are printed at the start of a run, too.
    warnings: tuple[str, ...] = ()
    #: The view of the working folder that tasks get, in words; empty: the folder itself.
    view: str = ""
    #: Whether `millrace runs` lists it: false for the steps of another run.
    listed: bool = True


def make_plan(
    job: JobSpec, cwd: Path, environ: Mapping[str, str], *, launched: bool = False, spread: bool = False, view: RemoteFileView | None = None,
    growing: frozenset[str] = frozenset(),
) -> RunPlan:  # fmt: skip
    """Decide everything that can be decided before the first record is read.

    Args:
        launched: Whether an MPI launcher has started this process; its standard input is then a pipe in any case.
        spread: Whether the run has several nodes.
        view: Places of the files behind the command's URLs.
        growing: Inputs that another phase still writes; see ``UserCommand``.

    Raises:
        RefusedError: The command cannot be computed exactly, or not at all.
        ToolError: The program is not found.
    """
    try:
        return _make_plan(job, cwd, environ, launched, spread, view, growing)
    except OSError as error:
        # A name that is too long, an unreadable folder, a disk that fails.
        raise RefusedError(
            f"{os.fsdecode(error.filename or '')}: {error.strerror or error}", "check this path"
        ) from error


def _make_plan(
    job: JobSpec,
    cwd: Path,
    environ: Mapping[str, str],
    launched: bool,
    spread: bool,
    view: RemoteFileView | None,
    growing: frozenset[str],
) -> RunPlan:
    if job.dask:
        from millrace.planning.dask_checks import prepare_dask_job  # few runs need it

        job = prepare_dask_job(job)
    command = UserCommand(
        argv=job.command, cwd=cwd, environ=dict(environ), exe=find_program(job.find_program(os.uname().machine), cwd, environ, job.command),
        inputs=job.input, outputs=job.output, joins=job.join, shared=job.shared, ok_statuses=job.ok_status, records=job.records, format=job.format or ("regex" if job.record_start or job.record_end else ""),
        stdin_is_data=can_bring_data(0, pipes=not launched or not job.input or any(re.match("-(:|$)", each) for each in job.input)),
        view=view, growing=growing, known_as=job.known_as,
    )  # fmt: skip
    if not job.input:
        check_starters(job.command, environ, filters=command.stdin_is_data)
    seen = command.resolved_command
    adapter, use, program_note = recognise_command(seen)
    use = resolve_record_files(use, seen)
    check_join_option(job, use)
    check_ok_statuses(job, use)
    check_inputs(use, seen)
    check_pipes(use, seen)
    files = dependency_files.stat_run_files(use, seen)  # before their content is read for decisions
    use = detect_input_formats(use, seen)
    check_script(job, use, seen)
    begin = tuple(input_sniffing.read_input_heads(use, seen))
    input_sniffing.refuse_old_mac(begin)
    input_sniffing.refuse_bcf(begin)
    input_sniffing.refuse_missing_content(use, seen)
    use = input_sniffing.mark_compressed_inputs(use, begin, seen)
    warnings = (
        *input_sniffing.describe_compressed_inputs(use),
        *describe_untested_version(use, job, Path(job.command[0]).name),
    )
    check_record_boundaries(job, use)
    if use.served:
        use = msgspec.structs.replace(
            use, served=RecordProtocol(record_start=job.record_start, record_end=job.record_end)
        )
    check_outputs(use, command)
    if job.metrics:
        from millrace.report.openmetrics import check_metrics_path  # few runs need it

        check_own_file(cwd / job.metrics, "--metrics", use, command)
        check_metrics_path(cwd / job.metrics)
    use, slots, why = count_slots(job, use, environ)
    if job.dask:
        why = f"slots: those of the Dask workers at {job.dask}, one for each thread of a worker that the tool uses"
    queries = (
        sample_queries(use.inputs[0], seen.cwd) if not growing and should_sample_queries(job, use, adapter) else None
    )
    use, in_parts = plan_fragments(job, use, seen, adapter, slots, queries, spread=spread)
    if queries:
        use = msgspec.structs.replace(use, cost=add_query_sizes(use.cost, queries))
    use, warm, cold = apply_warm_start(job, use)
    warnings = (*warnings, *filter(None, [cold]))
    kept = "" if job.profile_io == "files" else kept_files.describe_kept_files(use, seen.cwd, slots)
    prints = result_fingerprint.fingerprint_run(job, use, seen)
    stored, unstored = locate_in_store(job, use, seen, prints)
    run_dir = run_history.choose_run_dir(job.run_dir, use, job.command, cwd, environ, stored)
    key = result_fingerprint.digest_cost_key(use, prints)
    if found := result_fingerprint.recall_learnt_cost(key, environ) if key else None:
        use = msgspec.structs.replace(use, cost=msgspec.structs.replace(use.cost, learnt=found))
    work = work_dir_location.choose_work_place(job.work_dir, slots, cwd, CostModel(use.cost).compute_max_bytes(slots))
    work, unseen = work_dir_location.choose_place_with_view(work, cwd, fixed=bool(job.work_dir))
    shown = folder_view.describe_folder_view(use, "--warm" if use.warm else unseen, job.verify)
    use, whole = apply_atomic_outputs(job, use, cwd, environ)
    warnings = (*warnings, *filter(None, [unstored]))
    return RunPlan(
        job=job, command=command, use=use, slots=slots, run_dir=run_dir, work_place=work.path, fingerprints=prints, cost_key="" if use.warm else key,  # a warm start hides the cost of starts
        notes=tuple(filter(None, (program_note, *use.notes, *warnings, why, describe_batch_size(job, use), describe_check(job, use), in_parts, warm, kept, shown, whole, f"work directory: in {work.path}, {work.why}"))),
        warnings=warnings, view=shown,
        world=files,
    )  # fmt: skip


def locate_in_store(
    job: JobSpec, use: ToolUse, command: UserCommand, fingerprints: Mapping[str, str]
) -> tuple[str, str]:
    """Return the path of the run in the user's store, without suffix, and why there is none, in words.

    Both are empty if the user has no store of this machine, or has named the run directory.
    """
    if not job.store or job.run_dir or is_url(job.store):
        return "", ""
    folder = command.cwd / job.store
    if folder.exists() and not os.access(folder, os.W_OK):
        is_readable = os.access(folder, os.R_OK | os.X_OK)
        return "", f"{job.store}: cannot be written, so it is only read" if is_readable else ""
    if folder.exists() and permissions.find_ownership_problem(folder):
        return "", ""  # a group's, in which another member may run the same command
    if not result_fingerprint.has_all_fingerprints(use, command, fingerprints):
        return "", f"{job.store}: not used: what comes from a pipe is not known before it is read"
    from millrace.planning import run_identity  # few runs need it at the start

    planned = run_identity.PlannedRun(
        argv=command.argv, cwd=str(command.cwd), use=use, record_start=job.record_start, record_end=job.record_end,
        fingerprints=dict(fingerprints),
    )  # fmt: skip
    return os.path.join(job.store, f"{command.tool}-{run_identity.digest_identity(planned)}"), ""


#: Variables that workflow engines set for their tasks.
PIPELINE_MARKS = ("NXF_TASK_WORKDIR", "_GALAXY_JOB_DIR", "GALAXY_SLOTS", "GOTO_NUM_THREADS", "MAKELEVEL")


def apply_atomic_outputs(job: JobSpec, use: ToolUse, cwd: Path, environ: Mapping[str, str]) -> tuple[ToolUse, str]:
    """Return ``use`` with the places where outputs grow until they are whole, and a note for the plan."""
    if not job.atomic_output and (job.atomic_output is not None or not any(name in environ for name in PIPELINE_MARKS)):
        return use, ""
    from millrace.planning.atomic_outputs import mark_atomic_outputs  # only for these

    return mark_atomic_outputs(job.atomic_output, use, cwd, environ)


def check_join_option(job: JobSpec, use: ToolUse) -> None:
    """Refuse ``--join`` for tools with an adapter of their own; it may replace the joins of a description."""
    if job.join and (use.adapter == "records" or use.adapter in registry.FAMILIES):
        raise RefusedError(
            f"--join {job.join[0]}: millrace knows how the outputs of {job.command[0]} are joined", "leave --join out"
        )


def check_ok_statuses(job: JobSpec, use: ToolUse) -> None:
    """Refuse ``--ok-status`` for a known tool, whose adapter knows which exit statuses are failures."""
    if job.ok_status and use.adapter != "generic":
        raise RefusedError(
            f"--ok-status {job.ok_status[0]}: millrace knows what the exit statuses of {job.command[0]} say",
            "leave --ok-status out",
        )


def describe_batch_size(job: JobSpec, use: ToolUse) -> str:
    """Describe how batches get their size, in words."""
    records, size = job.batch_size
    if records:
        return f"batches: {records} records each, as asked"
    if size:
        return f"batches: {size} bytes each, as asked"
    if use.cost.max_records == 1:
        return "batches: one record each, as the tool takes one at a time"
    how = f"batches: sized from the measured time per {use.cost.unit.rstrip('s')}, large first, small at the end"
    if use.cost.learnt or use.cost.start_units:
        source = "as earlier runs showed" if use.cost.learnt else "by the size of its database"
        return f"{how}; a start takes about {CostModel(use.cost).startup:.2g} s, {source}"
    return how
