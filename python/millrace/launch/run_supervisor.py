"""The supervisor: starts the ranks of a run, and restarts them until the run is at its end.

It runs outside MPI: implementations differ in their behaviour after a lost process, and some report success then. So it
trusts no exit status, only the exit code that the coordinator writes at the end. Whatever dies or freezes, recovery is
the same: kill the remaining processes on every node, and start again, from the journals, on the nodes that answer.
"""

from __future__ import annotations

import os
import secrets
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from functools import partial

from millrace.core.errors import ExitCode, MillraceError, RefusedError
from millrace.core.text_format import format_count
from millrace.core.wait_loop import wait_until
from millrace.host import debug_log, work_places
from millrace.host.python_launch import make_python_command
from millrace.host.signals import StopSignals, make_closed_output_error
from millrace.launch import launch_commands, node_sweeps, reachability
from millrace.launch.batch_host import query_job_ending
from millrace.launch.guard import JobGuard, remove_empty_launch_folder
from millrace.launch.heartbeat import CoordinatorSigns
from millrace.launch.job_start import (
    TICK_SECONDS,
    JobStart,
    LauncherOutputRelay,
    RanksRequest,
    StdoutRelay,
    SupervisorChannels,
    find_stdin_path,
)
from millrace.launch.node_allocation import NodeAllocation
from millrace.launch.supervisor_link import LOCK, locate_launch_folder, lock_launch_folder
from millrace.output.output_streams import record_stdout, refuse_appending
from millrace.planning.run_dir_access import compute_run_dir_mode
from millrace.planning.run_plan import RunPlan
from millrace.rundir import ownership, paths
from millrace.rundir.paths import RunDir

#: Consecutive starts without a new result after which the run is given up.
MAX_STARTS_WITHOUT_PROGRESS = 5


