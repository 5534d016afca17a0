"""The supervisor: starts the ranks of a run, and starts them again until the run is at its end.

It stands outside MPI, whose implementations differ in what survives a lost process, and some of which report success
after one. So it trusts no exit status, only what the coordinator writes when everything is done. Whatever dies or
freezes, the way on is the same: end what is left on every node, and start again, from the journals, on the nodes that
answer.
"""

from __future__ import annotations

import os
import secrets
import selectors
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from pathlib import Path

from millrace import debug, earlier_run, lock, run_folder
from millrace.errors import ExitCode, MillraceError, RefusedError
from millrace.interrupt import Interrupt, nobody_reads
from millrace.launch import command, nodes
from millrace.launch.allocation import SUPERVISED, Allocation
from millrace.launch.ending import ending
from millrace.launch.guard import Guard
from millrace.launch.relay import Output, Words
from millrace.launch.watch import STDIN, Signs
from millrace.lock import Lock
from millrace.own import why_not_own
from millrace.plan import cores, granted, workplace
from millrace.plan.plan import Plan
from millrace.plan.privacy import folder_mode
from millrace.report.words import count
from millrace.rundir import RunDir
from millrace.storage.launcher_folder import LauncherFolder
from millrace.waiting import Deadline, until

#: Starts without a new result after which there is no hope.
MOST_FRUITLESS = 5

#: A file that is in the launch folder from the beginning.
LOCK = "lock"

#: Seconds between looks at the heartbeat.
TICK_SECONDS = 0.2

#: Seconds that the launcher gets to end by itself once the run is at its end.
LAST_WORDS_SECONDS = 5.0

#: Seconds that another supervisor's guard gets to clean up.
TAKEOVER_SECONDS = 10.0

#: Seconds that a run which was asked to stop gets to do so: its own time for that, and some more.
STOP_SECONDS = 40.0


