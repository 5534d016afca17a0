"""The codec for results of BLAST+: the entries that they name, and their database.

Hits are read from reports and tables: the start of each query, and the first words of lines or the columns that name
entries. A name that several entries share stands for all of them: candidates may be any superset of the reported
entries, so an entry that was not hit does not change the result.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from pathlib import Path

import msgspec

from millrace.model import BlastDatabase, Command, Fragmented, OutputUse, ToolUse
from millrace.pack import blast_text, known_databases
from millrace.pack.blast_entries import named, read_entries, reader
from millrace.pack.codec import NotPackable, ordinals_by_name
from millrace.pack.hits import Hits
from millrace.pack.queries import QueryBatch
from millrace.pack.recipe import Database
from millrace.tools.blast.backend import BACKEND
from millrace.tools.blast.options import OPTIONS
from millrace.tools.blast.search_path import split_names
from millrace.tools.options import scan

#: The day on which a database was made, which differs between sites.
_VOLATILE = (r"^ *Posted date: .*$",)

#: Ordinals in one list of hits: no more than BLAST puts into one.
_LIST = 1000


class BlastCodec:
    """The ``millrace.pack.codec.Codec`` of BLAST+."""

    def simpler(self, argv: Sequence[str]) -> Sequence[str]:
        """Implement ``Codec.simpler``: remove the options of threads."""
        return without(argv, {"num_threads", "mt_mode"})

    def written(self, argv: Sequence[str]) -> Sequence[str]:
        """Implement ``Codec.written``."""
        words = scan(argv[1:], OPTIONS, "BLAST", first=0)
        return [word.value for word in words if word.name == "out" and word.values]

    def searching(self, argv: Sequence[str], output: str) -> Sequence[str]:
        """Implement ``Codec.searching``: a table of names alone."""
        return [*without(argv, {"outfmt", "out"}), "-outfmt", "6 qseqid sseqid", "-out", output]

    def volatile(self, output: OutputUse) -> Sequence[str]:
        """Implement ``Codec.volatile``."""
        return _VOLATILE

    def database(self, use: ToolUse, command: Command, *, like: Database | None = None) -> Database:
        """Implement ``Codec.database``."""
        about = _about(use)
        most = like.entries if like else None
        files: list[Path | str] = [reader(command), *use.databases]
        found = known_databases.entries(files, most, command.environ, lambda: read_entries(about, command, most))
        return Database(
            name=use.fragmented.database if use.fragmented else "", title=about.title, entries=found.entries, residues=found.residues,
            ordered=found.ordered, unordered=found.unordered,
        )  # fmt: skip

    def read(
        self, use: ToolUse, command: Command, outputs: Sequence[Path], batches: Sequence[QueryBatch]
    ) -> list[Hits] | None:
        """Implement ``Codec.read``."""
        words = blast_text.read(command.argv, outputs[0], batches)
        if words is None:
            return None
        names = named(_about(use), command, set().union(*words))
        found = [ordinals_by_name(names, list(each)) for each in words]
        return [Hits(batch.last - batch.first, sorted(entries)) for batch, entries in zip(batches, found, strict=True)]

    def candidates(self, use: ToolUse, command: Command) -> Callable[[int, Sequence[memoryview]], Hits]:
        """Implement ``Codec.candidates``, by the same code that makes a database of candidates."""
        _about(use)
        fragmented = use.fragmented
        assert fragmented  # it is to be searched
        return lambda queries, found: Hits(queries, BACKEND.ordinals(fragmented, command.cwd, command.environ, found))

    def found(self, use: ToolUse, command: Command, batches: Sequence[Hits]) -> Iterator[bytes]:
        """Implement ``Codec.found``: a list of hits with links."""
        for batch in batches:
            lines = [b"<a href=#BL_ORD_ID:%d>1</a> 0\n" % entry for entry in batch.entries]
            lists = (lines[at : at + _LIST] for at in range(0, len(lines), _LIST))
            yield b"".join(b"<b>Query=</b>\n" + b"".join(each) for each in lists)

    def like(self, fragmented: Fragmented, database: Database) -> Fragmented:
        """Implement ``Codec.like``."""
        assert isinstance(fragmented.about, BlastDatabase)
        about = msgspec.structs.replace(
            fragmented.about, title=database.title, entries=database.entries, residues=database.residues,
            counted=(database.entries, database.residues),
        )  # fmt: skip
        return msgspec.structs.replace(fragmented, about=about, database=database.name)

    def database_name(self, name: str, cwd: Path, environ: Mapping[str, str]) -> str:
        """Implement ``Codec.database_name``. A name without a folder may be in a folder of ``BLASTDB``."""
        here = [cwd / each for each in split_names(name)]
        absolute = [str(path) if list(path.parent.glob(f"{path.name}*.[pn]*")) else path.name for path in here]
        return _joined(absolute)

    def database_argument(self, use: ToolUse, command: Command) -> str:
        """Implement ``Codec.database_argument``."""
        return _joined(_about(use).databases)


def _about(use: ToolUse) -> BlastDatabase:
    about = use.fragmented.about if use.fragmented else None
    assert isinstance(about, BlastDatabase)  # it is to be searched
    if about.listed:
        raise NotPackable("the search is of a list of entries, which does not travel")
    return about


def without(argv: Sequence[str], names: Set[str]) -> list[str]:
    """Remove the options ``names``, with their values, from a command.

    >>> without(["blastp", "-query", "q", "-num_threads", "4", "-out=x"], {"num_threads", "out"})
    ['blastp', '-query', 'q']
    """
    kept = [argv[0]]
    for word in scan(argv[1:], OPTIONS, "BLAST", first=0):
        if word.name not in names:
            kept += argv[1 + word.at : 2 + max(word.at, word.value_at if word.values else 0)]
    return kept


def _joined(names: Sequence[str]) -> str:
    return " ".join(f'"{name}"' if re.search(r"\s", name) else name for name in names)


#: The codec of this family.
CODEC = BlastCodec()
