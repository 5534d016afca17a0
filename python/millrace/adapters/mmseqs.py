"""MMseqs2's ``easy-search``, with queries in batches.

*Exactness.* The output is that of the command with ``--threads 1``: with more threads MMseqs2 writes the queries in the order
in which they are done. Each query is searched by itself, and E-values depend on the target alone, so tables are
concatenated, and the header of ``--format-mode 4`` is kept once (``tests/exact/test_mmseqs.py``).

*Order.* ``createdb`` deals the queries into 32 parts by turns (``--shuffle 1``), and the rows come part by part: first those of
queries 0, 32, 64... The records are dealt alike before they are cut (``InputUse.dealt``), and a task has its own in order
(``--shuffle 0``). Release 18 passes ``--shuffle 0`` on to ``createdb`` if the user gives ``--shuffle`` at all, also with 1; the releases
between 15 and 18 were not compared.

*Kind of queries.* MMseqs2 takes queries for nucleotides if the first ten are; the tasks are told what the whole file is
(``--dbtype``).

*Target.* A FASTA file is made a database with an index once a node, instead of in each task. An index made with the
search's own sensitivity has the k-mers that the search itself would index. A target that is a database is used as it is.

*Nucleotides.* Aligned as such (``--search-type 3``), a hit has other scores if other queries came before: release 14 gave 1406 and
1411 bits for one row, with one thread and another order of the queries. So that search is refused.

Where memory is too small for the index, MMseqs2 splits the target, with other results (``Prefiltering::setupSplit``): the
output is that of a machine with enough memory.
"""

from __future__ import annotations

import re
import struct
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from millrace import _core
from millrace.adapters import joins
from millrace.adapters.adapter_base import is_still_growing, is_stream_path
from millrace.adapters.option_reader import CommandTokens, CommandWord, OptionErrorTexts, split_words
from millrace.adapters.program_identity import read_checked_help, read_version_line
from millrace.core import record_formats
from millrace.core.errors import RefusedError
from millrace.core.tool_use import (
    STANDSTILL_SECONDS,
    ArgumentToken,
    CostHint,
    DatabaseArg,
    InputUse,
    OutputUse,
    PreparedDatabase,
    RequiredContent,
    ScratchArg,
    ThreadsArg,
    ToolUse,
    UserCommand,
)

PROGRAM = "mmseqs easy-search"

#: Options that an index is made with, if they are given.
INDEX = split_words(
    """k alph-size comp-bias-corr mask mask-prob mask-lower-case spaced-kmer-mode max-seq-len search-type translation-table min-length
    orf-start-mode forward-frames"""
)
#: All options that take a value and were compared.
VALUES = INDEX | split_words(
    """s k-score max-seqs exact-kmer-matching min-ungapped-score alignment-mode e min-seq-id min-aln-len seq-id-mode alt-ali c
    cov-mode max-rejected max-accept score-bias sub-mat format-mode format-output dbtype db-load-mode threads v start-sens
    sens-steps"""
)
#: Options that are switched over if no value follows, with what they are then.
SWITCHES = {
    "a": "1", "diag-score": "0", "realign": "1", "shuffle": "0",
    "remove-tmp-files": "0", "greedy-best-hits": "1",
}  # fmt: skip
#: Values that switch off.
OFF = ("0", "false", "FALSE")

_PROFILES = ("searches with profiles of what it finds, which was not compared", "leave it out")
_SPLITS = ("splits the target, which changes the results", "leave it out: the target is searched as a whole")
_GAPS = ("gave other E-values with a database than with the file that it is made of", "leave it out")
_SPREADS = ("spreads the work itself", "leave it out: millrace does that")
#: Options that are refused, with the reason and what works.
REFUSED = {
    "num-iterations": _PROFILES, "exhaustive-search": _PROFILES, "lca-search": _PROFILES,
    "split": _SPLITS, "split-mode": _SPLITS, "split-memory-limit": _SPLITS, "disk-space-limit": _SPLITS,
    "mpi-runner": _SPREADS, "gpu": _SPREADS, "gpu-server": _SPREADS, "local-tmp": _SPREADS,
    "gap-open": _GAPS, "gap-extend": _GAPS,
    "force-reuse": ("takes the files of an earlier search for its own", "leave it out"),
    "db-output": ("writes a database of results", "leave it out, for a table"),
    "compressed": ("compresses what it writes", "leave it out and compress afterwards"),
    "add-self-matches": ("pairs queries and targets by their numbers", "leave it out"),
    "taxon-list": ("needs a taxonomy, which was not compared", "filter the table by its targets"),
}  # fmt: skip

