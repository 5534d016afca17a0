"""The plan of a run: all decisions from a job, with their reasons. Refuses commands without an exact result."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

from millrace.errors import RefusedError
from millrace.job import JobSpec
from millrace.model import FrozenValue, RecordProtocol, RemoteFileView, ToolUse, UserCommand
from millrace.plan import fingerprint, folder_view, heads, learnt, run_place, workplace, world
from millrace.plan.doubts import check_script, describe_check, describe_untested_version
from millrace.plan.first_word import check_starters
from millrace.plan.in_fragments import plan_fragments, should_sample_queries
from millrace.plan.inputs import (
    can_bring_data,
    check_inputs,
    check_pipes,
    check_record_boundaries,
    detect_input_formats,
    resolve_record_files,
)
from millrace.plan.outputs import check_outputs
from millrace.plan.programs import find_program
from millrace.plan.queries import add_query_sizes, sample_queries
from millrace.plan.recognition import recognise_command
from millrace.plan.slots import count_slots
from millrace.plan.warm import apply_warm_start
from millrace.schedule.sizing import CostModel
from millrace.tools import registry


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
    world: tuple[world.DependencyFile, ...]
    #: Key under which ``millrace.plan.learnt`` keeps the cost of tasks; empty: it is of no use to another run.
    cost_key: str = ""
    #: Notes that are printed at the start of a run, too.
    warnings: tuple[str, ...] = ()
    #: The view of the working folder that tasks get, in words; empty: the folder itself.
    view: str = ""
    #: Whether `millrace runs` lists it: false for the steps of another run.
    listed: bool = True


def make_plan(
    job: JobSpec, cwd: Path, environ: Mapping[str, str], *, launched: bool = False, view: RemoteFileView | None = None,
    growing: frozenset[str] = frozenset(),
) -> RunPlan:  # fmt: skip
    """Decide everything that can be decided before the first record is read.

    Args:
        launched: Whether an MPI launcher has started this process; its standard input is then a pipe in any case.
        view: Places of the files behind the command's URLs.
        growing: Inputs that another phase still writes; see ``UserCommand``.

    Raises:
        RefusedError: The command cannot be computed exactly, or not at all.
        ToolError: The program is not found.
    """
    try:
        return _make_plan(job, cwd, environ, launched, view, growing)
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
    view: RemoteFileView | None,
    growing: frozenset[str],
) -> RunPlan:
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
    files = world.stat_run_files(use, seen)  # before their content is read for decisions
    use = detect_input_formats(use, seen)
    check_script(job, use, seen)
    begin = tuple(heads.read_input_heads(use, seen))
    heads.refuse_old_mac(begin)
    heads.refuse_bcf(begin)
    use = heads.mark_compressed_inputs(use, begin, seen)
    warnings = (*heads.describe_compressed_inputs(use), *describe_untested_version(use, job, Path(job.command[0]).name))
    check_record_boundaries(job, use)
    if use.served:
        use = msgspec.structs.replace(
            use, served=RecordProtocol(record_start=job.record_start, record_end=job.record_end)
        )
    check_outputs(use, command)
    use, slots, why = count_slots(job, use, environ)
    queries = (
        sample_queries(use.inputs[0], seen.cwd) if not growing and should_sample_queries(job, use, adapter) else None
    )
    use, in_parts = plan_fragments(job, use, seen, adapter, slots, queries)
    if queries:
        use = msgspec.structs.replace(use, cost=add_query_sizes(use.cost, queries))
    use, warm, cold = apply_warm_start(job, use)
    warnings = (*warnings, *filter(None, [cold]))
    run_dir = run_place.choose_run_dir(job.run_dir, use, job.command, cwd, environ)
    prints = fingerprint.fingerprint_run(job, use, seen)
    key = fingerprint.digest_cost_key(use, prints)
    if found := learnt.recall_learnt_cost(key, environ) if key else None:
        use = msgspec.structs.replace(use, cost=msgspec.structs.replace(use.cost, learnt=found))
    work = workplace.choose_work_place(job.work_dir, slots, cwd, CostModel(use.cost).compute_max_bytes(slots))
    work, unseen = workplace.choose_place_with_view(work, cwd, fixed=bool(job.work_dir))
    shown = folder_view.describe_folder_view(use, "--warm" if use.warm else unseen, job.verify)
    return RunPlan(
        job=job, command=command, use=use, slots=slots, run_dir=run_dir, work_place=work.path, fingerprints=prints, cost_key="" if use.warm else key,  # a warm start hides the cost of starts
        notes=tuple(filter(None, (program_note, *use.notes, *warnings, why, describe_batch_size(job, use), describe_check(job, use), in_parts, warm, shown, f"work directory: in {work.path}, {work.why}"))),
        warnings=warnings, view=shown,
        world=files,
    )  # fmt: skip


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
