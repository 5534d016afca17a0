"""The input of a filter or function: a file or the files of a folder, also while another phase writes them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from millrace import _core
from millrace.errors import MillraceError
from millrace.storage.unpack import read_plain_pieces
from millrace.workflow import follow
from millrace.workflow.link import WorkflowLink
from millrace.workflow.planned import PlannedPhase, WorkflowContext, normalise_path
from millrace.workflow.records import cut_records, split_format


class FilterInput:
    """The input of a phase that is a filter or function."""

    def __init__(self, planned: PlannedPhase, here: WorkflowContext, link: WorkflowLink) -> None:
        self._planned, self._here, self._link = planned, here, link
        job = planned.phase.job
        self._typed, self._format = split_format(job.input[0], job.format)
        self._path = here.cwd / self._typed
        #: Name of the input in the workflow if another phase still writes it; else empty.
        self._output = normalise_path(self._typed) if normalise_path(self._typed) in planned.streams else ""

    def read_blocks(self) -> Iterator[bytes]:
        """Yield the bytes of the file, or the contents of the folder's files; block while they grow."""
        if self._is_folder():
            for file in self._list_files():
                yield file.read_bytes()
        elif self._output:
            yield from follow.follow_file_blocks(self._path, self._output, self._link)
        else:
            with self._path.open("rb", buffering=0) as opened:
                while block := opened.read(follow.BLOCK_BYTES):
                    yield block

    def read_records(self) -> Iterable[bytes]:
        """Return the records of the file, unpacked; for a folder, the contents of its files."""
        if self._is_folder():
            return self.read_blocks()
        return cut_records(self.read_blocks() if self._output else self._read_unpacked(), self._format)

    def _is_folder(self) -> bool:
        """Tell whether the input is a folder; if another phase writes it, wait until that has begun."""
        if self._output:
            self._link.wait_until_begun(self._output)
        return self._path.is_dir()

    def _read_unpacked(self) -> Iterator[bytes]:
        """Yield the unpacked bytes of a file, which may be compressed."""
        try:
            yield from read_plain_pieces(self._path, follow.BLOCK_BYTES)
        except _core.RecordError as error:
            raise MillraceError(
                str(error).replace(error.source, self._typed, 1), "repair the input and type the command again"
            ) from error

    def _list_files(self) -> Iterator[Path]:
        """Return the files of the folder in the shell's order, each once it is complete."""
        if not self._output:
            return (self._path / name for name in follow.list_folder_files(self._path))
        listed = locate_file_list(self._here, self._planned.streams[self._output])
        return (self._path / name for name in follow.follow_file_names(self._path, listed, self._output, self._link))


def locate_file_list(here: WorkflowContext, name: str) -> Path:
    """Return the file in which a phase lists the files that it writes."""
    return here.folder / f"{name}.files"
