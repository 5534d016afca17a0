"""Links of a phase's run with other phases: inputs that still grow, and lent slots.

An input that grows is a file, or a folder that gets one file after another.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from millrace.adapters.adapter_base import EACH
from millrace.core.errors import CorruptError
from millrace.core.job import JobSpec
from millrace.core.tool_use import InputUse
from millrace.extensions.workflow.workflow_link import WorkflowLink
from millrace.node.batch_files import FileBatch, FileList, open_reader
from millrace.node.input_feeder import InputSource

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
    """The links of one phase with the others; implements ``millrace.execution.run_context.PhaseConnections``.

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
