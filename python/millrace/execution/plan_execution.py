"""Execution of a plan: take over its run directory, run the remaining tasks, and end in order.

The processes of a job that an MPI launcher has started begin here, too.
"""

from __future__ import annotations

import atexit
import os
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from millrace import _core
from millrace.core.errors import ExitCode, LostError, RefusedError
from millrace.core.tasks import count_records
from millrace.execution.action_runner import ActionRunner
from millrace.execution.resume import FinishedRun
from millrace.execution.run_claim import RunClaim, claim_run, find_complete_result, make_takeover_handler
from millrace.execution.run_ending import RunEnding
from millrace.execution.run_start import EarlierResults, PhaseConnections, RunContext, build_run_event, open_journals
from millrace.execution.run_wiring import RunWiring
from millrace.host import core_allocation, debug_log, work_places
from millrace.host.signals import StopSignals
from millrace.launch.mpi_environment import LaunchedProcess, is_stdin_garbled
from millrace.launch.mpi_environment import find_launcher_process as launcher_process
from millrace.launch.supervisor_link import SupervisorLink
from millrace.node import work_dir
from millrace.output import saved_outputs
from millrace.planning import result_fingerprint, work_dir_location
from millrace.planning.run_plan import RunPlan
from millrace.report import progress
from millrace.report.event_log import EventLog
from millrace.rundir import run_history
from millrace.rundir.paths import SUFFIX

if TYPE_CHECKING:
    from millrace.cluster.membership import JobMembership
    from millrace.cluster.transport.mpi_transport import MpiTransport
    from millrace.core.job import JobSpec
    from millrace.execution.url_inputs import UrlFiles
    from millrace.execution.url_outputs import OutputUploads
    from millrace.node.work_dir import WorkDir
    from millrace.report.progress import ProgressDisplay


def run_plan(
    plan: RunPlan, supervision: SupervisorLink, crew: JobMembership | None = None, behind: UrlFiles | None = None,
    outbox: OutputUploads | None = None,
    chain: PhaseConnections | None = None,
) -> FinishedRun:  # fmt: skip
    """Run ``plan``, and resume from the results of an earlier run of the same command.

    Args:
        supervision: The connection to the supervisor of this process.
        crew: The other processes of an MPI job, whose slots work too.
        behind: The files behind the URLs of the command.
        outbox: The outputs that are sent to URLs.
        chain: The other phases of the job.

    Raises:
        MillraceError: The run did not reach its end; the run directory holds the results so far.
    """
    _check_stdin(plan)
    with ExitStack() as stack:
        if outbox:
            stack.callback(
                outbox.remove_stale_notes, plan.run_dir
            )  # last: it depends on whether the run directory stays
        interrupt = stack.enter_context(StopSignals(supervised=supervision.active))
        supervision.pass_signals_to(interrupt)
        claim = claim_run(plan, supervision, stack)
        # Even if nothing is left to do: this also removes work directories of dead runs.
        work = crew.work if crew else work_dir.choose_work_dir(claim.plan.work_place)
        if done := find_complete_result(claim, supervision):
            run_history.sweep_unfinished(claim.plan.command.environ)
            if outbox:
                outbox.remove_sent_files()
            return done
        saved_outputs.forget_saved_outputs(claim.rundir)
        if crew:
            crew.interrupt = interrupt
            stack.callback(crew.dismiss_members)
        else:
            # Before any thread, as the watchdog is a fork; and before the folder, so that any kill leaves nothing.
            watchdog = _core.Watchdog(str(work.path), work.token)
            stack.callback(watchdog.close)
            work.make_folder()
        claim.lock.start_heartbeat(make_takeover_handler(claim.rundir.path))
        context = RunContext(work, interrupt, supervision, crew, behind, outbox, chain)
        if claim.plan.job.dask:
            from millrace.cluster.dask.worker_slots import DaskPool  # few runs need it, and it loads Dask

            context.dask = DaskPool(claim.plan, interrupt)
            stack.callback(context.dask.close)
        return execute_claimed_run(claim, context, stack)


def _check_stdin(plan: RunPlan) -> None:
    """Refuse to read a standard input that the launcher changes."""
    if any(item.path == "-" for item in plan.use.inputs) and is_stdin_garbled(os.environ):
        raise RefusedError(
            "standard input: the mpirun of Open MPI 5 does not pass it on as it is",
            "let each process open the file itself: mpirun ... sh -c 'millrace run ... -- TOOL < FILE'",
        )


def execute_claimed_run(claim: RunClaim, processes: RunContext, stack: ExitStack) -> FinishedRun:
    """Run the remaining tasks of a run that this process has claimed.

    Raises:
        MillraceError: The run did not reach its end; the run directory holds the results so far.
    """
    job = claim.plan.job
    show = stack.enter_context(progress.make_progress(claim.plan.job.progress_shown, sys.stderr))
    say = debug_log.tee_to_log(show.write_message if job.verbosity >= 0 else lambda _: None)
    if job.metrics:
        show = stack.enter_context(_keep_metrics_file(claim.plan, show, say))
    for warning in claim.plan.warnings:
        say(warning)
    if claim.moved_from and claim.resuming:
        say(f"{claim.rundir.path}: a run that was begun in {claim.moved_from} goes on here")
    if claim.changed:
        say(f"{claim.changed}; what was done then stays: --fresh does it anew")
    if processes.outbox:
        processes.outbox.prepare_uploads(say)
    claim = replace(claim, plan=processes.share_slots(claim.plan, say))
    processes.stage_databases(claim.plan, stack, say)
    started = time.monotonic()
    # A process on another machine may be alive although it was declared dead; it continues in its own journal.
    earlier = open_journals(claim, alone=not processes.crew and claim.lock.certain, say=say)
    events = stack.enter_context(EventLog(claim.rundir.events))
    if job.notify:
        _notify_of_trouble(claim.plan, events, processes.interrupt, stack, say)
    events.write(build_run_event(claim.plan, earlier.tasks, processes), 0.0)
    wiring = RunWiring(claim, processes, earlier, say)
    ending = RunEnding(claim, processes, wiring, earlier.journal, events, started, say)
    try:
        engine = wiring.build_engine(stack, events, show, started)
        stack.callback(_remember_cost, claim.plan, engine.actions)
        _restore_results(engine.actions, earlier)
        engine.run()
        return ending.finish_run(engine.actions)
    except BaseException as error:
        processes.supervision.record_loop_end()  # other processes may take a while to end
        if stopped := ending.stop_run(error):
            raise stopped from error
        raise