_CLUSTERS = ("compares all sequences with each other", "run it without millrace")
_PAIRS = ("needs the best hits of both sides", "search both ways by easy-search with millrace, and pair the best hits")
_NOT_COMPARED = ("was not compared with its results on parts", "run it without millrace; easy-search works")
#: Verbs that are refused, with the reason and what works.
VERBS = {
    "easy-cluster": _CLUSTERS, "easy-linclust": _CLUSTERS, "cluster": _CLUSTERS, "linclust": _CLUSTERS, "easy-rbh": _PAIRS,
    "rbh": _PAIRS, "easy-linsearch": _NOT_COMPARED, "easy-taxonomy": _NOT_COMPARED,
}  # fmt: skip
_OTHER_VERB = ("works on databases, and not query by query on a file", "run it without millrace; easy-search works")

#: Columns of ``--format-output`` that depend on query and target alone.
COLUMNS = split_words(
    """query target evalue gapopen pident fident nident qstart qend qlen tstart tend tlen alnlen raw bits cigar qseq tseq qheader
    theader qaln taln qframe tframe mismatch qcov tcov empty ppos qorfstart qorfend torfstart torfend"""
)
JOINS = {"0": joins.CONCAT, "2": joins.CONCAT, "4": joins.make_header_join(1)}

#: Parts into which ``createdb`` deals sequences.
N_PARTS = 32
#: Releases that were compared; of each whether ``--shuffle`` with any value keeps queries in the order of the input, or 0 alone.
RELEASES = {"14-7e284": False, "15-6f452": False, "18-8cc5c": True}
#: Values of ``--dbtype`` and of ``--search-type``.
PROTEINS, NUCLEOTIDES, TRANSLATED, UNTRANSLATED, BOTH_TRANSLATED = "1", "2", "2", "3", "4"
#: The first sequences tell MMseqs2 what all are: nucleotides, if more than this share of each is these letters.
N_SAMPLED, NUCLEOTIDE_SHARE, NUCLEOTIDE_LETTERS = 10, 0.9, b"TAGCUNtagcun"
#: ``.dbtype`` files of databases of sequences, but for flags.
SEQUENCE_TYPES = {0: PROTEINS, 1: NUCLEOTIDES}
#: Matrices that MMseqs2 has itself.
MATRICES = ("blosum62.out", "VTML80.out", "VTML40.out", "PAM30.out", "nucleotide.out")
#: Queries of a translated search that are enough for an open reading frame: on queries without one MMseqs2 fails, and among others
#: it passes over them.
FRAME_CONTENT = RequiredContent(letters="ACGTUacgtu", least=3000)
#: Default of ``-s``.
SENSITIVITY = "5.7"
#: Value of ``--db-load-mode`` with which tasks share the memory of an index. With ``-s`` above 6 each would read a copy of all of it.
MAPPED = "2"

#: Time of a task with no more than a query; measured with 14 and an index of 0.9 GB.
START_SECONDS = 0.35
#: Bytes of an entry in the table of k-mers, letters of proteins in them, and the default lengths, the longer one from a size on.
KMER_BYTES, AMINO_ACIDS, PROTEIN_KMER, LONG_PROTEIN_KMER, LONG_KMER_BYTES = 8, 20, 6, 7, 3_350_000_000
#: Bytes of database and index for a byte of the target's file, besides that table.
INDEX_BYTES = 10

NOTE_OF_ORDER = "order: that of --threads 1, whatever number is given"
NOTE_OF_TARGET = "target: each node makes a database of it once, with an index that its tasks share"


