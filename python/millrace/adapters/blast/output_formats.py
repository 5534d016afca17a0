"""Output formats of BLAST: how each is joined, and which are refused."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import msgspec

from millrace.adapters.blast.command_line import QueryNames, make_usage_refusal
from millrace.adapters.option_reader import split_ordered_words, split_words
from millrace.core.errors import RefusedError

#: The columns of ``std``, and of a table without named columns.
STANDARD_COLUMNS = split_ordered_words(
    "qaccver saccver pident length mismatch gapopen qstart qend sstart send evalue bitscore"
)
COLUMNS = split_words(
    """
    qseqid qgi qacc qaccver qlen sseqid sallseqid sgi sallgi sacc saccver sallacc slen qstart qend sstart send
    qseq sseq evalue bitscore score length pident nident mismatch positive gapopen gaps ppos frames qframe
    sframe btop staxid ssciname scomname sblastname sskingdom staxids sscinames scomnames sblastnames
    sskingdoms stitle salltitles sstrand qcovs qcovhsp qcovus
    """
)
QUERY_COLUMNS = frozenset({"qseqid", "qacc", "qaccver"})

#: What BLAST reads without a warning outside of titles and comments, by the kind of queries.
PROTEIN_LETTERS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz* \t\r\n"
NUCLEOTIDE_LETTERS = b"ABCDGHKMNRSTUVWYabcdghkmnrstuvwy \t\r\n"
NUCLEOTIDE_QUERIES = frozenset({"blastn", "blastx", "tblastx", "rpstblastn"})
COMMENTS = (b">", b";", b"!", b"#")
PIECE_BYTES = 1 << 20

#: Formats that are refused: the reason, and the nearest format that works.
REFUSED_FORMATS = {
    9: ("it is binary ASN.1, whose Query_N cannot be run on", "use -outfmt 11 or 5"),
    **{
        number: (
            "it is many files, named after -out and numbered over the whole run",
            f"use -outfmt {one}, the same in one file",
        )
        for number, one in ((13, 15), (14, 16))
    },
    **dict.fromkeys(
        (1, 2, 3, 4),
        (
            "its lines begin with Query_N, whose width shifts the alignment when N runs on over the batches",
            "use -outfmt 0, the same hits pairwise",
        ),
    ),
    17: (
        "its head lists all queries or all subjects of the whole run and the command line of each task",
        "use -outfmt '6 std btop', which holds the same alignments",
    ),
}


class OutputFormat(msgspec.Struct, frozen=True):
    """An ``-outfmt``: its number, and for tables the columns and their delimiter."""

    number: int
    columns: tuple[str, ...] = ()
    delim: str = "\t"


def parse_format(text: str) -> OutputFormat:
    """Read an ``-outfmt`` as BLAST does: it ignores unknown and repeated columns, and without any takes ``std``.

    >>> parse_format("6 qseqid evalue bogus qseqid").columns
    ('qseqid', 'evalue')
    """
    words = text.split()
    if not words or not re.fullmatch(r"\d+", words[0]):
        raise make_usage_refusal(f"'{text}' is not a valid output format")
    number = int(words[0])
    if number not in (6, 7, 10):
        return OutputFormat(number)
    delim = "," if number == 10 else "\t"
    if len(words) > 1 and words[1].startswith("delim="):
        delim = words[1].removeprefix("delim=") or delim
    columns: list[str] = []
    for word in words[1:]:
        for column in STANDARD_COLUMNS if word == "std" else [word]:
            if column in COLUMNS and column not in columns:
                columns.append(column)
    return OutputFormat(number, tuple(columns or STANDARD_COLUMNS), delim)


#: How each format but tables is joined, and what that means.
REPORT_JOINS = {
    0: ("blast-report", "banner of the first batch, queries in order, closing statistics once at the end"),
    5: ("blast-xml", "one XML head and foot; iteration numbers and Query_N run on over the batches"),
    8: ("blast-seqalign", "the alignments one after the other; Query_N runs on over the batches"),
    11: ("blast-archive", "one archive a pass over the database; Query_N runs on over the batches"),
    12: ("blast-seqalign-json", "the alignments one after the other; Query_N runs on over the batches"),
    15: ("blast-json", "one JSON document; Query_N runs on over the batches"),
    16: ("blast-xml2", "one XML document; Query_N runs on over the batches"),
    18: ("concat", "the reports of all queries one after the other"),
}


def choose_join(program: str, options: dict[str, str], fmt: OutputFormat, names: QueryNames, notes: list[str]) -> str:
    """Choose the join of an output format, and append what it does to ``notes``.

    Raises:
        RefusedError: The format cannot be joined exactly, or not with these options or names.
    """
    _refuse_unjoinable_format(options, fmt, names)
    if names.blank:
        return "concat"  # one batch, for which nothing is written
    if fmt.number in (6, 10):
        return _join_table(fmt, names, notes)
    if fmt.number == 7:
        return _join_comments(fmt, names, notes)
    join, note = REPORT_JOINS[fmt.number]
    notes.append(f"-outfmt {fmt.number}: {note}")
    numbered = fmt.number not in (0, 18)
    return f"{join}:parsed" if numbered and "parse_deflines" in options else join


def _refuse_unjoinable_format(options: dict[str, str], fmt: OutputFormat, names: QueryNames) -> None:
    if fmt.number in REFUSED_FORMATS:
        why, hint = REFUSED_FORMATS[fmt.number]
        raise RefusedError(f"-outfmt {fmt.number} cannot be joined exactly: {why}", hint)
    parsed = "parse_deflines" in options
    if parsed and not names.known:
        raise RefusedError(
            f"{names.path}: with -parse_deflines BLAST takes records with one id, or with none, for each other, and what comes "
            "from a pipe cannot be looked at before",
            "save the queries in a file: -query FILE; or leave -parse_deflines out",
        )
    if parsed and names.unnamed:
        raise _make_name_refusal(names, "with -parse_deflines BLAST numbers the records without a name by themselves")
    if options.get("mt_mode", "0") != "0" and fmt.number not in (6, 10):
        raise RefusedError(
            f"-mt_mode 1 writes -outfmt {fmt.number} in another way, which is not joined",
            "leave -mt_mode out: every core gets queries of its own anyway",
        )
    if fmt.number not in (6, 7, 10, *REPORT_JOINS):
        hint = "use -outfmt 0, 5, 6, 7, 8, 10, 11, 12, 15, 16 or 18"
        raise RefusedError(f"-outfmt {fmt.number} is not joined yet", hint)


def refuse_unjoinable_queries(program: str, fmt: OutputFormat, queries: Path) -> None:
    """Refuse a file with a record that changes the output of its batch: a title for XML, a letter for archives.

    The head of XML (5) has the title of the first query, and BLAST ends with an error if it cannot write that; of other
    queries it leaves the iteration out. With batches, any record may be the first. An archive (11) keeps BLAST's warnings, which tell the line
    of a letter that is none.
    """
    if fmt.number not in (5, 11):
        return
    letters = NUCLEOTIDE_LETTERS if program in NUCLEOTIDE_QUERIES else PROTEIN_LETTERS
    number = 0
    with queries.open("rb") as file:
        if fmt.number == 5 and all(piece.isascii() for piece in iter(partial(file.read, PIECE_BYTES), b"")):
            return
        file.seek(0)
        for line in file:
            number += line.startswith(b">")
            if fmt.number == 5 and line.startswith(b">") and not line.isascii():
                raise RefusedError(
                    f"{queries.name}: the title of record {number} has letters outside of ASCII: with -outfmt 5 BLAST leaves such a "
                    "query out, and ends with an error if it is the first one, as it would be in a batch",
                    "use -outfmt 16, which is XML, too; or write the titles in ASCII, in the serial run too",
                )
            if fmt.number == 11 and not line.startswith(COMMENTS) and line.translate(None, letters):
                raise RefusedError(
                    f"{queries.name}: record {number} has a letter that BLAST leaves out: -outfmt 11 keeps its warning, which "
                    "tells the line in the whole file",
                    "use -outfmt 5, or take such letters and hyphens out, in the serial run too",
                )


def _make_name_refusal(names: QueryNames, why: str) -> RefusedError:
    return RefusedError(
        f"{names.path}: record {names.unnamed} has no name: {why}", "give every record a name after the '>'"
    )


def _join_table(fmt: OutputFormat, names: QueryNames, notes: list[str]) -> str:
    notes.append(f"-outfmt {fmt.number}: the rows of all batches one after the other are the serial output")
    if not QUERY_COLUMNS.intersection(fmt.columns) or (names.known and not names.unnamed):
        return "concat"
    if names.known and names.query_like:
        raise _make_name_refusal(names, "BLAST calls it Query_N, and other records are called so too")
    columns = _count_query_columns(fmt, names)
    if names.known:
        notes.append("records without a name are called Query_N, and N runs on over the batches")
        return f"blast-tabular:columns={columns},delim={fmt.delim.encode().hex()},unnamed"
    notes.append(
        "a record without a name cannot be told in a pipe: where one has a row, it is set aside with those that BLAST takes together with it"
    )
    return f"blast-tabular:columns={columns},delim={fmt.delim.encode().hex()}"


def _join_comments(fmt: OutputFormat, names: QueryNames, notes: list[str]) -> str:
    notes.append("-outfmt 7: the queries are counted over all batches in the last line")
    if not QUERY_COLUMNS.intersection(fmt.columns) or (names.known and not names.unnamed):
        return "blast-comments:columns=0"
    return f"blast-comments:columns={_count_query_columns(fmt, names)},delim={fmt.delim.encode().hex()}"


def _count_query_columns(fmt: OutputFormat, names: QueryNames) -> int:
    count = next((at for at, column in enumerate(fmt.columns) if column not in QUERY_COLUMNS), len(fmt.columns))
    if QUERY_COLUMNS.intersection(fmt.columns[count:]):
        where = f"record {names.unnamed} of {names.path} has no name" if names.unnamed else "queries come from a pipe"
        raise RefusedError(
            f"{where}, and a column with the query's name follows other columns",
            "put qseqid, qacc and qaccver before all other columns, or name every record and give a file",
        )
    return count
