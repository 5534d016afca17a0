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
from millrace.execution.engine_loop import RunEngine
from millrace.execution.resume import FinishedRun
from millrace.execution.run_claim import RunClaim
from millrace.execution.run_errors import build_disk_full_error, choose_resume_hint
from millrace.execution.run_start import RunContext
from millrace.execution.run_wiring import RunWiring
from millrace.host.signals import StoppedBySignalError, make_closed_output_error
from millrace.output import inconsistent_results, saved_outputs
from millrace.output.commits import commit_journal
from millrace.output.output_streams import withdraw_outputs
from millrace.output.saved_outputs import restore_outputs
from millrace.planning.run_plan import RunPlan
from millrace.report.event_log import EventLog
from millrace.report.events import EndEvent, WarningEvent
from millrace.report.summary import RunSummary
from millrace.rundir import ownership
from millrace.rundir.paths import RunCompletion

#: Seconds for writing finished results when a run is stopped.
LAST_WRITES_SECONDS = 5.0

#: Hint for a long-running program that writes more than its answers.
AGAINST = """
hint: all answers are in the output; what it writes besides is not, as each of its processes would write it: see docs/records.md"""

#: Interval between two checks of the outputs at the end, in seconds.
POLL_INTERVAL_SECONDS = 0.05


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

    def finish_run(self, engine: RunEngine) -> FinishedRun:
        """Write all outputs after the last batch, and mark the run complete.

        Raises:
            MillraceError: The run is not complete.
        """
        self._processes.supervision.record_loop_end()
        self._drain_outputs(engine)  # other processes may write parts
        guard, crew = self._wiring.guard, self._processes.crew
        if crew:
            crew.dismiss_members(whole=True)  # their commits are synced before this run is marked complete
            guard.changed = guard.changed or crew.final_reports.changed
            if found := self._wiring.measure_locality():
                self._say(found.words)
                now = engine.read_run_clock()
                self._events.write(msgspec.structs.replace(found, t=now), now)
        against = engine.node.end_served_programs(look=self._raise_if_interrupted)
        sizes = self._close_outputs(engine)
        if outbox := self._processes.outbox:
            outbox.send_outputs(self._claim.plan.run_dir, self._processes.interrupt, self._say)
        lost = engine.counts.quarantined
        self._write_end_events(engine, lost)
        saved_outputs.save_output_states(self._claim.plan, self._claim.rundir, self._claim.manifest)
        kept = self._claim.plan.job.keep_run_dir
        complete = RunCompletion(
            run_id=self._claim.manifest.run_id,
            outputs=sizes,
            quarantined=lost,
            kept=kept,
            records=engine.counts.records,
        )
        self._claim.rundir.write_complete(complete)
        if outbox:
            outbox.remove_sent_files()
        self._events.close()
        code = ExitCode.TOOL if against else ExitCode.QUARANTINED if lost else ExitCode.DONE
        counted = resume.save_run_history(self._claim.plan, self._claim.rundir, self._claim.manifest, code)
        words = [
            engine.verifier.describe_outcome(engine.counts.records),
            engine.describe_warm_savings(),
            *self._describe_unread_inputs(sizes),
        ]
        if against:
            words.append(f"{engine.said.tool} has answered all records, but after the last one {against}\n{AGAINST}")
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
                inconsistent_results.record_inconsistent_tasks(claim.rundir, claim.manifest.run_id, plan.use.outputs)
        if self._wiring.alone and self._wiring.alone.drain_tasks(LAST_WRITES_SECONDS) is not None:
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

    def _drain_outputs(self, engine: RunEngine) -> None:
        """Wait until all results are in the outputs."""
        parallel = self._wiring.parallel
        covered: int | None = None

        def are_outputs_written() -> bool:
            nonlocal covered
            if (covered := engine.stage.drain_tasks(0.2)) is not None:
                return True
            self._raise_if_interrupted()  # the reader of the output may have stopped reading
            engine.node.wait_for_events(POLL_INTERVAL_SECONDS)  # for messages about writes of other processes
            return False

        wait_until(are_outputs_written)
        if parallel:
            parallel.finish_collective_calls(engine.node.wait_for_events)
        if engine.stage.error:
            raise engine.stage.error
        if covered != engine.counts.records:
            raise CorruptError(
                f"the outputs cover {covered} records of {engine.counts.records}",
                "this must not happen: please report it",
            )

    def _close_outputs(self, engine: RunEngine) -> dict[str, int]:
        """Close the complete outputs; return the bytes of each."""
        claim = self._claim
        commit_journal(self._journal, self._wiring.guard)
        if not claim.lock.is_ours():
            raise LostError(f"{claim.rundir.path}: another process has taken this run over", "wait for its end")
        sizes = engine.stage.finish_outputs()
        restore_outputs(claim.plan, claim.rundir, claim.manifest.run_id, engine.stage.find_changed_outputs(), self._say)
        return sizes

    def _write_end_events(self, engine: RunEngine, lost: int) -> None:
        now, done = engine.read_run_clock(), engine.counts.records - lost
        for line, times in (*engine.said.list_result_statuses(), *engine.said.list_repeated_lines()):
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
