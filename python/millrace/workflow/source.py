"""What a filter or a function reads: a file, or those of a folder, also while another phase writes them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from millrace import _core
from millrace.errors import MillraceError
from millrace.storage.unpack import plain_pieces
from millrace.workflow import follow
from millrace.workflow.link import Link
from millrace.workflow.planned import Here, Planned, norm
from millrace.workflow.records import format_of, records


class Source:
    """The input of a phase that is no command."""

    def __init__(self, planned: Planned, here: Here, link: Link) -> None:
        self._planned, self._here, self._link = planned, here, link
        job = planned.phase.job
        self._typed, self._format = format_of(job.input[0], job.format)
        self._path = here.cwd / self._typed
        #: By which name the workflow knows it, if another phase writes it.
        self._output = norm(self._typed) if norm(self._typed) in planned.streams else ""

    def blocks(self) -> Iterator[bytes]:
        """Its bytes; of a folder, those of its files."""
        if self._is_folder():
            for file in self._files():
                yield file.read_bytes()
        elif self._output:
            yield from follow.blocks(self._path, self._output, self._link)
        else:
            with self._path.open("rb", buffering=0) as opened:
                while block := opened.read(follow.BLOCK_BYTES):
                    yield block

    def records(self) -> Iterable[bytes]:
        """Its records, unpacked as a tool gets them; of a folder, its files."""
        if self._is_folder():
            return self.blocks()
        return records(self.blocks() if self._output else self._unpacked(), self._format)

    def _is_folder(self) -> bool:
        """Whether it is a folder; one that another phase writes is there once that has begun."""
        if self._output:
            self._link.wait_for_begin(self._output)
        return self._path.is_dir()

    def _unpacked(self) -> Iterator[bytes]:
        try:
            yield from plain_pieces(self._path, follow.BLOCK_BYTES)
        except _core.RecordError as error:
            raise MillraceError(
                str(error).replace(error.source, self._typed, 1), "repair the input and type the command again"
            ) from error

    def _files(self) -> Iterator[Path]:
        if not self._output:
            return (self._path / name for name in follow.in_folder(self._path))
        listed = lists(self._here, self._planned.streams[self._output])
        return (self._path / name for name in follow.names(self._path, listed, self._output, self._link))


def lists(here: Here, name: str) -> Path:
    """Where a phase lists the files that it writes."""
    return here.folder / f"{name}.files"