class MmseqsAdapter:
    """Adapter for ``mmseqs easy-search queries.faa targets.faa hits.m8 tmp``."""

    def understand_command(self, command: UserCommand) -> ToolUse:
        """See ``ToolAdapter.understand_command``."""
        verb = command.argv[1] if len(command.argv) > 1 else ""
        if verb != "easy-search":
            why, hint = VERBS.get(verb, _OTHER_VERB)
            raise RefusedError(f"mmseqs {verb}: {why}", hint)
        words = _read_words(command.argv)
        options = {word.name: word.value for word in words if word.name}
        _check_options(options)
        query, target, out, scratch = _find_operands(words, command)
        read_checked_help(command, (*command.argv[1:], "-h"), "usage: ", "MMseqs2")
        version = read_version_line(command, "version")
        matrices = _list_matrix_files(options, command)
        item = _find_query(query.value, options, version, command)
        kind = _find_kind(query.value, item.format, options, command)
        if options.get("search-type", "0") == UNTRANSLATED:
            raise RefusedError(
                f"{PROGRAM}: --search-type 3 gives a hit other scores after other queries",
                "run it without millrace; --search-type 2 and 4 (translated) work",
            )
        if kind == NUCLEOTIDES:
            item = msgspec.structs.replace(item, content=FRAME_CONTENT)
        tokens = CommandTokens(command.argv)
        tokens.mark_input(query)
        tokens.mark_output(out, 0)
        tokens.replace_value(scratch, ScratchArg(typed=scratch.value))
        databases, target_kind = _find_target(target.value, options, command)
        # An index says how to search where the command does not.
        if kind == target_kind == NUCLEOTIDES and options.get("search-type", "0") not in (TRANSLATED, BOTH_TRANSLATED):
            raise RefusedError(
                f"{PROGRAM}: queries and targets are nucleotides, and how to search them is not said",
                "add --search-type 2 or 4 (translated), in the serial run too; 3 (nucleotides) works without millrace",
            )
        prepared = None
        if not databases:
            prepared = _plan_preparation(target.value, options, target_kind, command)
            databases = (command.cwd / target.value,)
            tokens.replace_value(target, DatabaseArg())
            if "db-load-mode" not in options:
                tokens.append("--db-load-mode", MAPPED)
        for word in words:
            if word.name in ("shuffle", "threads", "dbtype"):
                tokens.drop_option(word)
        tokens.append("--shuffle", "0", "--threads", "1", "--dbtype", kind)
        return ToolUse(
            adapter="mmseqs",
            still_seconds=STANDSTILL_SECONDS,
            argv=tokens.build_arguments(),
            inputs=(item,),
            outputs=(OutputUse(name="out", path=out.value, join=JOINS[options.get("format-mode", "0")]),),
            databases=(*databases, *matrices),
            prepared=prepared,
            cost=CostHint(unit="residues", startup_seconds=START_SECONDS),
            version=version,
            tested=tuple(RELEASES),
            notes=(NOTE_OF_ORDER, *([NOTE_OF_TARGET] if prepared else ())),
        )


def _read_words(argv: Sequence[str]) -> list[CommandWord]:
    """Read options and operands as MMseqs2 does: names are whole, and each takes one value, but for switches at times.

    Raises:
        RefusedError: An option is refused, not known, given twice, or has no value.
    """
    found: list[CommandWord] = []
    at = 2
    while at < len(argv):
        typed = argv[at]
        if not typed.startswith("-") or typed == "-":
            found.append(CommandWord(name="", typed=typed, at=at, values=(typed,), value_at=at))
            at += 1
            continue
        name = _check_name(typed, found)
        has_value = at + 1 < len(argv) and not (name in SWITCHES and argv[at + 1].startswith("-"))
        if not has_value and name not in SWITCHES:
            raise RefusedError(f"{PROGRAM}: {typed} needs a value", f"see {PROGRAM} -h")
        value = argv[at + 1] if has_value else SWITCHES[name]
        found.append(CommandWord(name=name, typed=typed, at=at, values=(value,), value_at=at + has_value))
        at += 1 + has_value
    return found


def _check_name(typed: str, found: Sequence[CommandWord]) -> str:
    """Return the name of an option without dashes."""
    name = typed.removeprefix("--") if len(typed) > 2 else typed[1:]
    if name in REFUSED:
        why, hint = REFUSED[name]
        raise RefusedError(f"{PROGRAM}: {typed} {why}", hint)
    if name not in VALUES and name not in SWITCHES:
        problem, hint = (text.format(program=PROGRAM, typed=typed, name=name) for text in OptionErrorTexts().unknown)
        raise RefusedError(problem, hint)
    if any(word.name == name for word in found):
        raise RefusedError(f"{PROGRAM}: {typed} is given twice", "give it once")
    return name


def _check_options(options: Mapping[str, str]) -> None:
    mode = options.get("format-mode", "0")
    if mode not in JOINS:
        why = "lists the targets of all results first" if mode == "1" else "cannot be joined"
        raise RefusedError(f"{PROGRAM}: --format-mode {mode} {why}", "use 0, 2 or 4 (tables)")
    for column in filter(None, options.get("format-output", "").split(",")):
        if column not in COLUMNS:
            raise RefusedError(
                f"{PROGRAM}: column {column} of --format-output depends on more than query and target, or was not compared",
                "leave it out",
            )
    if options.get("remove-tmp-files", "1") in OFF:
        raise RefusedError(
            f"{PROGRAM}: --remove-tmp-files 0 keeps the files of each task, not those of the whole", "leave it out"
        )


