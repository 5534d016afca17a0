"""The codec for results of BLAST+: the entries that they name, and their database.

Hits are read from reports and tables: the start of each query, and the first words of lines or the columns that name
entries. A name that several entries share stands for all of them: candidates may be any superset of the reported
entries, so an entry that was not hit does not change the result. Names of entries, and a digest that is independent
of volumes and paths, come from ``blastdbcmd``.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from itertools import islice
from pathlib import Path

import msgspec

from millrace.adapters.blast.backend import BACKEND, format_hit_lists
from millrace.adapters.blast.command_line import OPTIONS
from millrace.adapters.blast.output_formats import STANDARD_COLUMNS
from millrace.adapters.blast.search_path import split_names
from millrace.adapters.blast.volumes import KINDS
from millrace.adapters.option_reader import scan_options
from millrace.core.tool_use import BlastDatabase, FragmentPlan, OutputUse, ToolUse, UserCommand
from millrace.extensions.pack import known_databases
from millrace.extensions.pack.hits import BatchHits
from millrace.extensions.pack.known_databases import DatabaseEntries, digest_entries
from millrace.extensions.pack.layout import PackedDatabase
from millrace.extensions.pack.result_codec import (
    CandidateReader,
    NotPackableError,
    QueryBatch,
    collect_named_ordinals,
)

#: The name of an entry without an id: its position in its volume.
_NUMBERED = re.compile(rb"^(?:gnl\|)?BL_ORD_ID[|:]\d+$")


def read_entries(about: BlastDatabase, command: UserCommand, most: int | None) -> DatabaseEntries:
    """Read and digest all entries, or the first ``most``.

    Raises:
        NotPackableError: ``blastdbcmd`` cannot list them.
    """
    return digest_entries(
        _parse_entry(line) for line in islice(read_blastdbcmd_lines(about, command, "%i\t%t\t%s"), most)
    )


def _parse_entry(line: bytes) -> tuple[bytes, int]:
    """Return what distinguishes an entry, and the length of its sequence."""
    name, _, rest = line.rstrip(b"\n").partition(b"\t")
    return (b"" if _NUMBERED.match(name) else name) + b"\t" + rest, len(rest.rpartition(b"\t")[2])


def find_named_ordinals(about: BlastDatabase, command: UserCommand, words: Set[bytes]) -> Mapping[bytes, Sequence[int]]:
    """Return the ordinals, ascending, of the entries named by each of ``words``."""
    found: dict[bytes, list[int]] = defaultdict(list)
    for number, line in enumerate(read_blastdbcmd_lines(about, command, "%i\t%a\t%t")):
        for name in _list_entry_names(line.rstrip(b"\n")) & words:
            found[name].append(number)
    return found


def _list_entry_names(line: bytes) -> set[bytes]:
    """Return the words by which a result may name the entry of a line.

    >>> sorted(_list_entry_names(b"gnl|BL_ORD_ID|3\\tBL_ORD_ID:3\\tsp|P1|X_Y a protein"))
    [b'BL_ORD_ID:3', b'P1', b'X_Y', b'gnl|BL_ORD_ID|3', b'sp|P1|X_Y']
    >>> sorted(_list_entry_names(b"sp|P12.3|\\tP12.3\\ta protein"))
    [b'P12', b'P12.3', b'a', b'sp|P12.3|']
    """
    name, accession, title = [*line.split(b"\t", 2), b"", b""][:3]
    found = {name, accession, accession.rpartition(b".")[0]}
    if not _NUMBERED.match(name):
        found |= {part for part in name.split(b"|")[1:] if part}
    # Control-A separates the titles of an entry.
    for each in title.split(b"\x01"):
        words = each.split(None, 1)
        if words:
            found |= {words[0], *(part for part in words[0].split(b"|")[1:] if part)}
    return found - {b""}


def find_blastdbcmd(command: UserCommand) -> str:
    """Return the path of ``blastdbcmd``.

    Raises:
        NotPackableError: It is not on the ``PATH``.
    """
    program = shutil.which("blastdbcmd", path=command.environ.get("PATH"))
    if program is None:
        raise NotPackableError("blastdbcmd is not on the PATH, which tells what a database holds")
    return program


def read_blastdbcmd_lines(about: BlastDatabase, command: UserCommand, outfmt: str) -> Iterator[bytes]:
    """Yield a line of ``blastdbcmd -outfmt`` for each entry, in the order of the database.

    Raises:
        NotPackableError: ``blastdbcmd`` is not there, or fails.
    """
    program = find_blastdbcmd(command)
    # One volume after another, in the order in which BLAST counts their entries.
    for base, _ in about.volumes:
        name = f'"{base}"' if " " in base else base
        arguments = ["-db", name, "-dbtype", KINDS[about.letter], "-entry", "all", "-outfmt", outfmt]
        with subprocess.Popen(
            [program, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=command.cwd, env=dict(command.environ)
        ) as process:  # fmt: skip
            assert process.stdout and process.stderr
            try:
                yield from process.stdout
                words = process.stderr.read().decode(errors="replace").strip()
            except GeneratorExit:
                process.kill()
                raise
        if process.returncode:
            raise NotPackableError(f"blastdbcmd cannot read {base}: {words}")


_QUERY = ("qseqid", "qaccver", "qacc")
_SUBJECT = ("sseqid", "saccver", "sacc", "sallseqid", "sallacc")

#: First line of a query, in the formats that list each query, by format number.
_BEGINS = {
    **dict.fromkeys((0, 1, 2, 3, 4), re.compile(rb"^(?:<b>)?Query=(?:</b>)?(?: |$)")),
    5: re.compile(rb"^<Iteration>"),
    7: re.compile(rb"^# Query:"),
}

_HIT = re.compile(rb"<Hit_(?:id|def|accession)>([^<\s]*)")


def read_named_words(argv: Sequence[str], path: Path, batches: Sequence[QueryBatch]) -> list[set[bytes]] | None:
    """Return the words that may name entries, for each batch; None if the query of a line is uncertain."""
    form, columns = _parse_outfmt(argv)
    sizes = [batch.last - batch.first for batch in batches]
    with path.open("rb") as lines:
        if form in _BEGINS:
            words = _make_column_reader(columns) if form == 7 else _find_xml_names if form == 5 else _find_first_word
            return _collect_by_query_start(lines, _BEGINS[form], sizes, words) if words else None
        if form == 6:
            names = [name for batch in batches for name in batch.names]
            return _collect_by_query_name(lines, columns, names, sizes) if len(names) == sum(sizes) else None
    return None


def _parse_outfmt(argv: Sequence[str]) -> tuple[int, list[str]]:
    """Return the number of the output format (-1: unknown), and the columns of a table."""
    text = "0"
    for word in scan_options(argv[1:], OPTIONS, "BLAST", first=0):
        if word.name == "outfmt" and word.values:
            text = word.values[0]
    number, *columns = text.split()
    columns = [each for each in columns if not each.startswith("delim=")]
    expanded = [name for each in columns or ["std"] for name in (STANDARD_COLUMNS if each == "std" else [each])]
    return int(number) if number.isdigit() else -1, expanded


def _collect_by_query_start(
    lines: Iterable[bytes], begins: re.Pattern[bytes], sizes: Sequence[int], words: Callable[[bytes], Iterable[bytes]]
) -> list[set[bytes]] | None:
    found: list[set[bytes]] = [set() for _ in sizes]
    ends = _compute_batch_ends(sizes)
    query, batch = -1, -1
    for line in lines:
        if begins.match(line):
            query += 1
            if query >= ends[-1]:
                return None
            while batch < 0 or query >= ends[batch]:
                batch += 1
        elif batch >= 0:
            found[batch].update(words(line))
    return found if query + 1 == ends[-1] else None


def _compute_batch_ends(sizes: Sequence[int]) -> list[int]:
    total, ends = 0, []
    for size in sizes:
        total += size
        ends.append(total)
    return ends or [0]


def _find_first_word(line: bytes) -> Iterator[bytes]:
    """Yield the first word of a line of a report: in the list of hits and in the alignments it names an entry."""
    word = line.lstrip(b"> ").split(None, 1)[:1]
    if word and word[0] not in (b"Query", b"Sbjct"):
        yield word[0]


def _find_xml_names(line: bytes) -> list[bytes]:
    return _HIT.findall(line)


def _make_column_reader(columns: Sequence[str]) -> Callable[[bytes], Iterable[bytes]] | None:
    places = [place for place, name in enumerate(columns) if name in _SUBJECT]
    if not places:
        return None

    def words(line: bytes) -> Iterator[bytes]:
        if not line.startswith(b"#"):
            cells = line.rstrip(b"\n").split(b"\t")
            for place in places:
                if place < len(cells):
                    yield from cells[place].split(b";")

    return words


def _collect_by_query_name(
    lines: Iterable[bytes], columns: Sequence[str], names: Sequence[bytes], sizes: Sequence[int]
) -> list[set[bytes]] | None:
    """Collect the words of a table without comments, in which queries without hits do not appear."""
    words = _make_column_reader(columns)
    place = next((place for place, name in enumerate(columns) if name in _QUERY), None)
    if words is None or place is None:
        return None
    found: list[set[bytes]] = [set() for _ in sizes]
    ends = _compute_batch_ends(sizes)
    query, batch, last = -1, 0, None
    for line in lines:
        cells = line.rstrip(b"\n").split(b"\t", place + 1)
        if len(cells) <= place:
            return None
        name = cells[place]
        if name != last:
            query, last = query + 1, name
            while query < len(names) and not _is_same_query(names[query], name):
                query += 1
            if query == len(names):
                return None
            while query >= ends[batch]:
                batch += 1
        found[batch].update(words(line))
    return found


def _is_same_query(title: bytes, name: bytes) -> bool:
    """Tell whether a table calls the query with the title word ``title`` by ``name``.

    >>> _is_same_query(b"tr|A7TBS3|A7TBS3_NEMVE", b"A7TBS3"), _is_same_query(b"lcl|x", b"x"), _is_same_query(b"xy", b"x")
    (True, True, False)
    """
    return title == name or name in title.split(b"|") or name.partition(b".")[0] in title.split(b"|")


#: The day on which a database was made, which differs between sites.
_VOLATILE = (r"^ *Posted date: .*$",)

#: Ordinals in one list of hits: no more than BLAST puts into one.
_MAX_LIST_ORDINALS = 1000


class BlastCodec:
    """The ``millrace.extensions.pack.result_codec.ResultCodec`` of BLAST+."""

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
        words = read_named_words(command.argv, outputs[0], batches)
        if words is None:
            return None
        names = find_named_ordinals(_require_blast_database(use), command, set().union(*words))
        found = [collect_named_ordinals(names, list(each)) for each in words]
        return [
            BatchHits(batch.last - batch.first, sorted(entries)) for batch, entries in zip(batches, found, strict=True)
        ]

    def make_candidate_reader(self, fragmented: FragmentPlan, cwd: Path, environ: Mapping[str, str]) -> CandidateReader:
        """Implement ``ResultCodec.make_candidate_reader``, by the same code that makes a database of candidates."""
        return lambda queries, found: BatchHits(
            queries, BACKEND.list_candidate_ordinals(fragmented, cwd, environ, found)
        )

    def format_search_blocks(self, use: ToolUse, command: UserCommand, batches: Sequence[BatchHits]) -> Iterator[bytes]:
        """Implement ``ResultCodec.format_search_blocks``: a list of hits with links."""
        for batch in batches:
            ends = range(0, len(batch.entries), _MAX_LIST_ORDINALS)
            yield format_hit_lists(batch.entries[at : at + _MAX_LIST_ORDINALS] for at in ends)

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
