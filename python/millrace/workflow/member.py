"""The process of one phase, from its start to its exit code."""

from __future__ import annotations

import atexit
import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from millrace.errors import ExitCode, MillraceError
from millrace.interrupt import STOPPING, StoppedBySignal
from millrace.launch.allocation import PHASE, Allocation
from millrace.launch.supervisor_link import Supervision
from millrace.rundir import write_whole
from millrace.terminal import unescaped
from millrace.workflow import filtering, follow, planning
from millrace.workflow.chain import Chain
from millrace.workflow.filter_output import FileOutput, FolderOutput
from millrace.workflow.link import FromPhase, Link, send
from millrace.workflow.planned import Here, Planned, norm
from millrace.workflow.records import format_of
from millrace.workflow.source import Source, lists


class Member:
    """A phase in its own process.

    Args:
        link: Link to the process of the workflow.
        print_: Digest by which a filter or function recognises its earlier work (``planned.prints``).
    """

    def __init__(self, planned: Planned, here: Here, link: Link, print_: str) -> None:
        self._planned, self._phase, self._here, self._link, self._print = planned, planned.phase, here, link, print_

    def run(self) -> int:
        """Run the phase and return its exit code.

        Raises:
            MillraceError: The phase failed.
        """
        return self._command() if self._phase.kind == "command" else self._between()

    # A run of Millrace

    def _command(self) -> int:
        from millrace.session import carry_out

        self._redirect()
        if self._here.nodes:
            return self._on_nodes(self._here.nodes)
        streams = self._planned.streams
        plan = self._planned.plan or planning.make(self._phase, self._phase.job, streams, self._here)
        growing = {output: lists(self._here, by) if self._is_folder(output) else None for output, by in streams.items()}
        chain = Chain(self._link, self._here.cwd, growing, lists(self._here, self._phase.name))
        finished = carry_out.run(plan, Supervision(os.environ), chain=chain)
        if finished.code and finished.text:
            say(f"phase {self._phase.name}: {finished.text}")
        return finished.code

    def _on_nodes(self, nodes: Allocation) -> int:
        """Run the command by ranks on several nodes; each rank plans it, as all its inputs are complete."""
        from millrace.launch import supervise

        self._link.listen()
        lists(self._here, self._phase.name).write_bytes(b"")  # its output folders are read only when complete
        plan = planning.make(self._phase, self._phase.job, {}, self._here)
        if plan.job.verbosity >= 0:
            say(f"phase {self._phase.name}:")
        return supervise.run(plan, nodes, {**os.environ, PHASE: self._phase.name})

    def _is_folder(self, output: str) -> bool:
        """Tell whether an output of another phase is a folder."""
        return (self._here.cwd / output).is_dir()

    def _redirect(self) -> None:
        """Connect standard input and output to the files of the description, or to a growing output."""
        out = self._here.cwd / self._phase.stdout if self._phase.stdout else kept_output(self._here, self._phase.name)
        _become(os.open(out, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666), 1)
        source = norm(self._phase.stdin) if self._phase.stdin else ""
        if source not in self._planned.streams:
            _become(os.open(self._here.cwd / (self._phase.stdin or os.devnull), os.O_RDONLY | os.O_CLOEXEC), 0)
            return
        end, other = os.pipe()
        _become(end, 0)
        content = follow.blocks(self._here.cwd / source, source, self._link)
        threading.Thread(target=self._pump, args=(content, other), name="stdin", daemon=True).start()

    def _pump(self, content: Iterator[bytes], descriptor: int) -> None:
        """Write growing content into a pipe; after an error, end the process by SIGTERM."""
        try:
            for block in content:
                follow.write_all(descriptor, block)
        except BrokenPipeError:
            return
        except BaseException as error:
            say(f"phase {self._phase.name}: {error}")
            os.kill(os.getpid(), signal.SIGTERM)  # without closing the pipe, which would look like the end of the file
            return
        os.close(descriptor)

    # A filter or a function

    def _between(self) -> int:
        """Run a filter or function, unless its earlier output is still valid, and return its exit code."""
        phase, cwd = self._phase, self._here.cwd
        done = self._here.folder / f"{phase.name}.done"
        if done.exists() and self._source() in self._planned.streams:
            # It may have changed: a later run of its phase may have fewer records in quarantine.
            self._link.listen()
            self._link.wait(self._source())
        if _read(done) == self._mark() and self._is_there():
            return ExitCode.DONE
        done.unlink(missing_ok=True)
        self._link.listen()
        who = f"phase {phase.name}: {phase.text}"
        path = cwd / phase.job.output[0]
        listed = lists(self._here, phase.name)
        output = FolderOutput(path, listed) if self._planned.folders else FileOutput(path)
        source = Source(self._planned, self._here, self._link)
        self._link.begun()
        if phase.kind == "python":
            sys.stdout, sys.stderr = (
                unescaped(sys.stdout),
                unescaped(sys.stderr),
            )  # prints of the user's code are not escaped
            function = filtering.load(phase.text, cwd)
            filtering.apply(function, source.records(), phase.options, output, who)
        else:
            assert isinstance(output, FileOutput)  # as the description was checked
            filtering.shell(phase.text, source.blocks(), output, cwd, who)
        write_whole(done, self._mark())
        return ExitCode.DONE

    def _is_there(self) -> bool:
        """Tell whether the output exists."""
        return bool(self._state())

    def _mark(self) -> bytes:
        """Return the content of the ``.done`` file: digest of the phase, and states of input and output."""
        return json.dumps({"print": self._print, "input": self._input_state(), "output": self._state()}).encode()

    def _input_state(self) -> object:
        return _state(self._here.cwd / self._source())

    def _source(self) -> str:
        return norm(format_of(self._phase.job.input[0], "")[0])

    def _state(self) -> object:
        return _state(self._here.cwd / self._phase.job.output[0])


