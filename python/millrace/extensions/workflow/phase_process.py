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

from millrace.core.errors import ExitCode, MillraceError
from millrace.core.text_format import get_unescaped_stream
from millrace.extensions.workflow import filter_execution, phase_chain, phase_planning
from millrace.extensions.workflow.filter_execution import FileOutput, FolderOutput
from millrace.extensions.workflow.filter_input import FilterInput, locate_file_list, split_format
from millrace.extensions.workflow.phase_chain import PhaseChain, PhaseReport, WorkflowLink, send_link_message
from millrace.extensions.workflow.planned_phases import PlannedPhase, WorkflowContext, normalise_path
from millrace.host.signals import STOPPING, StoppedBySignalError
from millrace.launch.node_allocation import PHASE, NodeAllocation
from millrace.launch.supervisor_link import SupervisorLink
from millrace.rundir.paths import write_atomically


class PhaseProcess:
    """A phase in its own process.

    Args:
        link: Link to the process of the workflow.
        print_: Digest by which a filter or function recognises its earlier work (``planned_phases.digest_phases``).
    """

    def __init__(self, planned: PlannedPhase, here: WorkflowContext, link: WorkflowLink, print_: str) -> None:
        self._planned, self._phase, self._here, self._link, self._print = planned, planned.phase, here, link, print_

    def run(self) -> int:
        """Run the phase and return its exit code.

        Raises:
            MillraceError: The phase failed.
        """
        return self._run_command() if self._phase.kind == "command" else self._run_filter()

    # A run of Millrace

    def _run_command(self) -> int:
        from millrace.execution import plan_execution

        self._redirect_streams()
        if self._here.nodes:
            return self._run_on_nodes(self._here.nodes)
        streams = self._planned.streams
        plan = self._planned.plan or phase_planning.make_phase_plan(self._phase, self._phase.job, streams, self._here)
        growing = {
            output: locate_file_list(self._here, by) if self._is_folder(output) else None
            for output, by in streams.items()
        }
        chain = PhaseChain(self._link, self._here.cwd, growing, locate_file_list(self._here, self._phase.name))
        finished = plan_execution.run_plan(plan, SupervisorLink(os.environ), chain=chain)
        if finished.code and finished.text:
            print_message(f"phase {self._phase.name}: {finished.text}")
        return finished.code

    def _run_on_nodes(self, nodes: NodeAllocation) -> int:
        """Run the command by ranks on several nodes; each rank plans it, as all its inputs are complete."""
        from millrace.launch import run_supervisor

        self._link.start_listening()
        locate_file_list(self._here, self._phase.name).write_bytes(
            b""
        )  # its output folders are read only when complete
        plan = phase_planning.make_phase_plan(self._phase, self._phase.job, {}, self._here)
        if plan.job.verbosity >= 0:
            print_message(f"phase {self._phase.name}:")
        environ = {**os.environ, PHASE: f"{self._phase.name}:{os.uname().machine}"}
        return run_supervisor.run_supervised(plan, nodes, environ, self._here.rank_words)

    def _is_folder(self, output: str) -> bool:
        """Tell whether an output of another phase is a folder."""
        return (self._here.cwd / output).is_dir()

    def _redirect_streams(self) -> None:
        """Connect standard input and output to the files of the description, or to a growing output."""
        out = (
            self._here.cwd / self._phase.stdout
            if self._phase.stdout
            else locate_kept_output(self._here, self._phase.name)
        )
        _move_descriptor(os.open(out, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666), 1)
        source = normalise_path(self._phase.stdin) if self._phase.stdin else ""
        if source not in self._planned.streams:
            _move_descriptor(os.open(self._here.cwd / (self._phase.stdin or os.devnull), os.O_RDONLY | os.O_CLOEXEC), 0)
            return
        end, other = os.pipe()
        _move_descriptor(end, 0)
        content = phase_chain.follow_file_blocks(self._here.cwd / source, source, self._link)
        threading.Thread(target=self._pump_stdin, args=(content, other), name="stdin", daemon=True).start()

    def _pump_stdin(self, content: Iterator[bytes], descriptor: int) -> None:
        """Write growing content into a pipe; after an error, end the process by SIGTERM."""
        try:
            for block in content:
                phase_chain.write_all(descriptor, block)
        except BrokenPipeError:
            return
        except BaseException as error:
            print_message(f"phase {self._phase.name}: {error}")
            os.kill(os.getpid(), signal.SIGTERM)  # without closing the pipe, which would look like the end of the file
            return
        os.close(descriptor)

    # A filter or a function

    def _run_filter(self) -> int:
        """Run a filter or function, unless its earlier output is still valid, and return its exit code."""
        phase, cwd = self._phase, self._here.cwd
        done = self._here.folder / f"{phase.name}.done"
        if done.exists() and self._get_input_name() in self._planned.streams:
            # It may have changed: a later run of its phase may have fewer records in quarantine.
            self._link.start_listening()
            self._link.wait_until_final(self._get_input_name())
        if _read_if_present(done) == self._build_done_mark() and self._has_output():
            return ExitCode.DONE
        done.unlink(missing_ok=True)
        self._link.start_listening()
        who = f"phase {phase.name}: {phase.text}"
        path = cwd / phase.job.output[0]
        listed = locate_file_list(self._here, phase.name)
        output = FolderOutput(path, listed) if self._planned.folders else FileOutput(path)
        source = FilterInput(self._planned, self._here, self._link)
        self._link.report_outputs_begun()
        if phase.kind == "python":
            sys.stdout, sys.stderr = (
                get_unescaped_stream(sys.stdout),
                get_unescaped_stream(sys.stderr),
            )  # prints of the user's code are not escaped
            function = filter_execution.load_function(phase.text, cwd)
            filter_execution.apply_function(function, source.read_records(), phase.options, output, who)
        else:
            assert isinstance(output, FileOutput)  # as the description was checked
            filter_execution.run_shell_line(phase.text, source.read_blocks(), output, cwd, who)
        write_atomically(done, self._build_done_mark())
        return ExitCode.DONE

    def _has_output(self) -> bool:
        """Tell whether the output exists."""
        return bool(self._read_output_state())

    def _build_done_mark(self) -> bytes:
        """Return the content of the ``.done`` file: digest of the phase, and states of input and output."""
        read = _read_path_state(self._here.cwd / self._get_input_name())
        return json.dumps({"print": self._print, "input": read, "output": self._read_output_state()}).encode()

    def _get_input_name(self) -> str:
        return normalise_path(split_format(self._phase.job.input[0], "")[0])

    def _read_output_state(self) -> object:
        return _read_path_state(self._here.cwd / self._phase.job.output[0])


