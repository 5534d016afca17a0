"""One start of all ranks of a run, watched until its end, its failure or its loss.

The output of the ranks is relayed to the user. Each byte of standard output is relayed to the user once, over all
restarts.
"""

from __future__ import annotations

import os
import re
import secrets
import selectors
import signal
import stat
import subprocess
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

import msgspec

from millrace.core.wait_loop import WaitDeadline, wait_until
from millrace.host import core_allocation
from millrace.host.process_handle import open_process_end
from millrace.host.signals import StopSignals
from millrace.host.work_places import LauncherFolder
from millrace.launch import batch_host, launch_commands, node_shell
from millrace.launch.heartbeat import STDIN, CoordinatorSigns
from millrace.launch.node_allocation import KEY, SUPERVISED, NodeAllocation
from millrace.planning.run_plan import RunPlan

#: Open MPI frames its messages by lines of dashes; its daemons and libraries begin lines with their names.
FRAME = re.compile(rb"-{60,}\s*")
LAUNCHERS = re.compile(rb"\[[^\]\s]+:\d+\] |\[[^\]\s]+\]\[\[\d+,\d+\],\d+\]|Error in MPI_|\[proxy:|\[mpiexec@|(prterun|prted|mpirun|mpiexec|srun|slurmstepd|orterun|ORTE|PRTE)\b|Abort\(")  # fmt: skip

#: Most lines of a launcher that are kept.
MAX_KEPT_LINES = 40


class StdoutRelay:
    """The relay of standard output, which the coordinator writes to a file, in each start from the first byte on.

    The launcher's pipe cannot carry it: some launchers write messages of their own there when a node is lost.

    Args:
        path: The file.
        descriptor: Receives its bytes, each once.
        begins: Called before the first byte.
    """

    def __init__(self, path: Path, descriptor: int, begins: Callable[[], None] = lambda: None) -> None:
        self._path, self._to, self._begins = path, descriptor, begins
        #: Bytes passed on so far.
        self.passed = 0

    def relay_new_output(self) -> None:
        """Write the new bytes of the file to the descriptor.

        Raises:
            BrokenPipeError: The reader has closed the pipe.
        """
        with self._path.open("rb", buffering=0) as file:
            file.seek(self.passed)
            while content := memoryview(file.read(1 << 20)):
                if not self.passed:
                    self._begins()
                while content:
                    written = os.write(self._to, content)
                    self.passed += written
                    content = content[written:]


class LauncherOutputRelay:
    """The relay of the launcher's pipes to standard error.

    Messages of the launcher itself are kept apart, to be quoted when a start fails: they may tell the cause.

    Args:
        descriptor: Receives the lines.
        all_of_it: Whether lines of the launcher are relayed, too.
    """

    def __init__(self, descriptor: int, *, all_of_it: bool) -> None:
        self._to, self._all = descriptor, all_of_it
        self._rest = b""
        self._framed = False
        #: The last lines of the launcher in this start.
        self.kept: deque[str] = deque(maxlen=MAX_KEPT_LINES)

    def reset_for_start(self) -> None:
        """Forget the kept lines and the partial line of an earlier start."""
        self._rest, self._framed = b"", False
        self.kept.clear()

    def quote_kept_lines(self) -> str:
        """Return the kept lines, indented, to be put below a message."""
        return "".join(f"\n  {line}" for line in self.kept if line and not FRAME.fullmatch(line.encode()))

    def relay_content(self, content: bytes) -> None:
        """Relay the complete lines of the run itself; empty content marks the end of the pipe."""
        content = content.replace(b"\0", b"")  # which Open MPI sends for a lost process
        lines = (self._rest + content).splitlines(keepends=True)
        self._rest = b""
        if content and lines and not lines[-1].endswith((b"\n", b"\r")):
            self._rest = lines.pop()
        for line in lines:
            frame = FRAME.fullmatch(line) is not None
            if frame:
                self._framed = not self._framed
            if frame or self._framed or LAUNCHERS.match(line):
                self.kept.append(line.decode(errors="replace").rstrip())
                if not self._all:
                    continue
            with suppress(OSError):  # a closed stderr must not end a run that goes well
                os.write(self._to, line)


#: Seconds between reads of the heartbeat.
TICK_SECONDS = 0.2

#: Longest time between two ticks, in seconds; beyond, this process was stopped (``scontrol suspend``, SIGSTOP), or the
#: machine slept.
MAX_TICK_GAP_SECONDS = 2.0

#: Seconds that the launcher gets to exit by itself once the run is at its end.
MAX_LAUNCHER_EXIT_SECONDS = 5.0

#: Seconds that a run gets to stop after a signal: its own time limit for that, and some more.
MAX_STOP_SECONDS = 40.0


class RanksRequest(msgspec.Struct, frozen=True):
    """The ranks to start: the plan, the nodes, the command and its environment.

    Args:
        words: The command that becomes a rank.
    """

    plan: RunPlan
    allocation: NodeAllocation
    words: Sequence[str]
    environ: Mapping[str, str]


class SupervisorChannels(msgspec.Struct, frozen=True):
    """The channels between a supervisor and all its starts."""

    interrupt: StopSignals
    signs: CoordinatorSigns
    #: The relays of standard output, and of the launcher's and the ranks' messages.
    output: StdoutRelay
    said: LauncherOutputRelay


