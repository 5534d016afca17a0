"""Links of a phase's run with other phases: inputs that still grow, and lent slots; and the messages about them.

An input that grows is a file, or a folder that gets one file after another. The process of a phase and that of the
workflow exchange messages over a pair of sockets.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from millrace.adapters.adapter_base import EACH
from millrace.core.errors import CorruptError
from millrace.core.job import JobSpec
from millrace.core.tool_use import FrozenValue, InputUse
from millrace.node.batch_files import FileBatch, FileList, open_reader
from millrace.node.input_feeder import InputSource

#: Most bytes of a message.
MAX_MESSAGE_BYTES = 1 << 16


class PhaseUpdate(FrozenValue, frozen=True, omit_defaults=True):
    """A message to a phase: changes that concern it."""

    #: Slots that it may use from now on; None: as before.
    allow: int | None = None
    #: Outputs that hold nothing of an earlier workflow any more.
    begun: tuple[str, ...] = ()
    #: Outputs that are complete.
    final: tuple[str, ...] = ()


class PhaseReport(FrozenValue, frozen=True, omit_defaults=True):
    """A message of a phase about itself."""

    #: Tasks that are waiting or running, and running tools; None: as before.
    wanted: int | None = None
    running: int | None = None
    #: Whether its outputs hold nothing of an earlier workflow any more.
    begun: bool = False
    #: Exit code, in the last message; a process that ends without it has crashed.
    ends: int | None = None


def open_link_pair() -> tuple[socket.socket, socket.socket]:
    """Return the two sockets of a link: that of the workflow, and that of the phase."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def send_link_message(end: socket.socket, message: PhaseUpdate | PhaseReport) -> None:
    """Send one message; ignore a closed receiver, whose end is reported in another way."""
    try:
        end.send(msgspec.json.encode(message))
    except (BrokenPipeError, ConnectionResetError):
        return


class WorkflowLink:
    """The phase's end of the link. When the process of the workflow dies, this process kills itself.

    Args:
        begun, final: Outputs of other phases that have begun, and that are complete.
    """

    def __init__(self, end: socket.socket, begun: Iterable[str], final: Iterable[str]) -> None:
        self._end = end
        self._begun, self._final = {*begun, *final}, {*final}
        self._changed = threading.Condition()
        self._allow: Callable[[int], None] | None = None
        self._said = (0, 0)
        self._listening = False

    def start_listening(self) -> None:
        """Start a thread that receives the messages of the workflow. May be called twice."""
        if not self._listening:
            self._listening = True
            threading.Thread(target=self._receive_updates, name="link", daemon=True).start()

    def lend(self, allow: Callable[[int], None]) -> None:
        """Register ``allow``, which is called with the number of slots for this phase whenever it changes."""
        self._allow = allow
        self.start_listening()

    def report_demand(self, wanted: int, running: int) -> None:
        """Report the number of waiting or running tasks, and of running tools, if one has changed."""
        if (wanted, running) != self._said:
            self._said = (wanted, running)
            send_link_message(self._end, PhaseReport(wanted=wanted, running=running))

    def report_outputs_begun(self) -> None:
        """Report that the outputs hold nothing of an earlier workflow."""
        send_link_message(self._end, PhaseReport(begun=True))

    def wait_until_begun(self, output: str) -> None:
        """Wait until ``output`` holds nothing of an earlier workflow."""
        with self._changed:
            self._changed.wait_for(lambda: output in self._begun)

    def is_final(self, output: str) -> bool:
        """Tell whether ``output`` is complete."""
        with self._changed:
            return output in self._final

    def wait_until_final(self, output: str, seconds: float | None = None) -> None:
        """Wait until ``output`` is complete, at most ``seconds`` if given."""
        with self._changed:
            self._changed.wait_for(lambda: output in self._final, seconds)

    def _receive_updates(self) -> None:
        """Receive messages until the workflow's process ends, then kill this process."""
        try:
            while content := self._end.recv(MAX_MESSAGE_BYTES):
                self._apply_update(msgspec.json.decode(content, type=PhaseUpdate))
        except ConnectionResetError:
            pass
        os.kill(os.getpid(), signal.SIGKILL)  # as if this run was killed: the journal has all committed blocks

    def _apply_update(self, message: PhaseUpdate) -> None:
        """Apply a message of the workflow."""
        with self._changed:
            self._begun.update(message.begun, message.final)
            self._final.update(message.final)
            self._changed.notify_all()
        if message.allow is not None and self._allow:
            self._allow(message.allow)


#: Seconds between reads of a growing file.
POLL_INTERVAL_SECONDS = 0.02

BLOCK_BYTES = 1 << 20


def follow_file_blocks(path: Path, output: str, link: WorkflowLink) -> Iterator[bytes]:
    """Yield the bytes of the file ``path`` until it is complete; block while it grows.

    Args:
        output: Name of the output in the workflow.

    Raises:
        OSError: The file cannot be read.
    """
    link.wait_until_begun(output)
    with path.open("rb", buffering=0) as file:
        while True:
            is_last = link.is_final(output)  # asked before reading: then the read gets all bytes
            while block := file.read(BLOCK_BYTES):
                yield block
            if is_last:
                return
            link.wait_until_final(output, POLL_INTERVAL_SECONDS)


