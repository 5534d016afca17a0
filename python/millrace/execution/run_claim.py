"""Takeover of a run directory: no other run has it, and this process continues the results of earlier starts."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import msgspec

from millrace.core.errors import ExitCode, LostError, MillraceError
from millrace.core.wait_loop import wait_until
from millrace.execution.resume import FinishedRun, begin_or_resume_run, has_all_outputs, restore_fragments
from millrace.host.file_lock import FileLock
from millrace.host.signals import StoppedBySignalError
from millrace.launch.heartbeat import BEAT_INTERVAL_SECONDS
from millrace.launch.supervisor_link import SupervisorLink
from millrace.launch.sweep import NAME as JOB
from millrace.output import saved_outputs
from millrace.output.output_streams import refuse_appending
from millrace.planning import result_fingerprint
from millrace.planning.run_dir_access import compute_run_dir_mode
from millrace.planning.run_plan import RunPlan
from millrace.report import summary
from millrace.report.events import read_events
from millrace.rundir import ownership, paths
from millrace.rundir.paths import RunDir, RunManifest


class RunClaim(msgspec.Struct, frozen=True):
    """A run directory that this process has locked, and the plan to run in it."""

    plan: RunPlan
    rundir: RunDir
    manifest: RunManifest
    lock: FileLock
    #: Whether an earlier start of the run has left results.
    resuming: bool
    #: Changed variables of the environment, in words; empty: none.
    changed: str = ""
    #: See ``BegunRun``.
    moved_from: str = ""

    @property
    def run_id(self) -> bytes:
        """Return the id of the run in its journals."""
        return bytes.fromhex(self.manifest.run_id)


def claim_run(plan: RunPlan, supervision: SupervisorLink, stack: ExitStack) -> RunClaim:
    """Take over the run directory of ``plan`` until ``stack`` closes.

    Raises:
        MillraceError: Another process has it, it holds another run, or outputs of an earlier start were changed.
    """
    rundir = RunDir(plan.run_dir)
    if supervision.active:
        wait_for_last_start(rundir)
    lock = ownership.claim_run_directory(
        rundir, compute_run_dir_mode(plan), job=os.environ.get(JOB, ""), fresh=plan.job.fresh
    )
    stack.callback(lock.close)
    if not supervision.active:
        paths.restore_run(rundir)  # set aside by a start that was then killed
    plan = restore_fragments(plan, rundir)
    begun = begin_or_resume_run(plan, rundir)
    manifest, resuming = begun.manifest, begun.resuming
    if resuming:
        refuse_appending(plan.use, rundir)
    saved_outputs.check_saved_outputs(
        plan, rundir, manifest
    )  # after a refusal nothing changes: the next start must find the same
    stack.push(make_fruitless_cleanup(rundir, supervised=supervision.active))
    others = result_fingerprint.describe_changed_variables(manifest.environ, plan.command.environ) if resuming else ""
    return RunClaim(plan, rundir, manifest, lock, resuming, others, begun.moved_from)


def make_takeover_handler(folder: Path) -> Callable[[str], None]:
    """Return a callback that stops this run when another machine, which took this one for dead, has taken it over."""

    def stop(owner: str) -> None:
        print(f"millrace: {folder}: {owner} has taken this run over", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGTERM)

    return stop


def wait_for_last_start(rundir: RunDir) -> None:
    """Wait until a coordinator that was killed just now is gone.

    Raises:
        LostError: It still runs after 10 heartbeats.
    """
    job = os.environ.get(JOB, "")
    if not wait_until(
        lambda: not ownership.is_run_active(rundir, job), 10 * BEAT_INTERVAL_SECONDS, nap=BEAT_INTERVAL_SECONDS / 10
    ):
        raise LostError(f"{rundir.path}: the coordinator of an earlier start still has it", "wait for its end")


def make_fruitless_cleanup(rundir: RunDir, *, supervised: bool) -> Callable[..., bool]:
    """Return an exit callback that removes the run directory of a run that failed without results.

    Of a run that has not begun, the callback restores the earlier run directory.

    Args:
        supervised: Whether a supervisor restores the earlier run directory, as it may start this run again.
    """

    def leave(_: object, error: BaseException | None, __: object) -> bool:
        if rundir.backup.exists() and (supervised or paths.restore_run(rundir)):
            return False
        # A run stopped by a signal has reported where its results are, and may be resumed soon.
        asked = isinstance(error, StoppedBySignalError) and error.number != signal.SIGPIPE
        if isinstance(error, MillraceError) and not (error.keeps_results and (asked or rundir.has_results())):
            ownership.remove_run_directory(rundir)
        return False

    return leave


def find_complete_result(claim: RunClaim, supervision: SupervisorLink) -> FinishedRun | None:
    """Return the result of an earlier run that is complete and whose outputs still exist; else None."""
    plan, rundir = claim.plan, claim.rundir
    complete = rundir.read_complete(claim.manifest)
    if complete is None:
        return None
    of_others = not all(
        result_fingerprint.has_all_fingerprints(plan.use, plan.command, each)
        for each in (claim.manifest.fingerprints, plan.fingerprints)
    )
    if of_others or plan.job.retry_quarantined or not has_all_outputs(plan, rundir, claim.manifest, complete):
        # From here on the run is incomplete, even if it is killed now.
        rundir.completion.unlink()
        return None
    try:
        counted = summary.summarise_events(read_events(rundir.events))
    except OSError:
        counted = None  # killed while it removed the directory
    if not complete.kept and not complete.quarantined:
        if not supervision.active:  # the supervisor removes it once it has passed all output on
            ownership.remove_run_directory(rundir)
        return FinishedRun(ExitCode.DONE, "already done: an earlier run wrote everything", counted)
    code = ExitCode.QUARANTINED if complete.quarantined else ExitCode.DONE
    text = f"already done: {rundir.path} holds this run, complete (--fresh starts over)"
    return FinishedRun(code, f"{text}; {claim.changed}" if claim.changed else text, counted)
