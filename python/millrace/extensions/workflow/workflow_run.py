"""A job in phases from end to end: claim its folder, plan, run the phases, clean up; its drawing."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from millrace.core.errors import ExitCode, MillraceError, RefusedError
from millrace.core.text_format import format_count
from millrace.core.wait_loop import wait_until
from millrace.execution.run_claim import make_takeover_handler
from millrace.extensions.workflow import phase_process, workflow_folder
from millrace.extensions.workflow.phase_conductor import PhaseConductor
from millrace.extensions.workflow.phase_planning import make_phase_plan, plan_phases
from millrace.extensions.workflow.planned_phases import (
    PlannedPhase,
    WorkflowContext,
    describe_changes,
    digest_phase_parts,
    digest_phases,
)
from millrace.extensions.workflow.workflow_description import WorkflowDescription
from millrace.extensions.workflow.workflow_folder import (
    DONE,
    LOG,
    MANIFEST,
    VERSION,
    PhaseLog,
    WorkflowManifest,
    log_killed_phases,
    read_last_sign_of_life,
)
from millrace.host import core_allocation, file_lock
from millrace.host.file_lock import LockHeldError
from millrace.host.permissions import find_ownership_problem
from millrace.host.signals import StopSignals
from millrace.launch import node_allocation
from millrace.launch.node_allocation import NodeAllocation
from millrace.planning.run_plan import RunPlan
from millrace.rundir.checksummed_json import encode_checksummed, read_checksummed
from millrace.rundir.paths import delete_entry, write_atomically

#: What is said where the user has a store.
WITHOUT_STORE = "store: not used: a job in phases keeps what it needs in a folder of its own"

#: Seconds that phases have to end after their main process was killed, and seconds between checks.
MAX_PHASE_END_SECONDS, POLL_INTERVAL_SECONDS = 30.0, 0.05


def locate_job_folder(flow: WorkflowDescription, file: Path, cwd: Path) -> Path:
    """Return the folder of a workflow: ``run-dir``, or the name of the job file with ``.millrace``."""
    return cwd / (flow.job.run_dir or f"{file.stem}.millrace")


def plan_workflow(
    flow: WorkflowDescription, file: Path, cwd: Path, environ: Mapping[str, str], nodes: NodeAllocation | None = None
) -> tuple[list[PlannedPhase], WorkflowContext]:
    """Plan all phases without leaving any file.

    Args:
        nodes: Nodes that run the commands; None: this node alone.

    Raises:
        MillraceError: A phase cannot be run.
    """
    here = WorkflowContext(cwd, environ, locate_job_folder(flow, file, cwd), nodes)
    here.is_done = not here.folder.is_dir() and workflow_folder.is_still_done(flow, here)
    phases = plan_phases(flow, here)
    here.remove_made_paths()
    return phases, here


def plan_rank_phase(flow: WorkflowDescription, file: Path, cwd: Path, environ: Mapping[str, str], name: str) -> RunPlan:
    """Plan one phase on several nodes, in each of its ranks.

    Raises:
        MillraceError: The phase cannot be run.
    """
    phase = flow.get_phase(name)
    return make_phase_plan(phase, phase.job, {}, WorkflowContext(cwd, environ, locate_job_folder(flow, file, cwd)))


def run_workflow(
    flow: WorkflowDescription, file: Path, cwd: Path, environ: Mapping[str, str], nodes: NodeAllocation | None = None,
    look: Callable[[bool], None] = lambda _: None, piped: bytes = b"",
) -> int:  # fmt: skip
    """Run a workflow, or resume an earlier start, and return the exit code.

    Args:
        nodes: Nodes that run the commands; None: this node alone.
        look: Called at least every 0.2 s while phases run, with whether no phase is running.
        piped: Content of a job file that came on standard input, which ranks cannot read again; empty: it did not.

    Raises:
        MillraceError: The workflow cannot begin.
    """
    here = WorkflowContext(cwd, environ, locate_job_folder(flow, file, cwd), nodes, loads_functions=True)
    was_there = here.folder.is_dir()
    if not was_there and not flow.job.fresh and workflow_folder.is_still_done(flow, here):
        if flow.job.verbosity >= 0:
            phase_process.print_message(
                f"already done: an earlier start wrote everything, {format_count(len(flow.phases), 'phase')}"
            )
        return ExitCode.DONE
    if was_there and not flow.job.fresh:
        _check_same_workflow(flow, here)
    elif was_there:
        _check_folder_content(here.folder)
    phases = [] if was_there else plan_phases(flow, here)  # a refused job leaves no folder
    killed_at = read_last_sign_of_life(here.folder)
    held = _claim_folder(here)
    held.start_heartbeat(make_takeover_handler(here.folder))
    try:
        if was_there:
            if flow.job.fresh:
                _remove_earlier_results(here.folder)
            else:
                log_killed_phases(
                    here.folder, killed_at
                )  # now, as claiming the lock has overwritten the last sign of life
            phases = plan_phases(flow, here)
        found = _begin_workflow(flow, here)
        if piped and nodes:
            _save_piped_job(piped, file, here)
        code = _conduct_phases(flow, phases, here, look, digest_phases(found))
        with suppress(OSError):  # unreadable logs
            workflow_folder.save_job_history(file, here, code)
        return code
    finally:
        held.close()
        here.remove_made_paths()
        _remove_done_folder(here.folder)


def _save_piped_job(content: bytes, file: Path, here: WorkflowContext) -> None:
    """Save a job file that came on standard input in the folder of the workflow, and let the ranks read it there."""
    place = here.folder / file.name
    write_atomically(place, content)
    here.rank_words = (*(word for word in sys.argv[1:] if word != "-"), str(place))


def _check_folder_content(folder: Path) -> None:
    """Refuse a folder that holds other files than those of a workflow."""
    if not (folder / MANIFEST).exists() and {*os.listdir(folder)} - {"lock"}:
        raise RefusedError(f"{folder}: holds something else than this job", "name another folder with --run-dir")


def _check_same_workflow(flow: WorkflowDescription, here: WorkflowContext) -> None:
    """Refuse to resume if the workflow differs from that of the earlier start."""
    _check_folder_content(here.folder)
    if not (here.folder / MANIFEST).exists():
        return
    earlier = read_checksummed(here.folder / MANIFEST, WorkflowManifest, "the manifest of a job in phases", VERSION)
    if earlier.cwd != str(here.cwd):
        raise RefusedError(f"{here.folder}: was begun in {earlier.cwd}", "go on there, or name another --run-dir")
    if found := describe_changes(earlier.phases, digest_phase_parts(flow, here.cwd)):
        raise RefusedError(
            f"{here.folder}: was begun otherwise: {'; '.join(found)}",
            "put back what was there and type the same command again, or start all phases over: the same command with --fresh",
        )


def _claim_folder(here: WorkflowContext) -> file_lock.FileLock:
    """Make the folder of the workflow and lock it, waiting for phases of a killed start.

    Raises:
        RefusedError: It is in use, another user's, or cannot be written.
    """
    folder, held = here.folder, list[file_lock.FileLock]()

    def try_claim() -> bool:
        folder.mkdir(0o700, parents=True, exist_ok=True)
        if why := find_ownership_problem(folder):
            raise RefusedError(f"{folder}: {why}", "name another folder with --run-dir")
        try:
            held.append(file_lock.acquire_lock(folder / "lock"))
        except LockHeldError as error:
            # Phases end shortly after their main process was killed.
            if not (error.owner and error.owner.host == os.uname().nodename and not _is_alive(error.owner.pid)):
                raise
        return bool(held)

    try:
        if not wait_until(try_claim, MAX_PHASE_END_SECONDS, nap=POLL_INTERVAL_SECONDS):
            raise RefusedError(f"{folder}: phases of an earlier start still run", "wait for their end")
    except LockHeldError as error:
        raise RefusedError(f"{folder}: another millrace ({error.words}) is running this now", "wait for it") from error
    except OSError as error:
        raise RefusedError(f"{folder}: {error.strerror}", "name a place that can be written with --run-dir") from error
    return held[0]


def _is_alive(pid: int) -> bool:
    """Tell whether a process exists on this machine."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _remove_earlier_results(folder: Path) -> None:
    """Remove the files of an earlier workflow; the manifest first, as without it nothing else counts."""
    delete_entry(folder / MANIFEST)
    for name in os.listdir(folder):
        if name != "lock":
            delete_entry(folder / name)


