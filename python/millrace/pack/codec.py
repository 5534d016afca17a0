"""The interface by which a family of tools is packed: its databases, its hits and the volatile text of its results.

A codec is found by the name of an adapter: built in, or by an entry point of the group ``millrace.codecs``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Protocol, runtime_checkable

from millrace.errors import MillraceError
from millrace.model import Command, Fragmented, OutputUse, ToolUse
from millrace.pack.hits import Hits
from millrace.pack.queries import QueryBatch
from millrace.pack.recipe import Database

#: Group of the entry points of codecs; each is named as the adapter whose results it packs.
GROUP = "millrace.codecs"

_OWN = {"blast": "millrace.pack.blast", "hmmer": "millrace.pack.hmmer"}


class NotPackable(MillraceError):
    """A result can only be packed as plain bytes, not as hits; the message says why."""


@runtime_checkable
class Codec(Protocol):
    """The interface of a codec: packs the results of one family of tools as hits."""

    def simpler(self, argv: Sequence[str]) -> Sequence[str]:
        """Return ``argv`` without the options that change the speed alone, and not the result."""
        ...

    def written(self, argv: Sequence[str]) -> Sequence[str]:
        """Return the output files that a command names, also of a command that ``millrace run`` refuses.

        Raises:
            RefusedError: The command cannot be parsed.
        """
        ...

    def searching(self, argv: Sequence[str], output: str) -> Sequence[str] | None:
        """Build a command that repeats the search and writes ``output`` for ``Codec.read``; None: there is none."""
        ...

    def volatile(self, output: OutputUse) -> Sequence[str]:
        """Return regular expressions (multi-line) for text that differs elsewhere, such as the day of a database."""
        ...

    def database(self, use: ToolUse, command: Command, *, like: Database | None = None) -> Database:
        """Read the whole database and describe its entries.

        Args:
            like: The database of a pack; further entries after as many as it has are ignored.

        Raises:
            NotPackable: The entries cannot be listed.
        """
        ...

    def read(
        self, use: ToolUse, command: Command, outputs: Sequence[Path], batches: Sequence[QueryBatch]
    ) -> list[Hits] | None:
        """Read from the outputs the entries that each batch of queries has hit; None if that is uncertain.

        Too many entries only cost time and bytes. Too few are noticed when the regeneration is compared.
        """
        ...

    def candidates(self, use: ToolUse, command: Command) -> Callable[[int, Sequence[memoryview]], Hits]:
        """Return a function from a number of queries, and the search results of each fragment for them, to their hits.

        Hits of neighbours may be merged: the entries of both, and ``Hits.more`` of the first before that of the second.

        Raises:
            NotPackable: The hits cannot be read.
        """
        ...

    def found(self, use: ToolUse, command: Command, batches: Sequence[Hits]) -> Iterator[bytes]:
        """Yield for each batch the output of a search of the database as one fragment: only the parts that are read."""
        ...

    def like(self, fragmented: Fragmented, database: Database) -> Fragmented:
        """Return ``fragmented`` with the names and numbers of the database of a pack."""
        ...

    def database_name(self, name: str, cwd: Path, environ: Mapping[str, str]) -> str:
        """Resolve a database name that was given in the folder ``cwd`` into one that is valid in any folder."""
        ...

    def database_argument(self, use: ToolUse, command: Command) -> str:
        """Return the database argument of a command in a form that is valid in any folder."""
        ...


def find(name: str) -> Codec | None:
    """Return the codec for results of the adapter ``name``; None if there is none.

    An entry point goes before a built-in codec.
    """
    found = entry_points(group=GROUP, name=name)
    codec: Codec | None = None
    if found:
        codec = next(iter(found)).load()
    elif name in _OWN:
        codec = import_module(_OWN[name]).CODEC
    return codec


def ordinals_by_name(names: Mapping[bytes, Sequence[int]], words: Iterator[bytes] | Sequence[bytes]) -> set[int]:
    """Return the ordinals of all entries that any of ``words`` names.

    >>> sorted(ordinals_by_name({b"a": [1, 4], b"b": [2]}, [b"a", b"c"]))
    [1, 4]
    """
    return {entry for word in words for entry in names.get(word, ())}
