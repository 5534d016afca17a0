"""Batches of the queries of a result, with the names that results give the queries."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from millrace.model import InputUse
from millrace.node.spool import open_reader

#: Pattern of the name of a record, by format.
_NAMES = {
    "fasta": re.compile(rb"^>[ \t]*([^\s\x01]*)", re.MULTILINE),
    "hmm": re.compile(rb"^NAME[ \t]+(\S+)", re.MULTILINE),
}


@dataclass(frozen=True)
class QueryBatch:
    """Consecutive queries."""

    first: int
    last: int
    #: (bytes, CRC-32C), as in a journal.
    digest: tuple[int, int]
    #: First word of the title of each; empty for formats without names.
    names: tuple[bytes, ...] = ()


def cut_query_batches(path: Path, item: InputUse, sizes: Iterable[int], scratch: Path) -> Iterator[QueryBatch]:
    """Cut the queries of ``path`` into batches of ``sizes`` records, up to the end of the file or of ``sizes``.

    Args:
        item: Format of the file.
        sizes: Read lazily.
        scratch: File for the records of one batch at a time.

    Raises:
        OSError: The file cannot be read.
        millrace._core.RecordError: A record is damaged.
    """
    reader = open_reader([str(path)], item)
    pattern, first = _NAMES.get(item.format), 0
    for size in sizes:
        batch = reader.cut(scratch, size, 0, 0)
        if batch is None:
            return
        names = tuple(pattern.findall(scratch.read_bytes())) if pattern else ()
        last = first + batch.records
        yield QueryBatch(first, last, (batch.bytes, batch.crc32c), names if len(names) == batch.records else ())
        first = last