class JobStart:
    """One start of all ranks, from the launcher's start to its end."""

    def __init__(
        self,
        ranks: RanksRequest,
        talk: SupervisorChannels,
        launcher: launch_commands.RankLauncher,
        alive: Sequence[str],
        token: str,
        *,
        patience: float,
    ) -> None:
        self._talk, self._launcher, self._nodes, self._patience = talk, launcher, alive, patience
        self._folder = LauncherFolder(token)
        environ = launch_commands.build_launcher_environ(ranks.environ, token, launcher, self._folder.path, alive)
        environ |= {SUPERVISED: f"{patience:.0f}", KEY: secrets.token_hex(32), **talk.signs.environ}
        if node_shell.is_node_shell_needed(ranks.allocation, ranks.environ):
            environ |= node_shell.build_node_shell_environ(launcher.kind, self._folder.path)
        environ |= core_allocation.make_grant_variable(ranks.environ, core_allocation.read_batch_file)
        if path := find_stdin_path():
            environ[STDIN] = path
        words = launch_commands.build_ranks_command(
            launcher, ranks.allocation, alive, ranks.words, cwd=ranks.plan.command.cwd,
            forward=launch_commands.list_forwarded_variables(environ),
        )  # fmt: skip
        #: The run's exit code, once the coordinator has written it.
        self.code: int | None = None
        #: Whether the launcher has exited; the time from which it could have; its deadline once it is asked to stop.
        self._has_ended = False
        self._finished: float | None = None
        self._stopping: WaitDeadline | None = None
        for part in (talk.signs, talk.said):
            part.reset_for_start()
        #: Time of the last tick.
        self._looked = time.monotonic()
        # First, as its step takes a second to be on the other node. If the launcher does not start, the guard ends it.
        self._host_watch = batch_host.start_watch(ranks.allocation, alive, environ)
        self._process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environ, start_new_session=True,
                cwd=ranks.plan.command.cwd, bufsize=0,
            )  # fmt: skip

    def watch_until_ended(self) -> str:
        """Relay output until the start has ended; return the reason. ``code`` is set if the run is at its end."""
        with selectors.DefaultSelector() as selector, ExitStack() as stack:
            ended = open_process_end(self._process.pid)
            stack.callback(os.close, ended)
            stack.callback(self._folder.close)
            stack.callback(self._kill_launcher)
            pipe = self._process.stdout
            assert pipe
            stack.enter_context(pipe)
            os.set_blocking(pipe.fileno(), False)
            selector.register(pipe, selectors.EVENT_READ, self._talk.said.relay_content)
            selector.register(ended, selectors.EVENT_READ, None)
            return wait_until(lambda: self._watch_tick(selector))

    def _watch_tick(self, selector: selectors.BaseSelector) -> str:
        """Relay output and check the signs of life, for one tick; return the reason once the start has ended."""
        signs = self._talk.signs
        for key, _ in selector.select(TICK_SECONDS):
            if key.data is None:
                self._has_ended = True
                selector.unregister(key.fileobj)
            else:
                _relay_pipe_content(selector, key)
        signs.read_heartbeat()
        self.code = signs.read_exit_code()
        self._talk.output.relay_new_output()
        self._discount_own_standstill()
        if self._has_ended and not _has_open_pipes(selector):
            return self._describe_launcher_ending()
        if self.code is not None or self._has_ended:
            # Children of a killed launcher may hold the pipes open.
            self._finished = self._finished or time.monotonic()
            if time.monotonic() - self._finished > MAX_LAUNCHER_EXIT_SECONDS * (1.0 if self.code is not None else 0.1):
                return self._describe_launcher_ending()
        elif signs.is_restart_requested():
            return "a part of the job is lost"
        elif silence := signs.get_excessive_silence(len(self._nodes), self._patience):
            return f"no sign of life from the coordinator for {silence:.0f} s"
        elif took := signs.get_excessive_mpi_wait(len(self._nodes), self._patience):
            return f"MPI has not started on all nodes within {took:.0f} s"
        return "asked to stop" if self._should_stop_waiting() else ""

    def _discount_own_standstill(self) -> None:
        """Subtract time in which this process was stopped from the silence of the coordinator."""
        now = time.monotonic()
        if now - self._looked > MAX_TICK_GAP_SECONDS:
            self._talk.signs.discount_standstill(now - self._looked)
        self._looked = now

    def _should_stop_waiting(self) -> bool:
        """Forward stop signals to the coordinator; return whether to wait no longer for its end."""
        signs, interrupt = self._talk.signs, self._talk.interrupt
        if not interrupt.signal:
            return False
        self._stopping = self._stopping or WaitDeadline(MAX_STOP_SECONDS)
        signs.pass_on_signals([interrupt.signal] * interrupt.count)
        return self._stopping.is_over or interrupt.count > 2 or (interrupt.count > 1 and not signs.alive)

    def _describe_launcher_ending(self) -> str:
        name = Path(self._launcher.program).name
        status = self._process.poll()
        if status is None:
            return f"{name} did not end"
        if status < 0:
            with suppress(ValueError):
                return f"{name} was killed by {signal.Signals(-status).name}"
        return f"{name} ended with status {status} before the run was done"

    def _kill_launcher(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        if self._host_watch:
            batch_host.end_watch(self._host_watch)


def _relay_pipe_content(selector: selectors.BaseSelector, key: selectors.SelectorKey) -> None:
    take: Callable[[bytes], None] = key.data
    try:
        content = os.read(key.fd, 1 << 18)
    except BlockingIOError:
        return
    take(content)
    if not content:
        selector.unregister(key.fileobj)


def _has_open_pipes(selector: selectors.BaseSelector) -> bool:
    return any(key.data is not None for key in selector.get_map().values())


def find_stdin_path() -> str:
    """Find the path of the file on standard input, which each start can read anew; empty if it is no regular file."""
    with suppress(OSError):
        if stat.S_ISREG(os.fstat(0).st_mode) and not os.lseek(0, 0, os.SEEK_CUR):
            path = os.readlink("/proc/self/fd/0")
            return path if os.path.samestat(os.stat(path), os.fstat(0)) else ""
    return ""
