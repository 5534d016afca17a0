"""The links of a phase's run with other phases: inputs that still grow, and lent slots."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from millrace.job import JobSpec
from millrace.model import InputUse
from millrace.node.feed import InputSource
from millrace.node.file_list import FileBatch, FileList
from millrace.node.spool import open_reader
from millrace.tools.base import EACH
from millrace.workflow import follow
from millrace.workflow.follow import ContentPipe
from millrace.workflow.link import WorkflowLink


class PhaseChain:
    """The links of one phase with the others; implements ``millrace.session.chained.PhaseConnections``.

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
            names = follow.follow_file_names(self._cwd / output, listed, output, self._link)
            folder = item.path.removesuffix(EACH)
            return GrowingFiles((f"{folder}/{name}" for name in names), self._cwd)
        content = follow.follow_file_blocks(self._cwd / output, output, self._link)
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
            file.write(follow.format_listing_line(self._cwd / path))


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
