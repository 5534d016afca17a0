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

from millrace.model import BlastDatabase, FragmentPlan, OutputUse, ToolUse, UserCommand
from millrace.pack import blast_text, known_databases
from millrace.pack.blast_entries import find_blastdbcmd, find_named_ordinals, read_entries
from millrace.pack.codec import NotPackableError, collect_named_ordinals
from millrace.pack.hits import BatchHits
from millrace.pack.queries import QueryBatch
from millrace.pack.recipe import PackedDatabase
from millrace.tools.blast.backend import BACKEND
from millrace.tools.blast.options import OPTIONS
from millrace.tools.blast.search_path import split_names
from millrace.tools.options import scan_options

#: The day on which a database was made, which differs between sites.
_VOLATILE = (r"^ *Posted date: .*$",)

#: Ordinals in one list of hits: no more than BLAST puts into one.
_MAX_LIST_ORDINALS = 1000


class BlastCodec:
    """The ``millrace.pack.codec.ResultCodec`` of BLAST+."""

    def drop_speed_options(self, argv: Sequence[str]) -> Sequence[str]:
        """Implement ``ResultCodec.drop_speed_options``: remove the options of threads."""
        return remove_options(argv, {"num_threads", "mt_mode"})

    def list_output_paths(self, argv: Sequence[str]) -> Sequence[str]:
        """Implement ``ResultCodec.list_output_paths``."""
        words = scan_options(argv[1:], OPTIONS, "BLAST", first=0)
        return [word.value for word in words if word.name == "out" and word.values]

    def build_search_command(self, argv: Sequence[str], output: str) -> Sequence[str]:
        """Implement ``ResultCodec.build_search_command``: a table of names alone."""
        return [*remove_options(argv, {"outfmt", "out"}), "-outfmt", "6 qseqid sseqid", "-out", output]

    def list_volatile_patterns(self, output: OutputUse) -> Sequence[str]:
        """Implement ``ResultCodec.list_volatile_patterns``."""
        return _VOLATILE

    def describe_database(
        self, use: ToolUse, command: UserCommand, *, like: PackedDatabase | None = None
    ) -> PackedDatabase:
        """Implement ``ResultCodec.describe_database``."""
        about = _require_blast_database(use)
        most = like.entries if like else None
        files: list[Path | str] = [find_blastdbcmd(command), *use.databases]
        found = known_databases.get_database_entries(
            files, most, command.environ, lambda: read_entries(about, command, most)
        )
        return PackedDatabase(
            name=use.fragmented.database if use.fragmented else "", title=about.title, entries=found.entries, residues=found.residues,
            ordered=found.ordered, unordered=found.unordered,
        )  # fmt: skip

    def read_result_hits(
        self, use: ToolUse, command: UserCommand, outputs: Sequence[Path], batches: Sequence[QueryBatch]
    ) -> list[BatchHits] | None:
        """Implement ``ResultCodec.read_result_hits``."""
        words = blast_text.read_named_words(command.argv, outputs[0], batches)
        if words is None:
            return None
        names = find_named_ordinals(_require_blast_database(use), command, set().union(*words))
        found = [collect_named_ordinals(names, list(each)) for each in words]
        return [
            BatchHits(batch.last - batch.first, sorted(entries)) for batch, entries in zip(batches, found, strict=True)
        ]

    def make_candidate_reader(
        self, use: ToolUse, command: UserCommand
    ) -> Callable[[int, Sequence[memoryview]], BatchHits]:
        """Implement ``ResultCodec.make_candidate_reader``, by the same code that makes a database of candidates."""
        _require_blast_database(use)
        fragmented = use.fragmented
        assert fragmented  # it is to be searched
        return lambda queries, found: BatchHits(
            queries, BACKEND.list_candidate_ordinals(fragmented, command.cwd, command.environ, found)
        )

    def format_search_blocks(self, use: ToolUse, command: UserCommand, batches: Sequence[BatchHits]) -> Iterator[bytes]:
        """Implement ``ResultCodec.format_search_blocks``: a list of hits with links."""
        for batch in batches:
            lines = [b"<a href=#BL_ORD_ID:%d>1</a> 0\n" % entry for entry in batch.entries]
            lists = (lines[at : at + _MAX_LIST_ORDINALS] for at in range(0, len(lines), _MAX_LIST_ORDINALS))
            yield b"".join(b"<b>Query=</b>\n" + b"".join(each) for each in lists)

    def adopt_packed_database(self, fragmented: FragmentPlan, database: PackedDatabase) -> FragmentPlan:
        """Implement ``ResultCodec.adopt_packed_database``."""
        assert isinstance(fragmented.about, BlastDatabase)
        about = msgspec.structs.replace(
            fragmented.about, title=database.title, entries=database.entries, residues=database.residues,
            counted=(database.entries, database.residues),
        )  # fmt: skip
        return msgspec.structs.replace(fragmented, about=about, database=database.name)

    def resolve_database_name(self, name: str, cwd: Path, environ: Mapping[str, str]) -> str:
        """Implement ``ResultCodec.resolve_database_name``. A name without a folder may be in a folder of ``BLASTDB``."""
        here = [cwd / each for each in split_names(name)]
        absolute = [str(path) if list(path.parent.glob(f"{path.name}*.[pn]*")) else path.name for path in here]
        return _quote_names(absolute)

    def format_database_argument(self, use: ToolUse, command: UserCommand) -> str:
        """Implement ``ResultCodec.format_database_argument``."""
        return _quote_names(_require_blast_database(use).databases)


def _require_blast_database(use: ToolUse) -> BlastDatabase:
    about = use.fragmented.about if use.fragmented else None
    assert isinstance(about, BlastDatabase)  # it is to be searched
    if about.listed:
        raise NotPackableError("the search is of a list of entries, which does not travel")
    return about


def remove_options(argv: Sequence[str], names: Set[str]) -> list[str]:
    """Remove the options ``names``, with their values, from a command.

    >>> remove_options(["blastp", "-query", "q", "-num_threads", "4", "-out=x"], {"num_threads", "out"})
    ['blastp', '-query', 'q']
    """
    kept = [argv[0]]
    for word in scan_options(argv[1:], OPTIONS, "BLAST", first=0):
        if word.name not in names:
            kept += argv[1 + word.at : 2 + max(word.at, word.value_at if word.values else 0)]
    return kept


def _quote_names(names: Sequence[str]) -> str:
    return " ".join(f'"{name}"' if re.search(r"\s", name) else name for name in names)


#: The codec of this family.
CODEC = BlastCodec()
