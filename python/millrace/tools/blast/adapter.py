"""BLAST+: blastp, blastn, blastx, tblastn, tblastx, psiblast, rpsblast, rpstblastn, deltablast.

*Exactness.* The part of the output that tells of a query does not depend on the other queries, but for what
`millrace.tools.blast.passes` sees to; what does depend on the whole run (banner, closing statistics, counters, the N of
``Query_N``) is put right by the joiners ``blast-*`` of ``millrace-core``. ``docs/exactness-blast.md`` has the
rule for each program and format and the test that shows it. What cannot be put right is refused here, before
anything starts.
"""

from __future__ import annotations

import mmap
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from millrace.errors import RefusedError
from millrace.model import STANDSTILL_SECONDS, Command, CostHint, InputUse, OutputUse, Token, ToolUse
from millrace.tools.base import Fragmentable, Parts
from millrace.tools.blast import fragments, remote
from millrace.tools.blast.options import parse_options, read, wrong
from millrace.tools.blast.passes import PASS_RESIDUES, passes
from millrace.tools.blast.search_path import SearchPath, split_names
from millrace.tools.options import Tokens
from millrace.tools.registry import FAMILIES
from millrace.tools.version import first_line


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


#: Options that make BLAST print something about itself and do nothing else.
ABOUT = ("h", "help", "version", "version-full", "version-full-xml", "version-full-json", "xmlhelp", "dryrun")

#: Options whose value is a file that every task reads.
SHARED = _words("""
    subject gilist seqidlist negative_gilist negative_seqidlist taxidlist negative_taxidlist ipglist
    negative_ipglist window_masker_db
""")

#: Options that cannot go with batches, each with the reason and the way out.
REFUSED = {
    "remote": ("the search runs at NCBI, not on your cores", "search a database of your own with -db"),
    "import_search_strategy": (
        "the strategy file holds its own queries",
        "give -query, -db and the options themselves",
    ),
    "export_search_strategy": (
        "the strategy file would hold one batch instead of all queries",
        "write it once by running the program directly on one query",
    ),
    "in_pssm": ("a PSSM stands for one query, there is nothing to cut", "run this program directly"),
    "in_msa": ("an alignment stands for one query, there is nothing to cut", "run this program directly"),
    "phi_pattern": ("a PHI-BLAST pattern belongs to one query", "run this program directly"),
    "out_pssm": (
        "PSSMs of several queries go to one file, in a form that is not joined yet",
        "leave it out; for the PSSM of one query run this program directly",
    ),
    "out_ascii_pssm": (
        "PSSMs of several queries go to one file, in a form that is not joined yet",
        "leave it out; for the PSSM of one query run this program directly",
    ),
    "logfile": ("all tasks would write to it", "leave it out; millrace keeps what each task says"),
}

#: See `ToolUse.tested`.
TESTED = ("2.12.0+", "2.16.0+", "2.17.0+")

#: Residues that a task of blastn takes in one pass, as far as the number of hits allows.
PASS_RESIDUES_BLASTN = {
    "blastn": 100_000,
    "blastn-short": 100_000,
    "dc-megablast": 500_000,
    "megablast": 5_000_000,
}

NUCLEOTIDE_DATABASE = frozenset({"blastn", "tblastn", "tblastx"})

#: The columns of a table if none are named, and for ``std``.
STANDARD_COLUMNS = _words("qaccver saccver pident length mismatch gapopen qstart qend sstart send evalue bitscore")
COLUMNS = frozenset(
    _words("""
    qseqid qgi qacc qaccver qlen sseqid sallseqid sgi sallgi sacc saccver sallacc slen qstart qend sstart send
    qseq sseq evalue bitscore score length pident nident mismatch positive gapopen gaps ppos frames qframe
    sframe btop staxid ssciname scomname sblastname sskingdom staxids sscinames scomnames sblastnames
    sskingdoms stitle salltitles sstrand qcovs qcovhsp qcovus
    """)
)
QUERY_COLUMNS = frozenset({"qseqid", "qacc", "qaccver"})

