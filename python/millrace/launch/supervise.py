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

from millrace import debug, earlier_run, run_folder
from millrace.errors import ExitCode, MillraceError, RefusedError
from millrace.interrupt import Interrupt, nobody_reads
from millrace.launch import command, nodes, reachability
from millrace.launch.allocation import Allocation
from millrace.launch.ending import ending
from millrace.launch.folder import LOCK, launch_folder, take
from millrace.launch.guard import Guard, remove_empty
from millrace.launch.relay import Output, Words
from millrace.launch.start import TICK_SECONDS, Ranks, Start, Talk, stdin_path
from millrace.launch.watch import Signs
from millrace.output.stdout_record import record_stdout, refuse_appending
from millrace.own_python import python_command
from millrace.plan import workplace
from millrace.plan.plan import Plan
from millrace.plan.privacy import folder_mode
from millrace.report.words import count
from millrace.rundir import RunDir
from millrace.waiting import until

#: Consecutive starts without a new result after which the run is given up.
MOST_FRUITLESS = 5


class Supervisor:
    """The supervisor of one plan on an allocation; see the module."""

    def __init__(self, ranks: Ranks) -> None:
        self.ranks = ranks
        #: Nodes that answer and do not reach the others.
        self._blocked: set[str] = set()

    def run(self) -> int:
        """Start, watch and restart the ranks until the run is done; return its exit code.

        Raises:
            MillraceError: Restarts bring no progress, or the run was stopped by a signal.
        """
        self.rundir = RunDir(self.ranks.plan.run_dir)
        if run_folder.is_running(self.rundir):
            run_folder.take(self.rundir, folder_mode(self.ranks.plan)).close()  # the error names its owner
        launcher = command.choose_for(self.ranks.allocation, self.ranks.environ)
        token = secrets.token_hex(8)
        with ExitStack() as stack:
            interrupt = stack.enter_context(Interrupt())
            self._put_back(token)  # an earlier run that a killed start had set aside
            if self.ranks.plan.job.fresh:
                with closing(run_folder.take(self.rundir, folder_mode(self.ranks.plan))):
                    earlier_run.set_aside(self.rundir)
                stack.callback(self._put_back, token)
            elif self.rundir.holds_a_run():
                refuse_appending(self.ranks.plan.use, self.rundir)
            folder = launch_folder(self.ranks.plan.run_dir)
            held = take(folder)
            stack.callback(remove_empty, folder)
            stack.callback(held.close)
            guard = Guard(folder, held.descriptor, token, self.ranks.allocation, self.ranks.environ)
            stack.callback(guard.close)
            held.hand_to(guard.pid)  # the guard outlives this process, whatever happens
            held.keep(self._lost)
            output = Output(folder / "stdout", 1, partial(record_stdout, self.rundir))
            said = Words(2, all_of_it=self.ranks.plan.job.verbosity > 0)
            self.talk = Talk(interrupt, Signs(folder), output, said)
            self._say(
                f"{count(len(self.ranks.allocation.nodes), 'node')} of {self.ranks.allocation.words}; ranks are started by {launcher.program}"
            )
            return self._until_done(launcher, token)

    def _put_back(self, token: str) -> None:
        """Restore an earlier run that was set aside, if no new one has begun in its place."""
        if self.rundir.earlier.exists():
            with suppress(RefusedError), closing(run_folder.take(self.rundir, job=token)):
                earlier_run.put_back(self.rundir)

    def _lost(self, owner: str) -> None:
        self._say(f"{self.rundir.path}: {owner} has taken this run over")
        os.kill(os.getpid(), signal.SIGTERM)

    def _say(self, text: str) -> None:
        debug.note("launch", text)
        if self.ranks.plan.job.verbosity >= 0:
            print(f"millrace: {text}", file=sys.stderr, flush=True)

    def _until_done(self, launcher: command.Launcher, token: str) -> int:
        alive, fruitless = self.ranks.allocation.nodes, 0
        while True:
            before = self.talk.signs.records
            start = Start(self.ranks, self.talk, launcher, alive, token, patience=2.0**fruitless)
            why = start.watch()
            debug.note("launch", f"start on {len(alive)} nodes: {why}; exit code told: {start.code}")
            if start.code is not None and (start.code or self._is_whole()):
                self._tidy(start.code, token)
                if lost := self._not_answering(alive):
                    # The loss was reported when it was seen, perhaps hours ago.
                    self._say(f"{lost} had no part in the end of this run: not answering")
                return start.code
            self._check_wanted()
            fruitless = 0 if self.talk.signs.records > before else fruitless + 1
            alive = self._answering(token)
            if fruitless == 1:
                self._find_blocked(alive)
            alive = tuple(node for node in alive if node not in self._blocked)
            self._check_wanted()  # Slurm may have ended the job between the starts, when no step was running
            if fruitless >= MOST_FRUITLESS or not alive:
                raise self._hopeless(why, fruitless, alive)
            self._say(self._restart_words(why, alive) + (self._launchers_words(alive) if fruitless else ""))
            self._pause(fruitless - 1)

    def _check_wanted(self) -> None:
        """Check that no signal has asked to stop, and that Slurm does not end the job.

        Raises:
            MillraceError: The run has to stop.
        """
        interrupt = self.talk.interrupt
        if not interrupt.signal and (ends := ending(self.ranks.allocation, self.ranks.environ)):
            self._say(f"Slurm ends this job: {ends}")
            interrupt.note(signal.SIGTERM)
        if interrupt.signal:
            raise interrupt.error(self.ranks.plan.run_dir)

    def _is_whole(self) -> bool:
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

    def _tidy(self, code: int, token: str) -> None:
        """Remove the directory of a run that is done: the coordinator leaves that to the supervisor."""
        if code == ExitCode.DONE and not self.ranks.plan.job.keep_run_dir and self.rundir.complete.exists():
            if run_folder.is_running(self.rundir, token):  # a coordinator that hangs, with everything written
                nodes.sweep_all(self.ranks.allocation, self.ranks.allocation.nodes, token, self.ranks.environ)
            held = run_folder.take(self.rundir, job=token)
            run_folder.remove(self.rundir)
            held.close()

    def _answering(self, token: str) -> tuple[str, ...]:
        """Sweep all nodes; return those that answer; if none does, wait and retry.

        Raises:
            RefusedError: Some nodes do not see the folder of the run.
        """
        for turn in range(1, MOST_FRUITLESS + 1):
            alive, lacking = nodes.sweep_all(
                self.ranks.allocation,
                self.ranks.allocation.nodes,
                token,
                self.ranks.environ,
                self.talk.signs.folder / LOCK,
            )
            if lacking and not self.talk.signs.alive:
                raise self._not_shared(lacking)
            if alive or self.talk.interrupt.signal or turn == MOST_FRUITLESS:
                break
            self._pause(turn)
        return alive

    def _find_blocked(self, alive: Sequence[str]) -> None:
        """Exclude nodes that answer but do not reach the first one by TCP: no start would succeed with them.

        Raises:
            RefusedError: No node reaches the first one.
        """
        blocked = reachability.find_blocked(self.ranks.allocation, alive, self.ranks.environ)
        if not blocked:
            return
        why = next(iter(blocked.values()))
        if len(blocked) >= min(len(alive) - 1, reachability.MAX_ASKED):
            raise RefusedError(
                f"{alive[0]}: the other nodes do not reach it by TCP ({some([*blocked])}: {why})",
                "MPI connects the nodes at ports that it chooses: let the firewall pass all of TCP between them; or name another "
                "host first, or these alone which reach each other, with --hosts; without IPv4 or IPv6 on some of them: "
                "OMPI_MCA_btl_tcp_disable_family=4 or 6",
            )
        self._blocked |= blocked.keys()
        self._say(f"{some([*blocked])}: left out, as {alive[0]} is not reached from there by TCP: {why}")

    def _not_shared(self, lacking: Sequence[str]) -> MillraceError:
        folder = self.ranks.plan.run_dir.parent
        return RefusedError(
            f"{some(lacking)}: does not see what is in {folder} here, where the results are to be kept",
            "run it in a folder that all nodes share, at the same path, or name one for the results with --run-dir",
        )

    def _pause(self, turn: int) -> None:
        """Wait before a restart: not before the first one, then 1 s, 2 s, 4 s, ... (back-off)."""
        until(lambda: self.talk.interrupt.signal, 2.0 ** (turn - 1) if turn > 0 else 0.0, nap=TICK_SECONDS)

    def _not_answering(self, alive: Sequence[str]) -> str:
        return some([node for node in self.ranks.allocation.nodes if node not in alive and node not in self._blocked])

    def _restart_words(self, why: str, alive: Sequence[str]) -> str:
        lost = self._not_answering(alive)
        gone = f" ({lost} not answering)" if lost else ""
        return f"{why}; starting again on {count(len(alive), 'node')}{gone}; what is done is kept"

    def _launchers_words(self, alive: Sequence[str]) -> str:
        """Quote the launcher's messages if nothing else explains a failed start, and they were not shown before."""
        told = self._not_answering(alive) or self.ranks.plan.job.verbosity > 0
        return "" if told else self.talk.said.quoted()

    def _hopeless(self, why: str, fruitless: int, alive: Sequence[str]) -> MillraceError:
        where = (
            f"{count(len(alive), 'node')} of {len(self.ranks.allocation.nodes)} answering"
            if alive
            else "no node answers"
        )
        return MillraceError(
            f"{count(fruitless, 'start')} without a new result, {where}; the last time: {why}{self.talk.said.quoted()}",
            f"everything done so far is kept in {self.ranks.plan.run_dir}: once the cause is gone, the same command resumes",
        )


def some(names: Sequence[str]) -> str:
    """Join names by commas; only the first eight of many."""
    return ", ".join(names[:8]) + (" ..." if len(names) > 8 else "")


def run(plan: Plan, allocation: Allocation, environ: Mapping[str, str]) -> int:
    """Run ``plan`` on ``allocation``: start this same command as a rank on each node; return the exit code.

    Raises:
        MillraceError: The run did not reach its end.
    """
    if any(item.path == "-" for item in plan.use.inputs) and not stdin_path():
        raise RefusedError(
            "standard input is no file, and cannot be read again after a failure",
            "write it to a file first, and read that: millrace run ... < FILE",
        )
    words = python_command("-m", "millrace", *sys.argv[1:])
    if plan.job.work_dir:  # for the processes that clean up after ranks
        environ = {**environ, workplace.VARIABLE: str(plan.work_place)}
    try:
        return Supervisor(Ranks(plan, allocation, words, environ)).run()
    except BrokenPipeError as error:
        raise nobody_reads(plan.run_dir) from error
