"""An input whose records are dealt into parts by turns, and read part by part, as some tools take their records.

The parts are copies of the records in unnamed files, which are gone with the process.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from pathlib import Path

import msgspec

from millrace import _core
from millrace.core.errors import MillraceError
from millrace.core.tool_use import InputUse
from millrace.host.work_places import is_usable_place, list_disk_places
from millrace.node.batch_files import open_reader

#: Bytes of an input from which on its parts are on disk, even if the spool folder is in memory.
MAX_SPOOLED_BYTES = 64 << 20

#: Beginnings of lines of FASTA that some tools, those that read by ``kseq.h``, take for those of a record.
OTHER_STARTS = (b"\n@", b"\n+")


class DealtInput:
    """An ``InputSource`` that deals the records when the first one is asked for, in the feeder's thread.

    Args:
        spool: Folder for small copies.
    """

    def __init__(self, path: str, item: InputUse, spool: Path) -> None:
        self._path, self._item, self._spool = path, item, spool
        # Each record by itself, even those that cannot stand alone in a batch.
        self._whole = open_reader([path], msgspec.structs.replace(item, content=None))
        self._parts: _core.Reader | None = None
        with open(path, "rb") as file:
            is_compressed = bool(_core.compression(file.read(6)))
        #: Bytes of the input; None: unknown, as the parts of a compressed input have others.
        self.total = None if is_compressed else self._whole.total
        #: The parts are not compressed.
        self.compression, self.has_members = "", False

    @property
    def offset(self) -> int:
        """Return the bytes of the parts that were consumed."""
        return self._parts.offset if self._parts else 0

    @property
    def header(self) -> bytes:
        """Return the header of the input."""
        return self._open_parts().header

    def cut(self, dest: str, max_records: int, max_cost: int, max_bytes: int) -> _core.Batch | None:
        """See ``millrace._core.Reader.cut``."""
        return self._open_parts().cut(dest, max_records, max_cost, max_bytes)

    def skip(self, n_records: int) -> _core.Batch | None:
        """See ``millrace._core.Reader.skip``."""
        return self._open_parts().skip(n_records)

    def _open_parts(self) -> _core.Reader:
        if self._parts is None:
            paths = [self._make_part() for _ in range(self._item.dealt)]
            self._whole.deal_records(paths)
            for path in paths:
                self._check_record_starts(path)
            self._parts = open_reader(paths, self._item)
        return self._parts

    def _make_part(self) -> str:
        """Make an unnamed file, which is open as long as this process lives; return a path to it."""
        descriptor, name = tempfile.mkstemp(dir=self._choose_folder())
        os.unlink(name)
        return f"/proc/self/fd/{descriptor}"

    def _choose_folder(self) -> Path:
        if os.stat(self._path).st_size < MAX_SPOOLED_BYTES:
            return self._spool
        return next(filter(is_usable_place, list_disk_places()), self._spool)

    def _check_record_starts(self, part: str) -> None:
        """Check that the tool counts the records of FASTA as we do: its order depends on that."""
        if self._item.format != "fasta" or not os.stat(part).st_size:
            return
        with open(part, "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as text:
            for start in OTHER_STARTS:
                if text.find(start) >= 0:
                    raise MillraceError(
                        f"{self._item.path}: a line of a sequence begins with {start[1:].decode()}, as a record of FASTQ does",
                        "take that letter out of the sequence",
                    )