@dataclass
class Supervisor:
    """Runs one plan on an allocation; see the module.

    Args:
        words: The command that becomes a rank.
    """

    plan: Plan
    allocation: Allocation
    words: Sequence[str]
    environ: Mapping[str, str]

    def run(self) -> int:
        """Start, watch and start again until done; the exit code.

        Raises:
            MillraceError: Nothing helps, or the run was stopped.
        """
        self.rundir = RunDir(self.plan.run_dir)
        if run_folder.is_running(self.rundir):
            run_folder.take(self.rundir, folder_mode(self.plan)).close()  # says who has it
        launcher = command.choose(self.environ, command.library_version())
        token = secrets.token_hex(8)
        with ExitStack() as stack:
            self.interrupt = stack.enter_context(Interrupt())
            self._put_back(token)  # what a start that was killed had set aside
            if self.plan.job.fresh:
                with closing(run_folder.take(self.rundir, folder_mode(self.plan))):
                    earlier_run.set_aside(self.rundir)
                stack.callback(self._put_back, token)
            folder = launch_folder(self.plan.run_dir)
            held = take(folder)
            stack.callback(held.close)
            guard = Guard(folder, held.descriptor, token, self.allocation, self.environ)
            stack.callback(guard.close)
            held.hand_to(guard.pid)  # which lives longer than this process, whatever happens
            held.keep(self._lost)
            self.signs, self.output = Signs(folder), Output(folder / "stdout", 1)
            self.said = Words(2, all_of_it=self.plan.job.verbosity > 0)
            self._say(
                f"{count(len(self.allocation.nodes), 'node')} of {self.allocation.words}; ranks are started by {launcher.program}"
            )
            return self._until_done(launcher, token)

    def _put_back(self, token: str) -> None:
        """Let an earlier run be there again, if nothing has begun in its place."""
        if self.rundir.earlier.exists():
            with suppress(RefusedError), closing(run_folder.take(self.rundir, job=token)):
                earlier_run.put_back(self.rundir)

    def _lost(self, owner: str) -> None:
        self._say(f"{self.rundir.path}: {owner} has taken this run over")
        os.kill(os.getpid(), signal.SIGTERM)

    def _say(self, text: str) -> None:
        debug.note("launch", text)
        if self.plan.job.verbosity >= 0:
            print(f"millrace: {text}", file=sys.stderr, flush=True)

    def _until_done(self, launcher: command.Launcher, token: str) -> int:
        alive, fruitless = self.allocation.nodes, 0
        while True:
            before = self.signs.records
            start = Start(self, launcher, alive, token, patience=2.0**fruitless)
            why = start.watch()
            debug.note("launch", f"start on {len(alive)} nodes: {why}; exit code told: {start.code}")
            if start.code is not None and (start.code or self._is_whole()):
                self._tidy(start.code, token)
                if lost := self._not_answering(alive):
                    # Said when it was seen, which may be hours ago.
                    self._say(f"{lost} had no part in the end of this run: not answering")
                return start.code
            if not self.interrupt.signal and (ends := ending(self.allocation, self.environ)):
                self._say(f"Slurm ends this job: {ends}")
                self.interrupt.note(signal.SIGTERM)
            if self.interrupt.signal:
                raise self.interrupt.error(self.plan.run_dir)
            fruitless = 0 if self.signs.records > before else fruitless + 1
            alive = self._answering(token)
            if self.interrupt.signal:
                raise self.interrupt.error(self.plan.run_dir)
            if fruitless >= MOST_FRUITLESS or not alive:
                raise self._hopeless(why, fruitless, alive)
            self._say(self._restart_words(why, alive) + (self._launchers_words(alive) if fruitless else ""))
            self._pause(fruitless - 1)

    def _is_whole(self) -> bool:
        """Whether all that went to standard output has come by here."""
        try:
            complete = self.rundir.read_complete(self.rundir.read_manifest())
        except MillraceError:
            complete = None
        if complete is None:
            return True  # an earlier run had done everything
        wanted = sum(complete.outputs.get(output.name, 0) for output in self.plan.use.outputs if output.path == "-")
        return self.output.passed >= wanted

    def _tidy(self, code: int, token: str) -> None:
        """Remove the directory of a run that is done: the coordinator leaves that to us, who know that it is."""
        if code == ExitCode.DONE and not self.plan.job.keep_run_dir and self.rundir.complete.exists():
            if run_folder.is_running(self.rundir, token):  # a coordinator that hangs, with everything written
                nodes.sweep_all(self.allocation, self.allocation.nodes, token, self.environ)
            held = run_folder.take(self.rundir, job=token)
            run_folder.remove(self.rundir)
            held.close()

    def _answering(self, token: str) -> tuple[str, ...]:
        """End what the last start left; the nodes that answer, for which we wait if none does."""
        for turn in range(1, MOST_FRUITLESS + 1):
            alive, lacking = nodes.sweep_all(
                self.allocation, self.allocation.nodes, token, self.environ, self.signs.folder / LOCK
            )
            if lacking and not self.signs.alive:
                raise self._not_shared(lacking)
            if alive or self.interrupt.signal or turn == MOST_FRUITLESS:
                break
            self._pause(turn)
        return alive

    def _not_shared(self, lacking: Sequence[str]) -> MillraceError:
        folder = self.plan.run_dir.parent
        return RefusedError(
            f"{some(lacking)}: does not see what is in {folder} here, where the results are to be kept",
            "run it in a folder that all nodes share, at the same path, or name one for the results with --run-dir",
        )

    def _pause(self, turn: int) -> None:
        """Nothing before the first new start; a fault that stays gets some time to go away."""
        until(lambda: self.interrupt.signal, 2.0 ** (turn - 1) if turn > 0 else 0.0, nap=TICK_SECONDS)

    def _not_answering(self, alive: Sequence[str]) -> str:
        return some([node for node in self.allocation.nodes if node not in alive])

    def _restart_words(self, why: str, alive: Sequence[str]) -> str:
        lost = self._not_answering(alive)
        gone = f" ({lost} not answering)" if lost else ""
        return f"{why}; starting again on {count(len(alive), 'node')}{gone}; what is done is kept"

    def _launchers_words(self, alive: Sequence[str]) -> str:
        """What the launcher said, where it may be all that tells why a start came to nothing."""
        told = self._not_answering(alive) or self.plan.job.verbosity > 0
        return "" if told else self.said.quoted()

    def _hopeless(self, why: str, fruitless: int, alive: Sequence[str]) -> MillraceError:
        where = f"{count(len(alive), 'node')} of {len(self.allocation.nodes)} answering" if alive else "no node answers"
        return MillraceError(
            f"{count(fruitless, 'start')} without a new result, {where}; the last time: {why}{self.said.quoted()}",
            f"everything done so far is kept in {self.plan.run_dir}: once the cause is gone, the same command resumes",
        )


