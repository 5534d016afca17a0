"""A job in phases from end to end: claim its folder, plan, run the phases, clean up."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from millrace import lock
from millrace.errors import ExitCode, MillraceError, RefusedError
from millrace.interrupt import Interrupt
from millrace.launch.allocation import Allocation
from millrace.lock import HeldError
from millrace.own import why_not_own
from millrace.plan import cores
from millrace.plan.plan import Plan
from millrace.rundir import delete, write_whole
from millrace.sealed import seal, unseal
from millrace.session.claim import taken_over
from millrace.waiting import until
from millrace.words import count
from millrace.workflow import done_files, ended, member
from millrace.workflow.conduct import Conductor
from millrace.workflow.description import Workflow
from millrace.workflow.folder import DONE, LOG, MANIFEST, VERSION, Manifest, last_sign, note_killed
from millrace.workflow.log import Log
from millrace.workflow.planned import Here, Planned, changed, parts, prints
from millrace.workflow.planning import make, plan_all

#: Seconds that phases have to end after their main process was killed, and seconds between checks.
LAST_PHASES_SECONDS, LOOK_SECONDS = 30.0, 0.05


def folder_of(flow: Workflow, file: Path, cwd: Path) -> Path:
    """Return the folder of a workflow: ``run-dir``, or the name of the job file with ``.millrace``."""
    return cwd / (flow.job.run_dir or f"{file.stem}.millrace")


def plan(
    flow: Workflow, file: Path, cwd: Path, environ: Mapping[str, str], nodes: Allocation | None = None
) -> tuple[list[Planned], Here]:
    """Plan all phases without leaving any file.

    Args:
        nodes: Nodes that run the commands; None: this node alone.

    Raises:
        MillraceError: A phase cannot be run.
    """
    here = Here(cwd, environ, folder_of(flow, file, cwd), nodes)
    here.is_done = not here.folder.is_dir() and done_files.are_as_noted(flow, here)
    phases = plan_all(flow, here)
    here.undo()
    return phases, here


def plan_of_rank(flow: Workflow, file: Path, cwd: Path, environ: Mapping[str, str], name: str) -> Plan:
    """Plan one phase on several nodes, in each of its ranks.

    Raises:
        MillraceError: The phase cannot be run.
    """
    phase = flow.phase(name)
    return make(phase, phase.job, {}, Here(cwd, environ, folder_of(flow, file, cwd)))


def run(
    flow: Workflow, file: Path, cwd: Path, environ: Mapping[str, str], nodes: Allocation | None = None,
    look: Callable[[bool], None] = lambda _: None,
) -> int:  # fmt: skip
    """Run a workflow, or resume an earlier start, and return the exit code.

    Args:
        nodes: Nodes that run the commands; None: this node alone.
        look: Called at least every 0.2 s while phases run, with whether no phase is running.

    Raises:
        MillraceError: The workflow cannot begin.
    """
    here = Here(cwd, environ, folder_of(flow, file, cwd), nodes, loads_functions=True)
    was_there = here.folder.is_dir()
    if not was_there and not flow.job.fresh and done_files.are_as_noted(flow, here):
        if flow.job.verbosity >= 0:
            member.say(f"already done: an earlier start wrote everything, {count(len(flow.phases), 'phase')}")
        return ExitCode.DONE
    if was_there and not flow.job.fresh:
        _check_same(flow, here)
    elif was_there:
        _check_ours(here.folder)
    phases = [] if was_there else plan_all(flow, here)  # a refused job leaves no folder
    killed_at = last_sign(here.folder)
    held = _take(here)
    held.keep(taken_over(here.folder))
    try:
        if was_there:
            if flow.job.fresh:
                _forget(here.folder)
            else:
                note_killed(here.folder, killed_at)  # now, as claiming the lock has overwritten the last sign of life
            phases = plan_all(flow, here)
        code = _conduct(flow, phases, here, look)
        with suppress(OSError):  # unreadable logs
            ended.remember(file, here, code)
        return code
    finally:
        held.close()
        here.undo()
        _remove_if_done(here.folder)


def _check_ours(folder: Path) -> None:
    """Refuse a folder that holds other files than those of a workflow."""
    if not (folder / MANIFEST).exists() and {*os.listdir(folder)} - {"lock"}:
        raise RefusedError(f"{folder}: holds something else than this job", "name another folder with --run-dir")


def _check_same(flow: Workflow, here: Here) -> None:
    """Refuse to resume if the workflow differs from that of the earlier start."""
    _check_ours(here.folder)
    if not (here.folder / MANIFEST).exists():
        return
    earlier = unseal(here.folder / MANIFEST, Manifest, "the manifest of a job in phases", VERSION)
    if earlier.cwd != str(here.cwd):
        raise RefusedError(f"{here.folder}: was begun in {earlier.cwd}", "go on there, or name another --run-dir")
    if found := changed(earlier.phases, parts(flow, here.cwd)):
        raise RefusedError(
            f"{here.folder}: was begun otherwise: {'; '.join(found)}",
            "put back what was there and type the same command again, or start all phases over: the same command with --fresh",
        )


def _take(here: Here) -> lock.Lock:
    """Make the folder of the workflow and lock it, waiting for phases of a killed start.

    Raises:
        RefusedError: It is in use, another user's, or cannot be written.
    """
    folder, held = here.folder, list[lock.Lock]()

    def look() -> bool:
        folder.mkdir(0o700, parents=True, exist_ok=True)
        if why := why_not_own(folder):
            raise RefusedError(f"{folder}: {why}", "name another folder with --run-dir")
        try:
            held.append(lock.take(folder / "lock"))
        except HeldError as error:
            # Phases end shortly after their main process was killed.
            if not (error.owner and error.owner.host == os.uname().nodename and not _lives(error.owner.pid)):
                raise
        return bool(held)

    try:
        if not until(look, LAST_PHASES_SECONDS, nap=LOOK_SECONDS):
            raise RefusedError(f"{folder}: phases of an earlier start still run", "wait for their end")
    except HeldError as error:
        raise RefusedError(f"{folder}: another millrace ({error.words}) is running this now", "wait for it") from error
    except OSError as error:
        raise RefusedError(f"{folder}: {error.strerror}", "name a place that can be written with --run-dir") from error
    return held[0]


def _lives(pid: int) -> bool:
    """Tell whether a process exists on this machine."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _forget(folder: Path) -> None:
    """Remove the files of an earlier workflow; the manifest first, as without it nothing else counts."""
    delete(folder / MANIFEST)
    for name in os.listdir(folder):
        if name != "lock":
            delete(folder / name)