def _begin_workflow(flow: WorkflowDescription, here: WorkflowContext) -> dict[str, dict[str, str]]:
    """Write the manifest if this is the first start, and return the digests of the phases."""
    found = digest_phase_parts(flow, here.cwd)
    if not (here.folder / MANIFEST).exists():
        _remove_earlier_results(here.folder)
        now = WorkflowManifest(version=VERSION, cwd=str(here.cwd), phases=found)
        write_atomically(here.folder / MANIFEST, encode_checksummed(now))
    (here.folder / workflow_folder.NAME).unlink(missing_ok=True)
    return found


def _conduct_phases(
    flow: WorkflowDescription, phases: list[PlannedPhase], here: WorkflowContext, look: Callable[[bool], None], prints: dict[str, str]
) -> int:  # fmt: skip
    """Run the planned phases, print their standard output, and return the exit code.

    Args:
        prints: A digest for each phase.
    """
    slots = flow.job.slots or here.slots or core_allocation.count_usable_cores(here.environ)[0]
    conductor = PhaseConductor(phases, here, slots, prints, PhaseLog(here.folder / LOG))
    quiet = flow.job.verbosity < 0
    with StopSignals() as interrupt:
        code = conductor.run(interrupt, look)
    here.made.clear()
    if code >= 128:
        phase_process.print_message(
            f"stopped; everything done so far is kept in {here.folder}\n\nhint: type the same command again: it resumes"
        )
        return code
    if code in (ExitCode.DONE, ExitCode.QUARANTINED):
        has_printed = conductor.print_outputs(sys.stdout.buffer)
        if not quiet:
            phase_process.print_message(f"{format_count(len(phases), 'phase')} done")
        if code == ExitCode.DONE and not has_printed:  # printed output cannot be compared later
            with suppress(OSError, MillraceError):
                workflow_folder.save_done_files(phases, here)
    if code == ExitCode.DONE and not flow.job.keep_run_dir:
        write_atomically(here.folder / DONE, b"")
    return code


