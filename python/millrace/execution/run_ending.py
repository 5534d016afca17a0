"""The end of a run: all outputs are written and synced, or the results so far are kept and the reason is reported."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

import msgspec

from millrace import _core
from millrace.adapters.argument_paths import list_unnamed_inputs
from millrace.core.errors import (
    CorruptError,
    ExitCode,
    LostError,
    MillraceError,
    MisfitError,
    RefusedError,
    ToolError,
    UnverifiedError,
)
from millrace.core.text_format import format_count
from millrace.core.wait_loop import wait_until
from millrace.execution import resume
from millrace.execution.action_runner import ActionRunner
from millrace.execution.resume import FinishedRun
from millrace.execution.run_claim import RunClaim
from millrace.execution.run_errors import build_disk_full_error, choose_resume_hint
from millrace.execution.run_start import RunContext
from millrace.execution.run_wiring import RunWiring
from millrace.host.signals import StoppedBySignalError, make_closed_output_error
from millrace.output import inconsistent_results, saved_outputs
from millrace.output.commits import commit_journal
from millrace.output.output_streams import publish_outputs, withdraw_outputs
from millrace.output.saved_outputs import restore_outputs
from millrace.planning.run_plan import RunPlan
from millrace.report.event_log import EventLog
from millrace.report.events import EndEvent, WarningEvent
from millrace.report.summary import RunSummary
from millrace.rundir import ownership
from millrace.rundir.paths import RunCompletion

#: Hint for a long-running program that writes more than its answers.
AGAINST = """
hint: all answers are in the output; what it writes besides is not, as each of its processes would write it: see docs/records.md"""

#: Interval between two checks of the outputs at the end, in seconds.
POLL_INTERVAL_SECONDS = 0.05


#: Message for ``--warm`` with few tasks.
NEVER_WARM = (
    "warm: no task ran in a fork alone, as the first ones are compared; smaller batches make more tasks: --batch N"
)


class RunEnding:
    """The last steps of one start of a run, for success and failure.

    Args:
        started: Start on the monotonic clock, in seconds.
    """

    def __init__(
        self, claim: RunClaim, processes: RunContext, wiring: RunWiring, journal: _core.Journal, events: EventLog,
        started: float, say: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._claim, self._processes, self._wiring, self._say = claim, processes, wiring, say
        self._journal, self._events, self._started = journal, events, started

    def finish_run(self, actions: ActionRunner) -> FinishedRun:
        """Write all outputs after the last batch, and mark the run complete.

        Raises:
            MillraceError: The run is not complete.
        """
        self._processes.supervision.record_loop_end()
        self._drain_outputs(actions)  # other processes may write parts
        guard, crew = self._wiring.guard, self._processes.crew
        if crew:
            crew.dismiss_members(whole=True)  # their commits are synced before this run is marked complete
            guard.changed = guard.changed or crew.final_reports.changed
            if found := self._wiring.measure_locality():
                self._say(found.words)
                now = actions.read_run_clock()
                self._events.write(msgspec.structs.replace(found, t=now), now)
        against = actions.node.end_served_programs(look=self._raise_if_interrupted)
        sizes = self._close_outputs(actions)
        if outbox := self._processes.outbox:
            outbox.send_outputs(self._claim.plan.run_dir, self._processes.interrupt, self._say)
        lost = actions.counts.quarantined
        self._write_end_events(actions, lost)
        saved_outputs.save_output_states(self._claim.plan, self._claim.rundir, self._claim.manifest)
        kept = self._claim.plan.job.keep_run_dir
        complete = RunCompletion(
            run_id=self._claim.manifest.run_id,
            outputs=sizes,
            quarantined=lost,
            kept=kept,
            records=actions.counts.records,
        )
        self._claim.rundir.write_complete(complete)
        if outbox:
            outbox.remove_sent_files()
        self._events.close()
        code = ExitCode.TOOL if against else ExitCode.QUARANTINED if lost else ExitCode.DONE
        counted = resume.save_run_history(self._claim.plan, self._claim.rundir, self._claim.manifest, code)
        words = [
            actions.verifier.describe_outcome(actions.counts.records),
            describe_warm_savings(actions),
            *self._describe_unread_inputs(sizes),
        ]
        if against:
            words.append(f"{actions.said.tool} has answered all records, but after the last one {against}\n{AGAINST}")
        return self._build_finished_run(lost, code, counted, words)

    def _describe_unread_inputs(self, sizes: Mapping[str, int]) -> list[str]:
        """Describe inputs that an unknown program may not have found.

        Args:
            sizes: Bytes of the outputs that are one file each.
        """
        use = self._claim.plan.use
        if use.adapter != "generic" or any(sizes.values()) or any(output.layout != "file" for output in use.outputs):
            return []
        return [
            f"nothing was written. {each.path} is not in the arguments: each task has its part at that relative path. "
            f"If the program reads its standard input, type --format {each.format} in place of --input {each.path}, and < {each.path} behind the command"
            for each in list_unnamed_inputs(use.inputs, use.argv)
        ]

    def stop_run(self, error: BaseException) -> MillraceError | None:
        """Keep the results of a run that cannot go on; return the error for the user, or None if unexpected."""
        claim, plan = self._claim, self._claim.plan
        known = error if isinstance(error, MillraceError) else translate_error(error, plan)
        stopped = self._find_changed_file(error) or known
        self._settle_parallel_output()
        never_worked = isinstance(stopped, ToolError) and self._wiring.has_begun and not claim.rundir.has_results()
        if claim.rundir.written_marker.exists() and (isinstance(stopped, UnverifiedError) or never_worked):
            withdraw_outputs(plan.use.outputs, plan.command.cwd, claim.rundir.list_journals())
        status, message = (
            "interrupted" if isinstance(stopped, StoppedBySignalError) else "stopped",
            str(stopped or error),
        )
        now = time.monotonic() - self._started
        self._events.write(EndEvent(t=now, status=status, message=message), now)
        self._events.close()
        self._commit_last_results(stopped)
        if isinstance(stopped, MisfitError):
            with suppress(OSError, CorruptError):
                inconsistent_results.record_inconsistent_tasks(
                    claim.rundir, claim.manifest.run_id, plan.use.outputs, claim.manifest.frame_forms
                )
        if self._wiring.alone and self._wiring.alone.drain_tasks(plan.job.write_grace_seconds) is not None:
            saved_outputs.save_output_states(plan, claim.rundir, claim.manifest)
        with suppress(OSError):  # a history that cannot be written
            code = stopped.status if stopped else ExitCode.STOPPED
            resume.save_run_history(plan, claim.rundir, claim.manifest, code, message)
        return stopped

    def _raise_if_interrupted(self) -> None:
        """Raise an error if a signal asks the run to stop.

        Raises:
            StoppedBySignalError: A signal has arrived.
        """
        if self._processes.interrupt.signal:
            raise self._processes.interrupt.make_error(self._claim.plan.run_dir)

    def _drain_outputs(self, actions: ActionRunner) -> None:
        """Wait until all results are in the outputs."""
        parallel = self._wiring.parallel
        covered: int | None = None

        def are_outputs_written() -> bool:
            nonlocal covered
            if (covered := actions.stage.drain_tasks(0.2)) is not None:
                return True
            self._raise_if_interrupted()  # the reader of the output may have stopped reading
            actions.node.wait_for_events(POLL_INTERVAL_SECONDS)  # for messages about writes of other processes
            return False

        wait_until(are_outputs_written)
        if parallel:
            parallel.finish_collective_calls(actions.node.wait_for_events)
        if actions.stage.error:
            raise actions.stage.error
        if covered != actions.counts.records:
            raise CorruptError(
                f"the outputs cover {covered} records of {actions.counts.records}",
                "this must not happen: please report it",
            )

    def _close_outputs(self, actions: ActionRunner) -> dict[str, int]:
        """Close the complete outputs; return the bytes of each."""
        claim = self._claim
        commit_journal(self._journal, self._wiring.guard)
        if not claim.lock.is_ours():
            raise LostError(f"{claim.rundir.path}: another process has taken this run over", "wait for its end")
        sizes = actions.stage.finish_outputs()
        restore_outputs(claim.plan, claim.rundir, claim.manifest, actions.stage.find_changed_outputs(), self._say)
        publish_outputs(claim.plan.use.outputs, claim.plan.command.cwd)
        return sizes

    def _write_end_events(self, actions: ActionRunner, lost: int) -> None:
        now, done = actions.read_run_clock(), actions.counts.records - lost
        for line, times in (*actions.said.list_result_statuses(), *actions.said.list_repeated_lines()):
            self._events.write(WarningEvent(t=now, text=line, count=times), now)
        status = "quarantined" if lost else "done"
        self._events.write(EndEvent(t=now, status=status, records_done=done, quarantined=lost), now)
        self._events.flush()  # before the run is marked complete: a kill in between must not leave an incomplete log

    def _build_finished_run(self, lost: int, code: ExitCode, counted: RunSummary, words: list[str]) -> FinishedRun:
        job, rundir = self._claim.plan.job, self._claim.rundir
        if lost:
            words.append(
                f"{format_count(lost, 'record')} quarantined in {rundir.quarantine}; to try again: millrace run --retry-quarantined -- ..."
            )
        elif not job.keep_run_dir and not self._processes.supervision.active:
            ownership.remove_run_directory(rundir)
        return FinishedRun(code, "\nmillrace: ".join(filter(None, words)), counted)

    def _settle_parallel_output(self) -> None:
        """Complete the joint writes of all processes, so that none waits for this one."""
        if self._wiring.parallel and self._wiring.slots:
            with suppress(MillraceError):
                self._wiring.parallel.finish_collective_calls(self._wiring.slots.wait_for_events)

    def _find_changed_file(self, error: BaseException) -> MillraceError | None:
        """Return the cause of an error if an input, database or program has changed; else None."""
        if isinstance(error, StoppedBySignalError | RefusedError):
            return None
        try:
            self._wiring.guard.check_unchanged()
        except CorruptError as changed:
            return changed
        return None

    def _commit_last_results(self, stopped: MillraceError | None) -> None:
        guard, claim = self._wiring.guard, self._claim
        try:
            with suppress(CorruptError):
                commit_journal(self._journal, guard)
            unsure = stopped is not None and stopped.exit_code == ExitCode.CORRUPT
            if guard.changed or (unsure and not isinstance(stopped, UnverifiedError | MisfitError)):
                # Results since the last good check may come from changed files.
                claim.rundir.write_manifest(msgspec.structs.replace(claim.manifest, world=""))
            self._journal.sync()
        except OSError as error:
            self._say(f"the last results may not be on disk: {error}")


def describe_warm_savings(actions: ActionRunner) -> str:
    """Describe what warm tasks saved, or why there were none; empty: already reported, or not requested."""
    counts = actions.counts
    if not counts.warm:
        new = counts.records > counts.resumed
        return NEVER_WARM if actions.plan.use.warm and not counts.cold and new else ""
    how = f"saved {counts.saved:.1f} s of CPU" if counts.saved > 0 else f"cost {-counts.saved:.1f} s of CPU more"
    return f"warm: {format_count(counts.warm, 'task')} in forks of {actions.said.tool}, which {how} in all"


def translate_error(error: BaseException, plan: RunPlan) -> MillraceError | None:
    """Convert an error of a library into one for the user; return None for an unexpected one."""
    if isinstance(error, _core.DiskFull):
        return build_disk_full_error(plan, str(error))
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return build_disk_full_error(plan, f"{error.filename or plan.run_dir}: {error.strerror}")
    if isinstance(error, BrokenPipeError):
        return make_closed_output_error(plan.run_dir)
    if isinstance(error, OSError):
        return MillraceError(str(error), choose_resume_hint(str(error)))
    if isinstance(error, _core.CorruptJournal):
        return CorruptError(str(error))
    return None