class Start:
    """One start of all ranks, watched until it ends one way or the other."""

    def __init__(
        self, supervisor: Supervisor, launcher: command.Launcher, alive: Sequence[str], token: str, *, patience: float
    ) -> None:
        self._s, self._launcher, self._nodes, self._patience = supervisor, launcher, alive, patience
        self._folder = LauncherFolder(token)
        environ = command.environ_of_ranks(supervisor.environ, token, launcher, self._folder.path)
        environ |= {SUPERVISED: f"{patience:.0f}", **supervisor.signs.environ}
        environ |= granted.on_nodes(supervisor.environ, cores.read)
        if path := _stdin_path():
            environ[STDIN] = path
        words = command.ranks(
            launcher, supervisor.allocation, alive, supervisor.words, cwd=supervisor.plan.command.cwd,
            forward=command.forwarded(environ),
        )  # fmt: skip
        #: The run's exit code, once the coordinator has told it.
        self.code: int | None = None
        #: Whether the launcher has ended, since when it could have, and until when it may, once it is asked to.
        self._has_ended = False
        self._finished: float | None = None
        self._stopping: Deadline | None = None
        for part in (supervisor.signs, supervisor.said):
            part.begin()
        self._process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environ, start_new_session=True,
                cwd=supervisor.plan.command.cwd, bufsize=0,
            )  # fmt: skip

    def watch(self) -> str:
        """Carry words until the start has ended; why it did, for the user. `code` is set if the run is at its end."""
        with selectors.DefaultSelector() as selector, ExitStack() as stack:
            ended = os.pidfd_open(self._process.pid)
            stack.callback(os.close, ended)
            stack.callback(self._folder.close)
            stack.callback(self._kill)
            pipe = self._process.stdout
            assert pipe
            stack.enter_context(pipe)
            os.set_blocking(pipe.fileno(), False)
            selector.register(pipe, selectors.EVENT_READ, self._s.said.take)
            selector.register(ended, selectors.EVENT_READ, None)
            return until(lambda: self._look(selector))

    def _look(self, selector: selectors.BaseSelector) -> str:
        """Carry words for a moment; why the start has ended, once it has."""
        signs = self._s.signs
        for key, _ in selector.select(TICK_SECONDS):
            if key.data is None:
                self._has_ended = True
                selector.unregister(key.fileobj)
            else:
                _carry(selector, key)
        signs.listen()
        self.code = signs.code()
        self._s.output.pump()
        if self._has_ended and not _pipes_are_open(selector):
            return self._ending()
        if self.code is not None or self._has_ended:
            # What a killed launcher has started may hold the pipes open.
            self._finished = self._finished or time.monotonic()
            if time.monotonic() - self._finished > LAST_WORDS_SECONDS * (1.0 if self.code is not None else 0.1):
                return self._ending()
        elif signs.again():
            return "a part of the job is lost"
        elif silence := signs.silent_for(len(self._nodes), self._patience):
            return f"no sign of life from the coordinator for {silence:.0f} s"
        elif took := signs.waits_for_mpi(len(self._nodes), self._patience):
            return f"MPI has not started on all nodes within {took:.0f} s"
        return "asked to stop" if self._is_stopped() else ""

    def _is_stopped(self) -> bool:
        """Pass on what asks to stop; whether it is of no use to wait any longer."""
        signs, interrupt = self._s.signs, self._s.interrupt
        if not interrupt.signal:
            return False
        self._stopping = self._stopping or Deadline(STOP_SECONDS)
        signs.stop([interrupt.signal] * interrupt.count)
        return self._stopping.is_over or interrupt.count > 2 or (interrupt.count > 1 and not signs.alive)

    def _ending(self) -> str:
        name = Path(self._launcher.program).name
        status = self._process.poll()
        if status is None:
            return f"{name} did not end"
        if status < 0:
            with suppress(ValueError):
                return f"{name} was killed by {signal.Signals(-status).name}"
        return f"{name} ended with status {status} before the run was done"

    def _kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def some(names: Sequence[str]) -> str:
    """The first of many names."""
    return ", ".join(names[:8]) + (" ..." if len(names) > 8 else "")


