"""Execution of a plan: take over its run directory, run the remaining tasks, and end in order."""

from __future__ import annotations

import os
import sys
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

from msgspec.structs import replace

from millrace import _core, debug
from millrace.committed import n_records
from millrace.engine.loop import Engine
from millrace.errors import RefusedError
from millrace.interrupt import Interrupt
from millrace.launch.mpi_environment import garbles_stdin
from millrace.launch.supervisor_link import Supervision
from millrace.node import workdir
from millrace.output import left
from millrace.plan import learnt
from millrace.plan.plan import Plan
from millrace.report import progress
from millrace.report.event_log import EventLog
from millrace.session.begun import begun
from millrace.session.chained import Chained
from millrace.session.claim import Claim, already_complete, claim_run, taken_over
from millrace.session.earlier import Earlier, open_journals
from millrace.session.ending import Ending
from millrace.session.finished import Finished
from millrace.session.processes import Processes
from millrace.session.wiring import Wiring
from millrace.storage import past

if TYPE_CHECKING:  # only a job of several processes needs these, and imports them at its start
    from millrace.cluster.membership import Membership
    from millrace.session.outbox import Outbox
    from millrace.session.urls import Named


def run(
    plan: Plan, supervision: Supervision, crew: Membership | None = None, behind: Named | None = None,
    outbox: Outbox | None = None,
    chain: Chained | None = None,
) -> Finished:  # fmt: skip
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
    if any(item.path == "-" for item in plan.use.inputs) and garbles_stdin(os.environ):
        raise RefusedError(
            "standard input: the mpirun of Open MPI 5 does not pass it on as it is",
            "let each process open the file itself: mpirun ... sh -c 'millrace run ... -- TOOL < FILE'",
        )
    with ExitStack() as stack:
        if outbox:
            stack.callback(outbox.give_up, plan.run_dir)  # last: it depends on whether the run directory stays
        interrupt = stack.enter_context(Interrupt(supervised=supervision.active))
        supervision.obey(interrupt)
        claim = claim_run(plan, supervision, stack)
        # Even if nothing is left to do: this also removes work directories of dead runs.
        work = crew.work if crew else workdir.choose(claim.plan.work_place)
        if done := already_complete(claim, supervision):
            past.sweep(claim.plan.command.environ)
            if outbox:
                outbox.clear()
            return done
        left.forget(claim.rundir)
        if crew:
            crew.interrupt = interrupt
            stack.callback(crew.dismiss)
        else:
            # Before any thread, as the watchdog is a fork; and before the folder, so that any kill leaves nothing.
            watchdog = _core.Watchdog(str(work.path), work.token)
            stack.callback(watchdog.close)
            work.make()
        claim.lock.keep(taken_over(claim.rundir.path))
        return carry_out(claim, Processes(work, interrupt, supervision, crew, behind, outbox, chain), stack)


def carry_out(claim: Claim, processes: Processes, stack: ExitStack) -> Finished:
    """Run the remaining tasks of a run that this process has claimed.

    Raises:
        MillraceError: The run did not reach its end; the run directory holds the results so far.
    """
    job = claim.plan.job
    show = stack.enter_context(progress.make(claim.plan.job.progress_shown, sys.stderr))
    say = debug.told(show.message if job.verbosity >= 0 else _nothing)
    for warning in claim.plan.warnings:
        say(warning)
    if claim.changed:
        say(f"{claim.changed}; what was done then stays: --fresh does it anew")
    if processes.outbox:
        processes.outbox.begin(say)
    claim = replace(claim, plan=processes.share(claim.plan, say))
    processes.stage(claim.plan, stack, say)
    started = time.monotonic()
    # A process on another machine may be alive although it was declared dead; it continues in its own journal.
    earlier = open_journals(claim, alone=not processes.crew and claim.lock.certain, say=say)
    events = stack.enter_context(EventLog(claim.rundir.events))
    events.write(begun(claim.plan, earlier.tasks, processes), 0.0)
    wiring = Wiring(claim, processes, earlier, say)
    ending = Ending(claim, processes, wiring, earlier.journal, events, started, say)
    try:
        engine = wiring.engine(stack, events, show, started)
        stack.callback(_remember_cost, claim.plan, engine)
        debug.watch(engine)
        _take_over_results(engine, earlier)
        engine.run()
        return ending.finish(engine)
    except BaseException as error:
        processes.supervision.over()  # other processes may take a while to end
        if stopped := ending.stop(error):
            raise stopped from error
        raise


def _take_over_results(engine: Engine, earlier: Earlier) -> None:
    """Write the results of earlier starts to the outputs, and count their quarantined records."""
    for task in earlier.tasks:
        engine.stage.put(task)
    engine.counts.quarantined = n_records(task for task in earlier.tasks if task.quarantined)
    engine.limit.resumed(n_records(earlier.tasks), engine.counts.quarantined)


def _remember_cost(plan: Plan, engine: Engine) -> None:
    """Save the measured cost of tasks for later runs of the tool."""
    if plan.cost_key and (found := engine.scheduler.cost.learnt):
        learnt.remember(plan.cost_key, found, plan.command.environ)


def _nothing(_: str) -> None:
    pass