def _remove_done_folder(folder: Path) -> None:
    """Remove the folder of a workflow that is done or has not begun; the file ``done`` last."""
    if (folder / DONE).exists() or not (folder / MANIFEST).exists():
        for name in os.listdir(folder) if folder.is_dir() else ():
            if name != DONE:
                delete_entry(folder / name)
        delete_entry(folder / DONE)
        folder.rmdir()


def draw_workflow(described: WorkflowDescription, file: Path, cwd: Path) -> str:
    """Plan a job in phases and draw it, for ``millrace plan``.

    Raises:
        MillraceError: A phase cannot be run.
    """
    nodes = node_allocation.find_node_allocation(described.job.hosts, os.environ)
    phases, here = plan_workflow(described, file, cwd, os.environ, nodes)
    lines = [f"commands run on {format_count(len(nodes.nodes), 'node')} of {nodes.words}"] if nodes else []
    lines += [line for planned in phases for line in _draw_phase(planned)]
    there = " (exists: the job would resume)" if here.folder.exists() else ""
    return "\n".join([*lines, f"folder:    {here.folder}{there}", ""])


def _draw_phase(planned: PlannedPhase) -> Iterator[str]:
    """Yield the lines of one phase."""
    phase = planned.phase
    what = shlex.join(phase.job.command) if phase.kind == "command" else f"{phase.kind}: {phase.text}"
    yield f"[{phase.name}] {what}"
    for output, by in planned.streams.items():
        yield f"  <-- {output} from [{by}], record by record"
    for by, why in planned.waits.items():
        yield f"  waits for the end of [{by}]: {why}"
    for output in planned.outputs:
        yield f"  --> {output}{'/' if output in planned.folders else ''}"
    if planned.plan:
        yield f"  known as {planned.plan.use.adapter}, {planned.plan.slots} slots"
    elif phase.kind == "command":
        yield "  planned once these have ended"