def _carry(selector: selectors.BaseSelector, key: selectors.SelectorKey) -> None:
    take: Callable[[bytes], None] = key.data
    try:
        content = os.read(key.fd, 1 << 18)
    except BlockingIOError:
        return
    take(content)
    if not content:
        selector.unregister(key.fileobj)


def _pipes_are_open(selector: selectors.BaseSelector) -> bool:
    return any(key.data is not None for key in selector.get_map().values())


def _stdin_path() -> str:
    """The file on standard input, which each start can read from its beginning; empty if it is something else."""
    with suppress(OSError):
        if stat.S_ISREG(os.fstat(0).st_mode) and not os.lseek(0, 0, os.SEEK_CUR):
            path = os.readlink("/proc/self/fd/0")
            return path if os.path.samestat(os.stat(path), os.fstat(0)) else ""
    return ""


def launch_folder(run_dir: Path) -> Path:
    """Where supervisor and coordinator meet: beside the run directory, which may go before the run is at its end."""
    return run_dir.with_name(run_dir.name + ".launch")


def take(folder: Path) -> Lock:
    """Make the folder, or take over that of a dead supervisor.

    Raises:
        RefusedError: Another supervisor has it, or it cannot be made.
    """
    # The guard of one that was killed just now holds it until everything is cleaned up.
    held = lock.HeldError(None)

    def look() -> Lock | None:
        nonlocal held
        try:
            return _taken(folder)
        except lock.HeldError as error:
            held = error
            return None

    if found := until(look, TAKEOVER_SECONDS, nap=TICK_SECONDS):
        return found
    raise RefusedError(
        f"{folder}: another millrace ({held.words}) is running this now",
        "wait for it; millrace status tells how far it is",
    ) from held


def _taken(folder: Path) -> Lock:
    """Make the folder, and take it."""
    try:
        folder.mkdir(0o700, parents=True, exist_ok=True)
        # Another's would say for the coordinator how the run has ended, and show its output.
        if why := why_not_own(folder):
            raise RefusedError(f"{folder}: {why}", "name another place with --run-dir")
        return lock.take(folder / LOCK)
    except FileNotFoundError:
        return _taken(folder)  # removed just now
    except OSError as error:
        raise RefusedError(f"{folder}: {error.strerror}", "name a place that can be written with --run-dir") from error


def run(plan: Plan, allocation: Allocation, environ: Mapping[str, str]) -> int:
    """Run ``plan`` on ``allocation`` by starting this very command as a rank on each node; the exit code.

    Raises:
        MillraceError: It did not get to its end.
    """
    if any(item.path == "-" for item in plan.use.inputs) and not _stdin_path():
        raise RefusedError(
            "standard input is no file, and cannot be read again after a failure",
            "write it to a file first, and read that: millrace run ... < FILE",
        )
    words = [sys.executable, "-P", "-m", "millrace", *sys.argv[1:]]
    if plan.job.work_dir:  # for all that clean up after ranks
        environ = {**environ, workplace.VARIABLE: str(plan.work_place)}
    try:
        return Supervisor(plan, allocation, words, environ).run()
    except BrokenPipeError as error:
        raise nobody_reads(plan.run_dir) from error