def kept_output(here: Here, name: str) -> Path:
    """Return the file that keeps the standard output of a phase until the workflow prints it."""
    return here.folder / f"{name}.out"


def _state(path: Path) -> object:
    """Return a value that changes when a file, or a folder of files, changes; None: it does not exist."""
    if path.is_dir():
        return [[name, (path / name).stat().st_size] for name in follow.in_folder(path)]
    return [path.stat().st_size, path.stat().st_mtime_ns] if path.exists() else None


def _read(path: Path) -> bytes:
    """Read a file; empty if it does not exist."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


def _become(descriptor: int, number: int) -> None:
    """Move a descriptor to another number."""
    os.dup2(descriptor, number)
    os.close(descriptor)


def say(text: str) -> None:
    """Print a line on standard error, with ``millrace:`` before it."""
    sys.stderr.write(f"millrace: {text}\n")
    sys.stderr.flush()


def begin(
    planned: Planned, here: Here, end: socket.socket, others: Sequence[socket.socket], links: tuple[set[str], set[str]],
    print_: str,
) -> int:  # fmt: skip
    """Fork a process that runs a phase, and return its process id.

    Args:
        end: The phase's socket of the link.
        others: Sockets that the new process must close.
        links: Outputs that have begun, and outputs that are complete.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    # Block signals until the child has its own handlers: the inherited ones would only count them.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
    if child := os.fork():
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        return child
    code: int = ExitCode.STOPPED
    try:
        os.setpgid(0, 0)  # the workflow forwards Ctrl-C
        for number in STOPPING:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for other in others:
            other.close()
        code = _guarded(Member(planned, here, Link(end, *links), print_))
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        send(end, FromPhase(ends=code))
    finally:
        os._exit(code)


def _guarded(member: Member) -> int:
    """Run a phase, print any error, and return the exit code."""
    name = member._phase.name
    try:
        return member.run()
    except StoppedBySignal as error:
        return error.status
    except MillraceError as error:
        say(str(error) if str(error).startswith("phase ") else f"phase {name}: {error}")
        return error.status
    except OSError as error:
        say(
            f"phase {name}: {error.filename or ''}: {error.strerror or error}\n\nhint: nothing is lost: the same command resumes"
        )
        return ExitCode.STOPPED
    except BaseException:
        import traceback

        traceback.print_exc()
        return ExitCode.STOPPED