def _keep_metrics_file(plan: RunPlan, shown: ProgressDisplay, say: Callable[[str], None]) -> ProgressDisplay:
    """Return a display that keeps the user's file of metrics, too."""
    from millrace.report.openmetrics import MetricsDisplay  # few runs need it

    labels = {"run": plan.run_dir.name.removesuffix(SUFFIX), "tool": plan.command.tool}
    return MetricsDisplay(shown, plan.command.cwd / plan.job.metrics, labels, say)


def _notify_of_trouble(
    plan: RunPlan, events: EventLog, interrupt: StopSignals, stack: ExitStack, say: Callable[[str], None]
) -> None:
    """Let the user's command know of trouble while the run lasts; it is waited for when ``stack`` closes."""
    from millrace.execution.user_notifier import UserNotifier, choose_wait, describe_command  # few runs need it

    facts = describe_command(plan.command.argv, str(plan.command.cwd), str(plan.run_dir))
    notifier = UserNotifier(plan.job.notify, facts, say)
    events.set_observer(notifier.observe_event)
    stack.callback(lambda: notifier.wait_for_commands(choose_wait(plan.job, interrupted=bool(interrupt.signal))))


def _restore_results(actions: ActionRunner, earlier: EarlierResults) -> None:
    """Write the results of earlier starts to the outputs, and count their quarantined records."""
    for task in earlier.tasks:
        actions.stage.add_task(task)
    actions.counts.quarantined = count_records(task for task in earlier.tasks if task.quarantined)
    actions.limit.add_resumed(count_records(earlier.tasks), actions.counts.quarantined)


def _remember_cost(plan: RunPlan, actions: ActionRunner) -> None:
    """Save the measured cost of tasks for later runs of the tool."""
    if plan.cost_key and (found := actions.scheduler.cost_model.cost_sums):
        result_fingerprint.remember_learnt_cost(plan.cost_key, found, plan.command.environ)


def join_mpi_job(launched: LaunchedProcess, supervision: SupervisorLink, job: JobSpec) -> JobMembership | None:
    """Join an MPI job: return in the coordinator only, and run the agent in the other processes.

    Args:
        job: The job; the rest of the plan is made once all processes have joined.

    Returns:
        The other processes, for the coordinator; None if there are none. Any other process runs its agent, and exits
        when that ends.

    Raises:
        RefusedError: There is no MPI, or it is not the launcher's.
    """
    core_allocation.release_cpu_binding(launcher_process())
    if launched.size == 1:
        return None
    from millrace.cluster.membership import JobMembership
    from millrace.cluster.partition_leader import create_agent

    try:
        work_places.hold_start_folder(os.environ)
    except LostError as error:
        if launched.rank:
            sys.exit(f"millrace: rank {launched.rank}: {error.message}")
        raise
    slots = job.slots or core_allocation.count_usable_cores(os.environ)[0]
    work = work_dir.choose_work_dir(work_dir_location.choose_work_place(job.work_dir, slots, Path.cwd()).path)
    watchdog = _core.Watchdog(str(work.path), work.token)  # before any thread; MPI starts some
    work.make_folder()
    try:
        world = _start_mpi(launched, supervision, work)
    except BaseException:
        watchdog.close()
        raise
    if world.rank:
        with StopSignals(supervised=supervision.active) as interrupt:
            create_agent(world, work, job.partition_size).run(interrupt)
        watchdog.close()
        world.finalize_or_abort(ExitCode.DONE)
        sys.exit(ExitCode.DONE)
    crew = JobMembership(world, work, job.partition_size, supervision.patience)
    # At the very end, after errors were reported.
    atexit.register(crew.leave_job)
    atexit.register(watchdog.close)
    return crew


def _start_mpi(launched: LaunchedProcess, supervision: SupervisorLink, work: WorkDir) -> MpiTransport:
    """Start MPI; other processes than the coordinator exit if it does not start.

    Raises:
        RefusedError: There is no MPI, or it is not the launcher's.
        LostError: One process cannot reach another.
    """
    from millrace.cluster.transport.mpi_transport import MpiTransport

    try:
        with supervision.announce_mpi_start():
            return MpiTransport(launched, work.path, supervision.key)
    except RefusedError:
        if launched.rank:
            sys.exit(ExitCode.REFUSED)  # the coordinator reports it
        raise
    except RuntimeError as error:  # from the MPI library
        words = f"MPI does not start: {error}"
        if launched.rank:
            sys.exit(f"millrace: rank {launched.rank} on {os.uname().nodename}: {words}")
        raise LostError(words, "the nodes must reach each other by TCP, over IPv4 or over IPv6 all of them") from error