def locate_kept_output(here: WorkflowContext, name: str) -> Path:
    """Return the file that keeps the standard output of a phase until the workflow prints it."""
    return here.folder / f"{name}.out"


def _read_path_state(path: Path) -> object:
    """Return a value that changes when a file, or a folder of files, changes; None: it does not exist."""
    if path.is_dir():
        return [[name, (path / name).stat().st_size] for name in phase_chain.list_folder_files(path)]
    return [path.stat().st_size, path.stat().st_mtime_ns] if path.exists() else None


def _read_if_present(path: Path) -> bytes:
    """Read a file; empty if it does not exist."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


def _move_descriptor(descriptor: int, number: int) -> None:
    """Move a descriptor to another number."""
    os.dup2(descriptor, number)
    os.close(descriptor)


def print_message(text: str) -> None:
    """Print a line on standard error, with ``millrace:`` before it."""
    sys.stderr.write(f"millrace: {text}\n")
    sys.stderr.flush()


def start_phase_process(
    planned: PlannedPhase, here: WorkflowContext, end: socket.socket, others: Sequence[socket.socket], links: tuple[set[str], set[str]],
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
        code = _run_guarded(PhaseProcess(planned, here, WorkflowLink(end, *links), print_))
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        send_link_message(end, PhaseReport(ends=code))
    finally:
        os._exit(code)


def _run_guarded(member: PhaseProcess) -> int:
    """Run a phase, print any error, and return the exit code."""
    name = member._phase.name
    try:
        return member.run()
    except StoppedBySignalError as error:
        return error.status
    except MillraceError as error:
        print_message(str(error) if str(error).startswith("phase ") else f"phase {name}: {error}")
        return error.status
    except OSError as error:
        print_message(
            f"phase {name}: {error.filename or ''}: {error.strerror or error}\n\nhint: nothing is lost: the same command resumes"
        )
        return ExitCode.STOPPED
    except BaseException:
        import traceback

        traceback.print_exc()
        return ExitCode.STOPPED
