"""The interface by which a family of tools is packed: databases, hits, query names, and volatile text.

A codec is found by the name of an adapter: built in, or by an entry point of the group ``millrace.codecs``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Protocol, runtime_checkable

from millrace.adapters.database_backend import FragmentOutput
from millrace.core.errors import MillraceError
from millrace.core.tool_use import FragmentPlan, InputUse, OutputUse, ToolUse, UserCommand
from millrace.extensions.pack.hits import BatchHits
from millrace.extensions.pack.layout import PackedDatabase
from millrace.node.batch_files import open_reader

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


#: Group of the entry points of codecs; each is named as the adapter whose results it packs.
GROUP = "millrace.codecs"

_OWN = {"blast": "millrace.extensions.pack.blast_codec", "hmmer": "millrace.extensions.pack.hmmer_codec"}


#: From a number of queries, and the search results of each fragment for them, to their hits. Called by several threads.
CandidateReader = Callable[[int, Sequence[FragmentOutput]], BatchHits]


class NotPackableError(MillraceError):
    """A result can only be packed as plain bytes, not as hits; the message says why."""


@runtime_checkable
class ResultCodec(Protocol):
    """The interface of a codec: packs the results of one family of tools as hits."""

    def drop_speed_options(self, argv: Sequence[str]) -> Sequence[str]:
        """Return ``argv`` without the options that change the speed alone, and not the result."""
        ...

    def list_output_paths(self, argv: Sequence[str]) -> Sequence[str]:
        """Return the output files that a command names, also of a command that ``millrace run`` refuses.

        Raises:
            RefusedError: The command cannot be parsed.
        """
        ...

    def build_search_command(self, argv: Sequence[str], output: str) -> Sequence[str] | None:
        """Build a command that repeats the search and writes ``output`` for ``ResultCodec.read_result_hits``; None: there is none."""
        ...

    def list_volatile_patterns(self, output: OutputUse) -> Sequence[str]:
        """Return regular expressions (multi-line) for text that differs elsewhere, such as the day of a database.

        Each line stands once in an output, after the last query.
        """
        ...

    def describe_database(
        self, use: ToolUse, command: UserCommand, *, like: PackedDatabase | None = None
    ) -> PackedDatabase:
        """Read the whole database and describe its entries.

        Args:
            like: The database of a pack; further entries after as many as it has are ignored.

        Raises:
            NotPackableError: The entries cannot be listed.
        """
        ...

    def read_result_hits(
        self, use: ToolUse, command: UserCommand, outputs: Sequence[Path], batches: Sequence[QueryBatch]
    ) -> list[BatchHits] | None:
        """Read from the outputs the entries that each batch of queries has hit; None if that is uncertain.

        Too many entries only cost time and bytes. Too few are noticed when the regeneration is compared.
        """
        ...

    def make_candidate_reader(self, fragmented: FragmentPlan, cwd: Path, environ: Mapping[str, str]) -> CandidateReader:
        """Return a function from a number of queries, and the search results of each fragment for them, to their hits.

        Hits of neighbours may be merged: the entries of both, and ``BatchHits.more`` of the first before that of the second.

        Raises:
            NotPackableError: The hits cannot be read.
        """
        ...

    def format_search_blocks(self, use: ToolUse, command: UserCommand, batches: Sequence[BatchHits]) -> Iterator[bytes]:
        """Yield for each batch the output of a search of the database as one fragment: only the parts that are read."""
        ...

    def adopt_packed_database(self, fragmented: FragmentPlan, database: PackedDatabase) -> FragmentPlan:
        """Return ``fragmented`` with the names and numbers of the database of a pack."""
        ...

    def resolve_database_name(self, name: str, cwd: Path, environ: Mapping[str, str]) -> str:
        """Resolve a database name that was given in the folder ``cwd`` into one that is valid in any folder."""
        ...

    def format_database_argument(self, use: ToolUse, command: UserCommand) -> str:
        """Return the database argument of a command in a form that is valid in any folder."""
        ...


def find_result_codec(name: str) -> ResultCodec | None:
    """Return the codec for results of the adapter ``name``; None if there is none.

    An entry point goes before a built-in codec.
    """
    found = entry_points(group=GROUP, name=name)
    codec: ResultCodec | None = None
    if found:
        codec = next(iter(found)).load()
    elif name in _OWN:
        codec = import_module(_OWN[name]).CODEC
    return codec


def collect_named_ordinals(names: Mapping[bytes, Sequence[int]], words: Iterator[bytes] | Sequence[bytes]) -> set[int]:
    """Return the ordinals of all entries that any of ``words`` names.

    >>> sorted(collect_named_ordinals({b"a": [1, 4], b"b": [2]}, [b"a", b"c"]))
    [1, 4]
    """
    return {entry for word in words for entry in names.get(word, ())}