def _conduct(flow: Workflow, phases: list[Planned], here: Here, look: Callable[[bool], None]) -> int:
    """Run the planned phases, print their standard output, and return the exit code."""
    found = parts(flow, here.cwd)
    if not (here.folder / MANIFEST).exists():
        _forget(here.folder)
        now = Manifest(version=VERSION, cwd=str(here.cwd), phases=found)
        write_whole(here.folder / MANIFEST, seal(now))
    (here.folder / done_files.NAME).unlink(missing_ok=True)
    slots = flow.job.slots or here.slots or cores.usable(here.environ)[0]
    conductor = Conductor(phases, here, slots, prints(found), Log(here.folder / LOG))
    quiet = flow.job.verbosity < 0
    with Interrupt() as interrupt:
        code = conductor.run(interrupt, look)
    here.made.clear()
    if code >= 128:
        member.say(
            f"stopped; everything done so far is kept in {here.folder}\n\nhint: type the same command again: it resumes"
        )
        return code
    if code in (ExitCode.DONE, ExitCode.QUARANTINED):
        has_printed = conductor.print_outputs(sys.stdout.buffer)
        if not quiet:
            member.say(f"{count(len(phases), 'phase')} done")
        if code == ExitCode.DONE and not has_printed:  # printed output cannot be compared later
            with suppress(OSError, MillraceError):
                done_files.note(phases, here)
    if code == ExitCode.DONE and not flow.job.keep_run_dir:
        write_whole(here.folder / DONE, b"")
    return code


def _remove_if_done(folder: Path) -> None:
    """Remove the folder of a workflow that is done or has not begun; the file ``done`` last."""
    if (folder / DONE).exists() or not (folder / MANIFEST).exists():
        for name in os.listdir(folder) if folder.is_dir() else ():
            if name != DONE:
                delete(folder / name)
        delete(folder / DONE)
        folder.rmdir()