def follow_file_names(folder: Path, listed: Path, output: str, link: WorkflowLink) -> Iterator[str]:
    """Yield the names of the files in ``folder`` in the order of the shell's ``folder/*``, each once it is complete.

    Args:
        listed: File in which the writing phase lists the paths (``format_listing_line``) of this and its other folders.
        output: Name of the folder in the workflow.

    Raises:
        CorruptError: They were not written in that order, or the folder has other files.
    """
    link.wait_until_begun(output)
    given: list[str] = []
    for name in _follow_listed_names(folder, listed, output, link):
        _check_order(given, name, output)
        given.append(name)
        yield name
    # A power cut may have shortened the list; the folder is complete.
    there = list_folder_files(folder)
    if there[: len(given)] != given:
        raise CorruptError(f"{output}: has other files than those that its phase wrote", "start over with --fresh")
    yield from there[len(given) :]


def list_folder_files(folder: Path) -> list[str]:
    """Return the names of the files in a folder, in the shell's order, without hidden ones."""
    with os.scandir(folder) as entries:
        return sorted(each.name for each in entries if not each.name.startswith(".") and each.is_file())


def format_listing_line(path: str | Path) -> bytes:
    """Return the line that lists a complete file. One list holds the files of all folders of a phase."""
    return os.fsencode(os.path.normpath(path)) + b"\n"


def _follow_listed_names(folder: Path, listed: Path, output: str, link: WorkflowLink) -> Iterator[str]:
    """Yield the names of the files of ``folder`` in the growing list ``listed``."""
    rest, wanted = b"", os.path.normpath(folder)
    for block in follow_file_blocks(listed, output, link):
        *lines, rest = (rest + block).split(b"\n")
        for parent, name in map(os.path.split, map(os.fsdecode, lines)):
            if parent == wanted:
                yield name


def _check_order(given: list[str], name: str, output: str) -> None:
    """Refuse a file that was written after one that follows it in the shell's order."""
    if given and name <= given[-1]:
        raise CorruptError(
            f"{output}: {name} was written after {given[-1]}, but stands before it where a shell names the files",
            "write them in the order of their names (0001-..., 0002-...), or let the phase that reads them wait for all: after = [...]",
        )


class ContentPipe:
    """A named pipe filled by a thread from an iterator, so that readers of files can read growing content.

    Args:
        place: Path of the pipe, which is made.
        failed: Called with an error of the iterator. The pipe then stays open and the reader blocks, as closing it
            would look like the end of the content.
    """

    def __init__(self, place: Path, content: Iterator[bytes], failed: Callable[[BaseException], None]) -> None:
        self.path, self._content, self._failed = place, content, failed
        place.parent.mkdir(parents=True, exist_ok=True)
        os.mkfifo(place, 0o600)
        threading.Thread(target=self._pump_content, name="follow", daemon=True).start()

    def _pump_content(self) -> None:
        """Write the content into the pipe, once a reader has opened it."""
        with suppress(BrokenPipeError), open(self.path, "wb", buffering=0) as pipe:  # the reader may end first
            try:
                for block in self._content:
                    write_all(pipe.fileno(), block)
            except BrokenPipeError:
                raise
            except BaseException as error:
                self._failed(error)
                threading.Event().wait()


def write_all(descriptor: int, content: bytes) -> None:
    """Write all of ``content``, in as many writes as the pipe needs."""
    left = memoryview(content)
    while left:
        left = left[os.write(descriptor, left) :]


class PhaseChain:
    """The links of one phase with the others; implements ``millrace.execution.run_start.PhaseConnections``.

    Args:
        growing: Inputs that other phases still write: for a folder, the file that lists its files; for a file, None.
        lists: File in which this phase lists the files that it writes.
    """

    def __init__(self, link: WorkflowLink, cwd: Path, growing: Mapping[str, Path | None], lists: Path) -> None:
        self._link, self._cwd, self._growing, self._lists = link, cwd, growing, lists
        self.lend, self.report_demand = link.lend, link.report_demand

    def open_source(
        self, item: InputUse, job: JobSpec, spool: Path, failed: Callable[[BaseException], None]
    ) -> InputSource | None:  # fmt: skip
        """Return the records of a growing input; None: no other phase writes it."""
        output = os.path.normpath(item.path.removesuffix(EACH))
        if output not in self._growing:
            return None
        listed = self._growing[output]
        if listed:
            names = follow_file_names(self._cwd / output, listed, output, self._link)
            folder = item.path.removesuffix(EACH)
            return GrowingFiles((f"{folder}/{name}" for name in names), self._cwd)
        content = follow_file_blocks(self._cwd / output, output, self._link)
        # Messages contain this name, so keep that of the input.
        name = item.path if not os.path.isabs(item.path) and ".." not in item.path else os.path.basename(item.path)
        pipe = ContentPipe(spool / "followed" / str(len(os.listdir(spool))) / name, content, failed)
        return open_reader([str(pipe.path)], item, job.record_start, job.record_end)

    def announce_start(self) -> None:
        """Report that the outputs hold nothing of an earlier workflow, and begin an empty list of files."""
        self._lists.write_bytes(b"")
        self._link.report_outputs_begun()

    def announce_file(self, path: str) -> None:
        """List the complete output file of a record."""
        with self._lists.open("ab") as file:
            file.write(format_listing_line(self._cwd / path))


class GrowingFiles(FileList):
    """An input of one record a file, whose files appear one by one."""

    def __init__(self, names: Iterator[str], cwd: Path) -> None:
        super().__init__([], cwd)
        self.paths: list[str] = []
        self.total = None
        self._names = names

    def cut(self, dest: str, max_records: int, max_cost: int, max_bytes: int) -> FileBatch | None:
        """Cut the next batch as ``FileList`` does; block until enough files are listed."""
        first, size, limit = len(self.paths), 0, max_cost or max_bytes
        for name in self._names:
            size += self.add_file(name)
            if (max_records and len(self.paths) - first >= max_records) or (limit and size >= limit):
                break
        self._next = len(self.paths)
        return self._build_batch(first, size) if self._next > first else None