#: Formats that are refused: what stands against each, and the nearest one that works.
REFUSED_FORMATS = {
    9: ("it is binary ASN.1, whose Query_N cannot be run on", "use -outfmt 11 or 5"),
    13: (
        "it is many files, named after -out and numbered over the whole run",
        "use -outfmt 15, the same in one file",
    ),
    14: (
        "it is many files, named after -out and numbered over the whole run",
        "use -outfmt 16, the same in one file",
    ),
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


class Blast:
    """Adapter for the search programs of BLAST+."""

    def parts(self, argv: Sequence[str], at: int, name: str) -> Parts | None:
        """See `Gathering`: all files of a database, where one is named."""
        return remote.parts(Path(argv[0]).name in NUCLEOTIDE_DATABASE, argv, at, name)

    def named_in(self, name: str, read: Callable[[], bytes]) -> dict[str, Parts]:
        """See `Gathering`: what an alias names."""
        return remote.named_in(name, read)

    def understand(self, command: Command) -> ToolUse:
        """See `Adapter.understand`. Reads the query file once, for records that have no name."""
        program = self._program(command)
        options = parse_options(command.argv)
        _refuse_options(program, options)
        fmt = parse_format(options.get("outfmt", "0"))
        query = _query(command, options)
        names = _names(command, query, "parse_deflines" in options)
        notes: list[str] = []
        databases = _databases(command, program, options, fmt)
        join = _join(program, options, fmt, names, notes)
        shared = passes(program, options, fmt.number == 11, command.cwd / query if names.known else None, command)
        notes += [shared.note] if shared.note else []
        argv, output = _arguments(command, options, join)
        return ToolUse(
            adapter="blast",
            still_seconds=STANDSTILL_SECONDS,
            argv=argv,
            inputs=(
                InputUse(
                    path=query,
                    format="fasta",
                    stdin=query == "-",
                    glue_empty=True,
                    pass_residues=shared.residues,
                    too_long=shared.too_long,
                ),
            ),
            outputs=(output,),
            databases=databases,
            threads=_threads(options, notes),
            cost=_cost(program, options),
            # 1 and 3 may be one bad record. 2: the database. 6: the output cannot be written.
            fatal_statuses=(2, 6),
            version=first_line(command, "-version"),
            tested=TESTED,
            notes=tuple(notes),
        )

    def fragmentable(self, use: ToolUse, command: Command) -> Fragmentable:
        """See `Fragmenting.fragmentable`."""
        return fragments.fragmentable(self._program(command), parse_options(command.argv), command)

    def fragment(self, use: ToolUse, command: Command, sizes: Sequence[int]) -> ToolUse:
        """See `Fragmenting.fragment`."""
        options = parse_options(command.argv)
        fmt = parse_format(options.get("outfmt", "0"))
        columns = fmt.columns if (fmt.number, fmt.delim) == (6, "\t") else ()
        fragmented = fragments.fragment(use, self._program(command), options, command, sizes, columns)
        return msgspec.structs.replace(use, fragmented=fragmented)

    def _program(self, command: Command) -> str:
        program = command.exe.name if command.exe.name in FAMILIES["blast"] else Path(command.argv[0]).name
        return program.removesuffix("+")


def _refuse_options(program: str, options: dict[str, str]) -> None:
    if program == "deltablast" and not options.keys() & set(ABOUT):
        raise RefusedError(
            "deltablast has not been compared with serial runs: that needs NCBI's cdd_delta",
            "use psiblast, or rpsblast for the domains",
        )
    for name in ABOUT:
        if name in options:
            raise RefusedError(f"-{name} is not a search, there is nothing to cut", f"run '{program} -{name}' directly")
    for name, (why, hint) in REFUSED.items():
        if name in options:
            raise RefusedError(f"-{name} cannot be used here: {why}", hint)


@dataclass(frozen=True)
class Format:
    """An ``-outfmt``: its number, and for tables the columns and what stands between them."""

    number: int
    columns: tuple[str, ...] = ()
    delim: str = "\t"


def parse_format(text: str) -> Format:
    """Read an ``-outfmt`` as BLAST does: unknown and repeated columns do not count, none means the usual.

    >>> parse_format("6 qseqid evalue bogus qseqid").columns
    ('qseqid', 'evalue')
    """
    words = text.split()
    if not words or not re.fullmatch(r"\d+", words[0]):
        raise wrong(f"'{text}' is not a valid output format")
    number = int(words[0])
    if number not in (6, 7, 10):
        return Format(number)
    delim = "," if number == 10 else "\t"
    if len(words) > 1 and words[1].startswith("delim="):
        delim = words[1].removeprefix("delim=") or delim
    columns: list[str] = []
    for word in words[1:]:
        for column in STANDARD_COLUMNS if word == "std" else [word]:
            if column in COLUMNS and column not in columns:
                columns.append(column)
    return Format(number, tuple(columns or STANDARD_COLUMNS), delim)


# The query and the names of its records


@dataclass(frozen=True)
class Names:
    """What a look at the query file told. For a pipe nothing is known beforehand."""

    known: bool
    #: 1-based number of the first record without a name; 0: all have one.
    unnamed: int = 0
    #: A record is called ``Query_`` and a number.
    query_like: bool = False
    path: str = ""


def _query(command: Command, options: dict[str, str]) -> str:
    query = options.get("query", "-")
    if query == "-" and not command.stdin_is_data:
        raise RefusedError("no queries: -query is not given and nothing comes from standard input", "add -query FILE")
    return query


def _names(command: Command, query: str, parsed: bool) -> Names:
    path = command.cwd / query
    if query == "-":
        return Names(known=False, path="standard input")
    if not path.exists():
        raise RefusedError(f'Command line argument error: Argument "query". File is not accessible:  `{query}\'')
    if not path.is_file():
        return Names(known=False, path=query)
    if path.stat().st_size == 0:
        return Names(known=True, path=query)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        names = _look(data, query)
        if parsed and not names.unnamed:
            _refuse_twins(data, query)
        return names


def _look(data: mmap.mmap, query: str) -> Names:
    start = re.match(rb"(?:[ \t]*\r?\n)*", data[: 1 << 16])
    first = data[start.end() : start.end() + 4] if start else b""
    if first[:2] == b"\x1f\x8b" or first == b"\x28\xb5\x2f\xfd":
        raise RefusedError(
            f"{query}: is compressed, which BLAST does not read",
            f"zcat {query} | millrace run -- ... -query -",
        )
    if first and not first.startswith(b">"):
        raise RefusedError(
            f"{query}:1: expected '>', found '{first[:1].decode('latin-1')}': "
            "a bare sequence or a list of accessions, which cannot be cut into records",
            "write the queries as FASTA, each record with a line that begins with '>'",
        )
    if data.find(b"\n>?") >= 0:
        raise RefusedError(
            f"{query}: a line begins with '>?', which BLAST takes for a gap and not for a record",
            "write gaps as N or X",
        )
    unnamed = min(_without_name(data), default=None)
    before = data[:unnamed] if unnamed is not None else b""
    return Names(
        known=True,
        unnamed=0 if unnamed is None else before.count(b"\n>") + before.startswith(b">") + 1,
        query_like=re.match(rb"> ?Query_", data) is not None
        or any(data.find(b"\n>" + name) >= 0 for name in (b"Query_", b" Query_")),
        path=query,
    )


def _refuse_twins(data: mmap.mmap, query: str) -> None:
    """Refuse two records with one id: with ``-parse_deflines`` BLAST searches the first one twice."""
    seen: dict[bytes, int] = {}
    begin = -1 if data[:1] == b">" else data.find(b"\n>")
    number = 0
    while number == 0 or begin >= 0:
        number += 1
        word = data[begin + 2 : begin + 2 + 500].split(None, 1)[:1]
        key = sequence_id(word[0]) if word else b""
        if key in seen:
            raise RefusedError(
                f"{query}: records {seen[key]} and {number} have the same id, and with -parse_deflines "
                "BLAST searches the first one twice",
                "leave -parse_deflines out, or give every record an id of its own",
            )
        seen[key] = number
        begin = data.find(b"\n>", begin + 1)


def sequence_id(word: bytes) -> bytes:
    """What BLAST compares of a name, without case and version; more alike than BLAST may see it, never less.

    >>> sequence_id(b"sp|P01013.2|OVAX_CHICK"), sequence_id(b"Gene.1"), sequence_id(b"lcl|x")
    (b'p01013', b'gene.1', b'x')
    """
    parts = word.lower().split(b"|")
    if len(parts) == 1:
        return parts[0]
    if parts[0] == b"gi" and len(parts) > 3:
        parts = parts[2:]
    if parts[0] in (b"gnl", b"lcl", b"pdb"):
        return b"|".join(parts[1:])
    return (parts[1] or parts[-1]).split(b".")[0]


def _without_name(data: mmap.mmap) -> Iterator[int]:
    """First places of records whose line after ``>`` has nothing but space, for each kind of space."""
    if re.match(rb">[ \t]*\r?(\n|\Z)", data):
        yield 0
    if data[-2:] == b"\n>":
        yield len(data) - 1
    for needle in (b"\n>\n", b"\n>\r", b"\n> ", b"\n>\t"):
        at = data.find(needle)
        while at >= 0:
            end = data.find(b"\n", at + 1)
            if not data[at + 2 : end if end >= 0 else len(data)].strip():
                yield at + 1
                break
            at = data.find(needle, at + 1)


# Output: which joiner, and its notes


def _join(program: str, options: dict[str, str], fmt: Format, names: Names, notes: list[str]) -> str:
    if fmt.number in REFUSED_FORMATS:
        why, hint = REFUSED_FORMATS[fmt.number]
        raise RefusedError(f"-outfmt {fmt.number} cannot be joined exactly: {why}", hint)
    parsed = "parse_deflines" in options
    if parsed and names.unnamed:
        raise _needs_name(names, "with -parse_deflines BLAST numbers the records without a name by themselves")
    if options.get("mt_mode", "0") != "0" and fmt.number not in (6, 10):
        raise RefusedError(
            f"-mt_mode 1 writes -outfmt {fmt.number} in another way, which is not joined",
            "leave -mt_mode out: every core gets queries of its own anyway",
        )
    if fmt.number in (6, 10):
        return _join_table(fmt, names, notes)
    if fmt.number == 7:
        return _join_comments(fmt, names, notes)
    suffix = ":parsed" if parsed else ""
    match fmt.number:
        case 0:
            notes.append("-outfmt 0: banner of the first batch, queries in order, closing statistics once at the end")
            return "blast-report"
        case 5:
            notes.append("-outfmt 5: one XML head and foot; iteration numbers and Query_N run on over the batches")
            return "blast-xml" + suffix
        case 15:
            notes.append("-outfmt 15: one JSON document; Query_N runs on over the batches")
            return "blast-json" + suffix
        case 8 | 12:
            notes.append(f"-outfmt {fmt.number}: the alignments one after the other; Query_N runs on over the batches")
            return ("blast-seqalign" if fmt.number == 8 else "blast-seqalign-json") + suffix
        case 11:
            notes.append("-outfmt 11: one archive a pass over the database; Query_N runs on over the batches")
            return "blast-archive" + suffix
        case 18:
            notes.append("-outfmt 18: the reports of all queries one after the other")
            return "concat"
        case 16:
            notes.append("-outfmt 16: one XML document; Query_N runs on over the batches")
            return "blast-xml2" + suffix
        case _:
            raise RefusedError(
                f"-outfmt {fmt.number} is not joined yet", "use -outfmt 0, 5, 6, 7, 8, 10, 11, 12, 15, 16 or 18"
            )


def _needs_name(names: Names, why: str) -> RefusedError:
    return RefusedError(
        f"{names.path}: record {names.unnamed} has no name: {why}", "give every record a name after the '>'"
    )


def _join_table(fmt: Format, names: Names, notes: list[str]) -> str:
    notes.append(f"-outfmt {fmt.number}: the rows of all batches one after the other are the serial output")
    if not QUERY_COLUMNS.intersection(fmt.columns) or (names.known and not names.unnamed):
        return "concat"
    if names.known and names.query_like:
        raise _needs_name(names, "BLAST calls it Query_N, and other records are called so too")
    columns = _leading_query_columns(fmt, names)
    if names.known:
        notes.append("records without a name are called Query_N, and N runs on over the batches")
        return f"blast-tabular:columns={columns},delim={fmt.delim.encode().hex()},unnamed"
    notes.append("a record without a name cannot be told in a pipe: the run stops at the first row of one")
    return f"blast-tabular:columns={columns},delim={fmt.delim.encode().hex()}"


def _join_comments(fmt: Format, names: Names, notes: list[str]) -> str:
    notes.append("-outfmt 7: the queries are counted over all batches in the last line")
    if not QUERY_COLUMNS.intersection(fmt.columns) or (names.known and not names.unnamed):
        return "blast-comments:columns=0"
    return f"blast-comments:columns={_leading_query_columns(fmt, names)},delim={fmt.delim.encode().hex()}"


def _leading_query_columns(fmt: Format, names: Names) -> int:
    count = next((at for at, column in enumerate(fmt.columns) if column not in QUERY_COLUMNS), len(fmt.columns))
    if QUERY_COLUMNS.intersection(fmt.columns[count:]):
        where = f"record {names.unnamed} of {names.path} has no name" if names.unnamed else "queries come from a pipe"
        raise RefusedError(
            f"{where}, and a column with the query's name follows other columns",
            "put qseqid, qacc and qaccver before all other columns, or name every record and give a file",
        )
    return count


def _arguments(command: Command, options: dict[str, str], join: str) -> tuple[tuple[Token, ...], OutputUse]:
    """Put placeholders where the query and the output stand; a query from standard input stays there."""
    tokens = Tokens(command.argv)
    for word in read(command.argv):
        if word.name == "query" and word.value != "-":
            tokens.input(word)
        elif word.name == "out" and word.value != "-":
            tokens.output(word, 0)
    path = options.get("out", "-")
    to_file = path != "-"
    return tokens.done(), OutputUse(name="out" if to_file else "stdout", path=path, stdout=not to_file, join=join)


def _threads(options: dict[str, str], notes: list[str]) -> int:
    text = options.get("num_threads", "1")
    threads = int(text) if re.fullmatch(r"[1-9]\d{0,4}", text) else 1
    if threads > 1:
        notes.append(f"-num_threads {threads}: each task keeps {threads} cores busy; -num_threads 1 is more efficient")
    return threads


def _cost(program: str, options: dict[str, str]) -> CostHint:
    if program == "blastn":
        residues = PASS_RESIDUES_BLASTN.get(options.get("task", "megablast"), 100_000)
    else:
        residues = PASS_RESIDUES[program]
    return CostHint(unit="residues", startup_seconds=0.06, pass_units=residues)


def _databases(command: Command, program: str, options: dict[str, str], fmt: Format) -> tuple[Path, ...]:
    if not {"db", "subject"} & options.keys():
        raise wrong("Either a BLAST database or subject sequence(s) must be specified")
    files = [command.cwd / options[name] for name in SHARED if name in options]
    search = SearchPath(command)
    letter = "n" if program in NUCLEOTIDE_DATABASE else "p"
    for name in split_names(options.get("db", "")):
        files += search.find(name, letter)
    for name in split_names(options.get("rpsdb", "cdd_delta" if program == "deltablast" else "")):
        files += search.find(name, "p")
    by_taxa = any("taxid" in name for name in options)  # of which BLAST+ 2.16 looks up those below
    if fmt.number == 18 or by_taxa or any(re.search("sci|com|blastn|king", column) for column in fmt.columns):
        files += search.taxonomy()
    return tuple(dict.fromkeys(file for file in files if file.exists()))


#: The adapter of this family.
ADAPTER = Blast()
