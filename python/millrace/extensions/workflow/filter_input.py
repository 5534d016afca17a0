"""Input of a filter or function: a file or a folder's files, also while another phase writes them.

Records for Python functions are cut from blocks of bytes here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from millrace import _core
from millrace.core import record_formats
from millrace.core.errors import MillraceError, RefusedError
from millrace.extensions.workflow import phase_chain
from millrace.extensions.workflow.phase_chain import WorkflowLink
from millrace.extensions.workflow.planned_phases import PlannedPhase, WorkflowContext, normalise_path
from millrace.storage.unpacked_copies import read_plain_pieces

#: Beginning of the first, or of the last, line of a record, by format.
STARTS = {"fasta": b">", "mol2": b"@<TRIPOS>MOLECULE", "genbank": b"LOCUS", "cm": b"INFERNAL1/"}
ENDS = {"hmm": b"//", "stockholm": b"//", "sdf": b"$$$$", "pdbqt": b"ENDMDL"}
LINES = ("lines", "jsonl", "smiles")
KNOWN = {*STARTS, *ENDS, *LINES}


def split_format(typed: str, named: str) -> tuple[str, str]:
    """Split ``FILE[:FORMAT]`` into the file and the format of its records.

    Without ``:FORMAT``, the format is ``named``, or that of the file's suffix if ``cut_records`` knows it, or lines.

    >>> split_format("hits.faa", ""), split_format("hits.out:lines", ""), split_format("hits", "")
    (('hits.faa', 'fasta'), ('hits.out', 'lines'), ('hits', 'lines'))
    """
    path, _, name = typed.rpartition(":")
    if path and name in record_formats.FORMATS:
        return path, name
    told = record_formats.find_format_by_suffix(typed)
    return typed, named or (told if told in KNOWN else "") or "lines"


def check_format(typed: str, named: str) -> None:
    """Refuse an input whose format ``cut_records`` cannot cut.

    Raises:
        RefusedError: It has such a format.
    """
    path, name = split_format(typed, named)
    if name not in (*KNOWN, "files"):
        raise RefusedError(
            f"{path}: a Python function cannot be given records of format {name}",
            f"formats for it are {', '.join(sorted(KNOWN))}",
        )


def split_lines(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the lines of ``blocks``, each with its end.

    >>> list(split_lines([b"a", b"b\\nc\\n", b"d"]))
    [b'ab\\n', b'c\\n', b'd']
    """
    rest = b""
    for block in blocks:
        *whole, rest = (rest + block).split(b"\n")
        yield from (line + b"\n" for line in whole)
    if rest:
        yield rest


def cut_records(blocks: Iterable[bytes], name: str) -> Iterator[bytes]:
    """Yield the records of ``blocks`` in a format of ``split_format``; together they have all bytes of the input.

    >>> list(cut_records([b">a\\nMK", b"V\\n>b\\nML\\n"], "fasta"))
    [b'>a\\nMKV\\n', b'>b\\nML\\n']
    >>> list(cut_records([b"x\\n//\\ny\\n", b"//\\n"], "hmm"))
    [b'x\\n//\\n', b'y\\n//\\n']
    """
    if name in LINES:
        yield from split_lines(blocks)
        return
    start, end = STARTS.get(name), ENDS.get(name)
    parts: list[bytes] = []
    for line in split_lines(blocks):
        if start and line.startswith(start) and parts:
            yield b"".join(parts)
            parts = []
        parts.append(line)
        if end and re.fullmatch(re.escape(end) + rb"\s*", line):
            yield b"".join(parts)
            parts = []
    if record := b"".join(parts):
        yield record


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
            yield from phase_chain.follow_file_blocks(self._path, self._output, self._link)
        else:
            with self._path.open("rb", buffering=0) as opened:
                while block := opened.read(phase_chain.BLOCK_BYTES):
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
            yield from read_plain_pieces(self._path, phase_chain.BLOCK_BYTES)
        except _core.RecordError as error:
            raise MillraceError(
                str(error).replace(error.source, self._typed, 1), "repair the input and type the command again"
            ) from error

    def _list_files(self) -> Iterator[Path]:
        """Return the files of the folder in the shell's order, each once it is complete."""
        if not self._output:
            return (self._path / name for name in phase_chain.list_folder_files(self._path))
        listed = locate_file_list(self._here, self._planned.streams[self._output])
        return (
            self._path / name for name in phase_chain.follow_file_names(self._path, listed, self._output, self._link)
        )


def locate_file_list(here: WorkflowContext, name: str) -> Path:
    """Return the file in which a phase lists the files that it writes."""
    return here.folder / f"{name}.files"
