"""What a family of tools adds to packing: its references, its hits, and what its results say of the day.

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

#: Entry points of codecs, each named as the adapter whose results it packs.
GROUP = "millrace.codecs"

_OWN = {"blast": "millrace.pack.blast", "hmmer": "millrace.pack.hmmer"}


class NotPackable(MillraceError):
    """Why a result is not packed by its meaning, but as it is, in words."""


@runtime_checkable
class Codec(Protocol):
    """How results of one family of tools are packed by their meaning."""

    def simpler(self, argv: Sequence[str]) -> Sequence[str]:
        """``argv`` without what changes how fast a result is written, and not the result."""
        ...

    def written(self, argv: Sequence[str]) -> Sequence[str]:
        """The files that a command names for what it writes, also one that `run` refuses.

        Raises:
            RefusedError: The command cannot be read.
        """
        ...

    def searching(self, argv: Sequence[str], output: str) -> Sequence[str] | None:
        """The command that searches once more for a result that `read` cannot read, and writes ``output``, which it can.

        None: there is none.
        """
        ...

    def volatile(self, output: OutputUse) -> Sequence[str]:
        """Regular expressions (multi-line) of what an output says otherwise elsewhere, such as the day of a database."""
        ...

    def database(self, use: ToolUse, command: Command, *, like: Database | None = None) -> Database:
        """Read the database through, and say what it holds.

        Args:
            like: The database of a pack; one that goes on behind its last entry is described up to there.

        Raises:
            NotPackable: It cannot be told.
        """
        ...

    def read(
        self, use: ToolUse, command: Command, outputs: Sequence[Path], batches: Sequence[QueryBatch]
    ) -> list[Hits] | None:
        """Read from the outputs which entries each batch of queries has hit; None if that is not certain.

        More entries than were hit do no harm but that they take time and bytes; too few are seen.
        """
        ...

    def candidates(self, use: ToolUse, command: Command) -> Callable[[int, Sequence[memoryview]], Hits]:
        """Of so many queries and what the search of each fragment of the database has found for them, the hits.

        Hits of neighbours may become one: with all entries of both, and `Hits.more` of one after that of the other.

        Raises:
            NotPackable: They cannot be told.
        """
        ...

    def found(self, use: ToolUse, command: Command, batches: Sequence[Hits]) -> Iterator[bytes]:
        """What the search of the database as its only fragment would have written for each batch, as far as it counts."""
        ...

    def like(self, fragmented: Fragmented, database: Database) -> Fragmented:
        """``fragmented`` with names and numbers of the database of a pack."""
        ...

    def database_name(self, name: str, cwd: Path, environ: Mapping[str, str]) -> str:
        """A database that somebody names in the folder ``cwd``, as it is named from any folder."""
        ...

    def database_argument(self, use: ToolUse, command: Command) -> str:
        """The database of a command, as it is named from any folder."""
        ...


def find(name: str) -> Codec | None:
    """The codec for results that the adapter ``name`` understands; None if there is none.

    An entry point goes before what is built in.
    """
    found = entry_points(group=GROUP, name=name)
    codec: Codec | None = None
    if found:
        codec = next(iter(found)).load()
    elif name in _OWN:
        codec = import_module(_OWN[name]).CODEC
    return codec


def ordinals_by_name(names: Mapping[bytes, Sequence[int]], words: Iterator[bytes] | Sequence[bytes]) -> set[int]:
    """The entries that any of ``words`` names.

    >>> sorted(ordinals_by_name({b"a": [1, 4], b"b": [2]}, [b"a", b"c"]))
    [1, 4]
    """
    return {entry for word in words for entry in names.get(word, ())}