def _find_operands(words: Sequence[CommandWord], command: UserCommand) -> Sequence[CommandWord]:
    """Return query, target, output and folder for temporary files."""
    operands = [word for word in words if not word.name]
    if len(operands) < 4:
        raise RefusedError(
            f"{PROGRAM}: needs queries, a target, an output and a folder", f"as in: {PROGRAM} q.faa t.faa hits.m8 tmp"
        )
    if len(operands) > 4:
        raise RefusedError(
            f"{PROGRAM}: {len(operands) - 3} files of queries", "join them, in the serial run too: cat FILES > queries"
        )
    if is_stream_path(operands[2].value):
        raise RefusedError(f"{PROGRAM}: {operands[2].value} is no file", "name a file for the output")
    return operands


def _find_query(typed: str, options: Mapping[str, str], version: str, command: UserCommand) -> InputUse:
    path = command.cwd / typed
    _refuse_growing(typed, command)
    if typed == "stdin" and not path.exists():
        raise RefusedError(f"{PROGRAM}: queries are taken in an order that needs a file", "name a file of queries")
    if not path.exists():
        raise RefusedError(f"{PROGRAM}: {typed}: no such file", "name a file of queries")
    if Path(f"{path}.dbtype").exists() or not path.is_file():
        raise RefusedError(f"{PROGRAM}: {typed} is no file of sequences", "name the FASTA file")
    form = record_formats.detect_format(str(path))
    if form not in ("fasta", "fastq"):
        raise RefusedError(f"{PROGRAM}: {typed} is neither FASTA nor FASTQ", "name a file of sequences")
    dealt = _choose_parts(options, version)
    if dealt and command.view and command.view.cut_by_nodes:
        raise RefusedError(
            f"{PROGRAM}: {typed} is cut by several nodes, and its records are taken in another order",
            "copy the file to a folder, or add --shuffle 0, in the serial run too",
        )
    return InputUse(path=typed, format=form, dealt=dealt)


def _refuse_growing(typed: str, command: UserCommand) -> None:
    if is_still_growing(typed, command):
        raise RefusedError(f"{PROGRAM}: {typed} is still written by another phase", "run it when that phase has ended")


def _choose_parts(options: Mapping[str, str], version: str) -> int:
    """Choose the number of parts into which the serial run deals its queries; 0: it does not."""
    given = options.get("shuffle", "")
    if given in OFF:
        return 0
    release = next((each for each in RELEASES if version.startswith(each)), "")
    if not release:
        raise RefusedError(
            f"{PROGRAM}: in which order {version or 'a release that does not tell its version'} takes queries was not compared",
            "add --shuffle 0, in the serial run too: it then takes them in the order of the file",
        )
    return 0 if given and RELEASES[release] else N_PARTS


def _find_kind(typed: str, form: str, options: Mapping[str, str], command: UserCommand) -> str:
    """Return what a file has, as MMseqs2 says it: a value of ``--dbtype``.

    Raises:
        RefusedError: It has no sequence, so that MMseqs2 makes no database of it.
    """
    sequences, n_records = _read_sample(command.cwd / typed, form)
    if not sequences:
        raise RefusedError(
            f"{PROGRAM}: {typed} has no sequence", f"{PROGRAM} itself ends with an error; check the file"
        )
    if (kind := options.get("dbtype", "0")) != "0":
        return kind
    are_nucleotides = [
        sum(map(each.count, (bytes([letter]) for letter in NUCLEOTIDE_LETTERS))) > NUCLEOTIDE_SHARE * len(each)
        for each in sequences
    ]
    return NUCLEOTIDES if all(are_nucleotides) and len(sequences) == n_records else PROTEINS


def _read_sample(path: Path, form: str) -> tuple[list[bytes], int]:
    """Return the first sequences of a file, and how many records were read."""
    with tempfile.NamedTemporaryFile() as sample:
        reader = _core.Reader([str(path)], form)
        n_records = batch.records if (batch := reader.cut(sample.name, N_SAMPLED, 0, 0)) else 0
        lines = Path(sample.name).read_bytes().splitlines()
    sequences: list[bytes] = []
    for number, line in enumerate(lines):
        if form == "fastq" and number % 4 == 1:
            sequences.append(line)
        elif form == "fasta" and line.startswith(b">"):
            sequences.append(b"")
        elif form == "fasta" and sequences:
            sequences[-1] += b"".join(line.split())
    return sequences, n_records