class RunSupervisor:
    """The supervisor of one plan on an allocation; see the module."""

    def __init__(self, ranks: RanksRequest) -> None:
        self.ranks = ranks
        #: Nodes that answer and do not reach the others.
        self._blocked: set[str] = set()

    def run(self) -> int:
        """Start, watch and restart the ranks until the run is done; return its exit code.

        Raises:
            MillraceError: Restarts bring no progress, or the run was stopped by a signal.
        """
        self.rundir = RunDir(self.ranks.plan.run_dir)
        if ownership.is_run_active(self.rundir):
            ownership.claim_run_directory(
                self.rundir, compute_run_dir_mode(self.ranks.plan)
            ).close()  # the error names its owner
        launcher = launch_commands.choose_launcher_for_nodes(self.ranks.allocation, self.ranks.environ)
        token = secrets.token_hex(8)
        with ExitStack() as stack:
            interrupt = stack.enter_context(StopSignals())
            self._restore_earlier_run(token)  # an earlier run that a killed start had set aside
            if self.ranks.plan.job.fresh:
                with closing(ownership.claim_run_directory(self.rundir, compute_run_dir_mode(self.ranks.plan))):
                    paths.back_up_run(self.rundir)
                stack.callback(self._restore_earlier_run, token)
            elif self.rundir.has_run():
                refuse_appending(self.ranks.plan.use, self.rundir)
            folder = locate_launch_folder(self.ranks.plan.run_dir)
            held = lock_launch_folder(folder)
            stack.callback(remove_empty_launch_folder, folder)
            stack.callback(held.close)
            guard = JobGuard(folder, held.descriptor, token, self.ranks.allocation, self.ranks.environ)
            stack.callback(guard.close)
            held.transfer_ownership(guard.pid)  # the guard outlives this process, whatever happens
            held.start_heartbeat(self._stop_after_takeover)
            output = StdoutRelay(folder / "stdout", 1, partial(record_stdout, self.rundir))
            said = LauncherOutputRelay(2, all_of_it=self.ranks.plan.job.verbosity > 0)
            self.talk = SupervisorChannels(interrupt, CoordinatorSigns(folder), output, said)
            self._print_message(
                f"{format_count(len(self.ranks.allocation.nodes), 'node')} of {self.ranks.allocation.words}; ranks are started by {launcher.program}"
            )
            return self._start_until_done(launcher, token)

    def _restore_earlier_run(self, token: str) -> None:
        """Restore an earlier run that was set aside, if no new one has begun in its place."""
        if self.rundir.backup.exists():
            with suppress(RefusedError), closing(ownership.claim_run_directory(self.rundir, job=token)):
                paths.restore_run(self.rundir)

    def _stop_after_takeover(self, owner: str) -> None:
        self._print_message(f"{self.rundir.path}: {owner} has taken this run over")
        os.kill(os.getpid(), signal.SIGTERM)

    def _print_message(self, text: str) -> None:
        debug_log.log_note("launch", text)
        if self.ranks.plan.job.verbosity >= 0:
            print(f"millrace: {text}", file=sys.stderr, flush=True)

    def _start_until_done(self, launcher: launch_commands.RankLauncher, token: str) -> int:
        alive, fruitless = self.ranks.allocation.nodes, 0
        while True:
            before = self.talk.signs.records
            start = JobStart(self.ranks, self.talk, launcher, alive, token, patience=2.0**fruitless)
            why = start.watch_until_ended()
            debug_log.log_note("launch", f"start on {len(alive)} nodes: {why}; exit code told: {start.code}")
            if start.code is not None and (start.code or self._is_stdout_complete()):
                self._remove_finished_run(start.code, token)
                if lost := self._list_silent_nodes(alive):
                    # The loss was reported when it was seen, perhaps hours ago.
                    self._print_message(f"{lost} had no part in the end of this run: not answering")
                return start.code
            self._check_not_stopped()
            fruitless = 0 if self.talk.signs.records > before else fruitless + 1
            alive = self._find_answering_nodes(token)
            if fruitless == 1:
                self._exclude_blocked_nodes(alive)
            alive = tuple(node for node in alive if node not in self._blocked)
            self._check_not_stopped()  # Slurm may have ended the job between the starts, when no step was running
            if fruitless >= MAX_STARTS_WITHOUT_PROGRESS or not alive:
                raise self._make_no_progress_error(why, fruitless, alive)
            self._print_message(self._describe_restart(why, alive) + (self._quote_launcher(alive) if fruitless else ""))
            self._pause_before_start(fruitless - 1)

    def _check_not_stopped(self) -> None:
        """Check that no signal has asked to stop, and that Slurm does not end the job.

        Raises:
            MillraceError: The run has to stop.
        """
        interrupt = self.talk.interrupt
        if not interrupt.signal and (ends := query_job_ending(self.ranks.allocation, self.ranks.environ)):
            self._print_message(f"Slurm ends this job: {ends}")
            interrupt.count_signal(signal.SIGTERM)
        if interrupt.signal:
            raise interrupt.make_error(self.ranks.plan.run_dir)

    def _is_stdout_complete(self) -> bool:
        """Tell whether all bytes for standard output have been relayed."""
        try:
            complete = self.rundir.read_complete(self.rundir.read_manifest())
        except MillraceError:
            complete = None
        if complete is None:
            return True  # an earlier run had completed it
        wanted = sum(
            complete.outputs.get(output.name, 0) for output in self.ranks.plan.use.outputs if output.path == "-"
        )
        return self.talk.output.passed >= wanted

    def _remove_finished_run(self, code: int, token: str) -> None:
        """Remove the directory of a run that is done: the coordinator leaves that to the supervisor."""
        if code == ExitCode.DONE and not self.ranks.plan.job.keep_run_dir and self.rundir.completion.exists():
            if ownership.is_run_active(self.rundir, token):  # a coordinator that hangs, with everything written
                node_sweeps.sweep_all_nodes(
                    self.ranks.allocation, self.ranks.allocation.nodes, token, self.ranks.environ
                )
            held = ownership.claim_run_directory(self.rundir, job=token)
            ownership.remove_run_directory(self.rundir)
            held.close()

    def _find_answering_nodes(self, token: str) -> tuple[str, ...]:
        """Sweep all nodes; return those that answer; if none does, wait and retry.

        Raises:
            RefusedError: Some nodes do not see the folder of the run.
        """
        for turn in range(1, MAX_STARTS_WITHOUT_PROGRESS + 1):
            alive, lacking = node_sweeps.sweep_all_nodes(
                self.ranks.allocation,
                self.ranks.allocation.nodes,
                token,
                self.ranks.environ,
                self.talk.signs.folder / LOCK,
            )
            if lacking and not self.talk.signs.alive:
                raise self._make_not_shared_error(lacking)
            if alive or self.talk.interrupt.signal or turn == MAX_STARTS_WITHOUT_PROGRESS:
                break
            self._pause_before_start(turn)
        return alive

    def _exclude_blocked_nodes(self, alive: Sequence[str]) -> None:
        """Exclude nodes that answer but do not reach the first one by TCP: no start would succeed with them.

        Raises:
            RefusedError: No node reaches the first one.
        """
        blocked = reachability.find_blocked_nodes(self.ranks.allocation, alive, self.ranks.environ)
        if not blocked:
            return
        why = next(iter(blocked.values()))
        if len(blocked) >= min(len(alive) - 1, reachability.MAX_ASKED_NODES):
            raise RefusedError(
                f"{alive[0]}: the other nodes do not reach it by TCP ({shorten_name_list([*blocked])}: {why})",
                "MPI connects the nodes at ports that it chooses: let the firewall pass all of TCP between them; or name another "
                "host first, or these alone which reach each other, with --hosts; without IPv4 or IPv6 on some of them: "
                "OMPI_MCA_btl_tcp_disable_family=4 or 6",
            )
        self._blocked |= blocked.keys()
        self._print_message(
            f"{shorten_name_list([*blocked])}: left out, as {alive[0]} is not reached from there by TCP: {why}"
        )

    def _make_not_shared_error(self, lacking: Sequence[str]) -> MillraceError:
        folder = self.ranks.plan.run_dir.parent
        return RefusedError(
            f"{shorten_name_list(lacking)}: does not see what is in {folder} here, where the results are to be kept",
            "run it in a folder that all nodes share, at the same path, or name one for the results with --run-dir",
        )

    def _pause_before_start(self, turn: int) -> None:
        """Wait before a restart: not before the first one, then 1 s, 2 s, 4 s, ... (back-off)."""
        wait_until(lambda: self.talk.interrupt.signal, 2.0 ** (turn - 1) if turn > 0 else 0.0, nap=TICK_SECONDS)

    def _list_silent_nodes(self, alive: Sequence[str]) -> str:
        return shorten_name_list(
            [node for node in self.ranks.allocation.nodes if node not in alive and node not in self._blocked]
        )

    def _describe_restart(self, why: str, alive: Sequence[str]) -> str:
        lost = self._list_silent_nodes(alive)
        gone = f" ({lost} not answering)" if lost else ""
        return f"{why}; starting again on {format_count(len(alive), 'node')}{gone}; what is done is kept"

    def _quote_launcher(self, alive: Sequence[str]) -> str:
        """Quote the launcher's messages if nothing else explains a failed start, and they were not shown before."""
        told = self._list_silent_nodes(alive) or self.ranks.plan.job.verbosity > 0
        return "" if told else self.talk.said.quote_kept_lines()

    def _make_no_progress_error(self, why: str, fruitless: int, alive: Sequence[str]) -> MillraceError:
        where = (
            f"{format_count(len(alive), 'node')} of {len(self.ranks.allocation.nodes)} answering"
            if alive
            else "no node answers"
        )
        return MillraceError(
            f"{format_count(fruitless, 'start')} without a new result, {where}; the last time: {why}{self.talk.said.quote_kept_lines()}",
            f"everything done so far is kept in {self.ranks.plan.run_dir}: once the cause is gone, the same command resumes",
        )


def shorten_name_list(names: Sequence[str]) -> str:
    """Join names by commas; only the first eight of many."""
    return ", ".join(names[:8]) + (" ..." if len(names) > 8 else "")


def run_supervised(
    plan: RunPlan, allocation: NodeAllocation, environ: Mapping[str, str], words: Sequence[str] = ()
) -> int:
    """Run ``plan`` on ``allocation``: start this same command as a rank on each node; return the exit code.

    Args:
        words: Arguments of the ranks; empty: those of this process.

    Raises:
        MillraceError: The run did not reach its end.
    """
    if any(item.path == "-" for item in plan.use.inputs) and not find_stdin_path():
        raise RefusedError(
            "standard input is no file, and cannot be read again after a failure",
            "write it to a file first, and read that: millrace run ... < FILE",
        )
    command = make_python_command("-m", "millrace", *(words or sys.argv[1:]))
    if plan.job.work_dir:  # for the processes that clean up after ranks
        environ = {**environ, work_places.VARIABLE: str(plan.work_place)}
    try:
        return RunSupervisor(RanksRequest(plan, allocation, command, environ)).run()
    except BrokenPipeError as error:
        raise make_closed_output_error(plan.run_dir) from error
