"""Reader of BLAST results: the words that may name entries, for each batch of queries."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from millrace.pack.queries import QueryBatch
from millrace.tools.blast.options import OPTIONS
from millrace.tools.options import scan_options

#: The default columns of a table.
_STANDARD = [
    "qaccver",
    "saccver",
    "pident",
    "length",
    "mismatch",
    "gapopen",
    "qstart",
    "qend",
    "sstart",
    "send",
    "evalue",
    "bitscore",
]

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
    expanded = [name for each in columns or ["std"] for name in (_STANDARD if each == "std" else [each])]
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