def _list_matrix_files(options: Mapping[str, str], command: UserCommand) -> list[Path]:
    """Return the files that ``--sub-mat`` names: one, or ``aa:FILE,nucl:FILE``.

    Raises:
        RefusedError: There is no such file, and MMseqs2 has no matrix of that name.
    """
    files = []
    for word in filter(None, options.get("sub-mat", "").split(",")):
        name = word.removeprefix("aa:").removeprefix("nucl:")
        if (command.cwd / name).is_file():
            files.append(command.cwd / name)
        elif name not in MATRICES:
            raise RefusedError(
                f"{PROGRAM}: --sub-mat {name}: no such file", f"matrices of MMseqs2 itself are {', '.join(MATRICES)}"
            )
    return files


def _find_target(typed: str, options: Mapping[str, str], command: UserCommand) -> tuple[tuple[Path, ...], str]:
    """Return the files of a target that is a database, none of a file of sequences, and what it has, as ``_find_kind``."""
    path = command.cwd / typed
    if Path(f"{path}.dbtype").is_file():
        return _list_database_files(path), _read_database_kind(typed, path)
    _refuse_growing(typed, command)
    form = record_formats.detect_format(str(path)) if path.is_file() else ""
    if form not in ("fasta", "fastq"):
        raise RefusedError(f"{PROGRAM}: {typed} is neither a database nor a file of sequences", "name the target")
    return (), _find_kind(typed, form, options, command)


def _read_database_kind(typed: str, path: Path) -> str:
    number = int.from_bytes(Path(f"{path}.dbtype").read_bytes()[:2], "little")
    if number not in SEQUENCE_TYPES:
        raise RefusedError(
            f"{PROGRAM}: {typed} is a database of profiles or of results, which was not compared", "name sequences"
        )
    return SEQUENCE_TYPES[number]


def _list_database_files(path: Path) -> tuple[Path, ...]:
    pattern = re.compile(
        re.escape(path.name) + r"(_h)?(\.(dbtype|index|lookup|source|idx|idx\.index|idx\.dbtype|\d+))?"
    )
    return tuple(sorted(each for each in path.parent.iterdir() if pattern.fullmatch(each.name) and each.is_file()))


def _plan_preparation(typed: str, options: Mapping[str, str], kind: str, command: UserCommand) -> PreparedDatabase:
    """Plan the runs of MMseqs2 that make of a file of sequences what its search makes of it, and an index of that."""
    verbosity = ("-v", "1")
    shuffled = () if "shuffle" not in options else ("--shuffle", options["shuffle"])
    made = (command.argv[0], "createdb", typed, DatabaseArg(), "--dbtype", kind, *shuffled, *verbosity)
    size = INDEX_BYTES * (command.cwd / typed).stat().st_size
    # Each step has an index of its own; an index without diagonal scores does not work in all releases; with one, some columns
    # of genes that are both translated are others (``cigar`` beside ``tseq``), or MMseqs2 crashes (``qaln``).
    if (
        _parse_number(options, "sens-steps", "1") > 1
        or options.get("diag-score", "1") in OFF
        or options.get("search-type", "0") == BOTH_TRANSLATED
    ):
        return PreparedDatabase(typed=typed, steps=(made,), size_bytes=size)
    given: list[ArgumentToken] = []
    for name in sorted(INDEX & options.keys() - {"search-type"}):
        given += ["-" + name if len(name) == 1 else f"--{name}", options[name]]
    if kind == NUCLEOTIDES:
        search = options.get("search-type", "0")
        given += ["--search-type", TRANSLATED if search in ("0", "1") else search]
    if options.get("exact-kmer-matching", "0") in OFF:
        score = options.get("k-score")
        # As the search hands it on: one digit of a number of four bytes.
        (sensitivity,) = struct.unpack("f", struct.pack("f", _parse_number(options, "s", SENSITIVITY)))
        given += ["--k-score", score] if score else ["-s", f"{sensitivity:.1f}"]
    indexed = (
        command.argv[0], "createindex", DatabaseArg(), ScratchArg(typed="tmp"), "--split", "1", "--threads", ThreadsArg(), *given,
        *verbosity,
    )  # fmt: skip
    default = PROTEIN_KMER if size < INDEX_BYTES * LONG_KMER_BYTES else LONG_PROTEIN_KMER
    length = int(_parse_number(options, "k", "0")) or default
    return PreparedDatabase(typed=typed, steps=(made, indexed), size_bytes=size + KMER_BYTES * AMINO_ACIDS**length)


def _parse_number(options: Mapping[str, str], name: str, default: str) -> float:
    try:
        return float(options.get(name, default))
    except ValueError:
        typed = f"-{name}" if len(name) == 1 else f"--{name}"
        raise RefusedError(f"{PROGRAM}: {typed} needs a number, found '{options[name]}'", f"see {PROGRAM} -h") from None


ADAPTER = MmseqsAdapter()
