"""Probe of a wrapper: it is run once on an input without data, while ``/proc`` shows the processes that it starts.

The input is a named pipe (or standard input), so the tool blocks at its first read, however fast it is otherwise. Each
process that opens the pipe stays there until a poll has seen it: the probe holds the pipe's other end, and puts a new
pipe in its place for those that come later. So the result does not depend on the load of the machine.
Meanwhile ``/proc`` has the arguments, the environment and the open files of each process of this run. That needs no
privilege and works in containers, where tracing is often forbidden. A wrapper that has its work done by a server
(``docker run``) shows nothing, and counts as unknown.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal, NamedTuple

from millrace.adapters.program_identity import has_tool_name, is_binary_program, is_tool_script
from millrace.adapters.tool_environment import TABLES, VariableTable
from millrace.core.tool_use import (
    ArgumentToken,
    DatabaseArg,
    InputArg,
    OutputArg,
    ScratchArg,
    ThreadsArg,
    ToolUse,
    UserCommand,
)

#: Longest wait until the tool of a wrapper shows: containers and environments may take some seconds to set up.
MAX_WAIT_SECONDS = 60.0
#: Time after which a process of the tool's name with other arguments counts as the tool: wrappers may first ask for
#: its version.
SETTLED_SECONDS = 2.0
#: Pauses between polls: a tool that refuses its arguments lives for less than a tenth of a second.
_FIRST_NAP_SECONDS, _MAX_NAP_SECONDS = 0.002, 0.01
_END_TIMEOUT_SECONDS = 3.0


class WrapperObservation(NamedTuple):
    """Result of the probe of a wrapper."""

    #: ``same``: the tool runs with the arguments of the task. ``other``: it does not. ``unseen``: it did not show.
    outcome: Literal["same", "other", "unseen"]
    #: The tool's program; or the difference, or the reason why the tool did not show, in words.
    words: str
    #: Whether the process of the wrapper has become the tool (``exec``).
    is_replaced: bool = False
    #: The program that read the input before the tool; empty: none did.
    reader: str = ""


class _ProcessInfo(NamedTuple):
    pid: int
    program: str
    arguments: tuple[str, ...]


def observe_wrapper(use: ToolUse, command: UserCommand, name: str) -> WrapperObservation:
    """Run a wrapper with the arguments of a task, and compare with them the command that it starts.

    Args:
        use: The command as the adapter of the tool understands it.
        name: The tool's name.
    """
    with tempfile.TemporaryDirectory(prefix="millrace-") as folder:
        probe = _WrapperProbe(use, command, name, Path(folder))
        try:
            return probe.watch_processes()
        except OSError as error:
            return WrapperObservation("unseen", f"it could not be started: {error.strerror or error}")
        finally:
            probe.end_processes()


class _WrapperProbe:
    def __init__(self, use: ToolUse, command: UserCommand, name: str, folder: Path) -> None:
        self._use, self._command, self._name = use, command, name
        self._pipes = [folder / f"unread{number}" for number in range(len(use.inputs))]
        for pipe in self._pipes:
            os.mkfifo(pipe, 0o600)
        self._argv = tuple(self._expand_token(token, folder) for token in use.argv)
        self._environ = {**command.environ, **use.env}
        self._stdout = folder / "stdout"
        self._process: subprocess.Popen[bytes] | None = None
        self._pids: set[int] = set()
        self._feed = -1
        #: Write ends of the pipes that processes have opened, and that end with the probe or ``_end_other_readers``.
        self._held: list[int] = []
        self._reader = ""

    def _expand_token(self, token: ArgumentToken, folder: Path) -> str:
        if isinstance(token, InputArg):
            return f"{token.prefix}{self._pipes[token.index]}"
        if isinstance(token, OutputArg):
            return f"{token.prefix}{folder / f'out{token.index}'}"
        if isinstance(token, ThreadsArg):
            return str(max(self._use.threads, 1))
        if isinstance(token, ScratchArg):
            return str(folder / "scratch")
        if isinstance(token, DatabaseArg) and self._use.prepared:
            return token.prefix + self._use.prepared.typed
        return str(token)

    def watch_processes(self) -> WrapperObservation:
        """Start the wrapper, and poll its processes until one decides the outcome."""
        stdin, self._feed = os.pipe() if any(item.stdin for item in self._use.inputs) else (-1, -1)
        try:
            with self._stdout.open("wb") as stdout:
                self._process = subprocess.Popen(
                    self._argv, executable=self._command.exe, cwd=self._command.cwd, env=self._environ, stdin=stdin if stdin >= 0 else subprocess.DEVNULL,
                    stdout=stdout, stderr=subprocess.DEVNULL, start_new_session=True,
                )  # fmt: skip
        finally:
            if stdin >= 0:
                os.close(stdin)
        return self._decide_outcome(self._process)

    def _decide_outcome(self, root: subprocess.Popen[bytes]) -> WrapperObservation:
        until, nap = time.monotonic() + MAX_WAIT_SECONDS, _FIRST_NAP_SECONDS
        since: dict[int, float] = {}
        found = WrapperObservation("unseen", "its tool was not seen among its processes")
        while time.monotonic() < until:
            is_ended = root.poll() is not None
            self._hold_readers()
            for process in self._list_tool_processes(root.pid):
                found = self._compare_process(process, root.pid)
                first = since.setdefault(process.pid, time.monotonic())
                if found.outcome == "same" or found.is_replaced or time.monotonic() > first + SETTLED_SECONDS:
                    return found
            if is_ended:
                return found
            self._end_other_readers(root.pid)
            time.sleep(nap)
            nap = min(2 * nap, _MAX_NAP_SECONDS)
        return found

    def _list_tool_processes(self, root: int) -> Iterator[_ProcessInfo]:
        """Yield the processes below ``root`` that are the tool."""
        for pid in self._list_descendants(root):
            if (process := _read_process(pid)) and (tool := self._match_tool(process)):
                yield tool

    def _list_descendants(self, root: int) -> list[int]:
        """Return the root and its descendants; remember them all for ``end_processes``."""
        parents = _read_parents()
        family, more = [root], [root]
        while more:
            more = [pid for pid, parent in parents.items() if parent in more and pid not in family]
            family += more
        self._pids.update(family)
        return family

    def _match_tool(self, process: _ProcessInfo) -> _ProcessInfo | None:
        if not process.arguments:
            return None
        first, rest = process.arguments[0], process.arguments[1:]
        if rest and is_tool_script(self._command.cwd / rest[0], self._use.adapter):
            return _ProcessInfo(process.pid, rest[0], rest[1:])
        program = Path(process.program)
        is_named = has_tool_name(program.name, self._name) or has_tool_name(Path(first).name, self._name)
        if is_named and is_binary_program(Path(f"/proc/{process.pid}/exe")):
            return _ProcessInfo(process.pid, process.program, rest)
        return None

    def _compare_process(self, process: _ProcessInfo, root: int) -> WrapperObservation:
        is_replaced = process.pid == root
        if process.arguments != self._argv[1:]:
            return WrapperObservation("other", self._describe_difference(process.arguments), is_replaced)
        table = TABLES.get(self._use.adapter, VariableTable())
        there = _read_environ(process.pid)
        wanted, real = table.select_deciding(self._environ), table.select_deciding(there)
        if there and wanted != real:
            names = sorted(name for name in wanted.keys() | real.keys() if wanted.get(name) != real.get(name))
            return WrapperObservation("other", f"it sets {', '.join(names)} in the environment", is_replaced)
        if any(output.stdout for output in self._use.outputs) and not self._is_output_direct(process.pid):
            return WrapperObservation("other", f"what {self._name} writes goes through another program", is_replaced)
        return WrapperObservation("same", process.program, is_replaced, self._reader)

    def _describe_difference(self, real: Sequence[str]) -> str:
        wanted = self._argv[1:]
        if more := Counter(real) - Counter(wanted):
            return f"{self._name} gets arguments that were not given: {' '.join([*more.elements()][:4])}"
        if less := Counter(wanted) - Counter(real):
            return f"{self._name} does not get all arguments: {' '.join([*less.elements()][:4])} is missing"
        return f"{self._name} gets the arguments in another order"

    def _is_output_direct(self, pid: int) -> bool:
        with suppress(OSError):
            return os.path.samestat(os.stat(f"/proc/{pid}/fd/1"), self._stdout.stat())
        return False

    def _hold_readers(self) -> None:
        """Let in the processes that wait for an input, and hold their end of input back; others get a new pipe."""
        for pipe in self._pipes:
            with suppress(OSError):  # no process reads it yet
                self._held.append(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
                os.mkfifo(new := pipe.with_suffix(".new"), 0o600)
                new.replace(pipe)

    def _end_other_readers(self, root: int) -> None:
        """Send end of input to programs that read it before the tool, and keep the name of the first.

        A process that ``_hold_readers`` has just let in may not have the pipe among its files before the next call.
        """
        for end in [*self._held]:
            readers = self._list_readers(root, os.fstat(end))
            if readers and not any(map(self._match_tool, readers)):
                self._reader = self._reader or Path(readers[0].program).name
                self._held.remove(end)
                os.close(end)

    def _list_readers(self, root: int, pipe: os.stat_result) -> list[_ProcessInfo]:
        return [
            each for pid in self._list_descendants(root) if (each := _read_process(pid)) and _has_open_pipe(pid, pipe)
        ]

    def end_processes(self) -> None:
        """Send the tool the end of its input, then end all processes that the wrapper started."""
        if self._feed >= 0:
            self._held.append(self._feed)
        for end in self._held:
            os.close(end)
        for pipe in self._pipes:
            with suppress(OSError):
                os.close(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
        if not (root := self._process):
            return
        for number in (signal.SIGTERM, signal.SIGKILL):
            for pid in self._pids - {root.pid}:
                if _read_session(pid) == root.pid:
                    with suppress(OSError):
                        os.kill(pid, number)
            with suppress(OSError):
                os.killpg(root.pid, number)
            with suppress(subprocess.TimeoutExpired):
                root.wait(_END_TIMEOUT_SECONDS)
        root.wait()


def _read_process(pid: int) -> _ProcessInfo | None:
    """Read what a process runs, and again if it has become another program meanwhile; None: it has ended."""
    with suppress(OSError):
        program, words = "", list[bytes]()
        while program != (now := os.readlink(f"/proc/{pid}/exe")):
            program, words = now, Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[:-1]
        return _ProcessInfo(pid, program, tuple(map(os.fsdecode, words)))
    return None


def _read_parents() -> dict[int, int]:
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (stat := _read_stat(int(name))):
            found[int(name)] = int(stat[1])
    return found


def _read_session(pid: int) -> int:
    stat = _read_stat(pid)
    return int(stat[3]) if stat else 0


def _read_stat(pid: int) -> list[str]:
    """Return the fields of ``/proc/PID/stat`` behind the name: state, parent, group, session; empty: no process."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].decode().split()
    return []


def _read_environ(pid: int) -> Mapping[str, str]:
    with suppress(OSError):
        entries = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        return {
            os.fsdecode(name): os.fsdecode(value)
            for name, found, value in (each.partition(b"=") for each in entries)
            if found
        }
    return {}


def _has_open_pipe(pid: int, pipe: os.stat_result) -> bool:
    with suppress(OSError), os.scandir(f"/proc/{pid}/fd") as files:
        return any(os.path.samestat(os.stat(each.path), pipe) for each in files)
    return False
