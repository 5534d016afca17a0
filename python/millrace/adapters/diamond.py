"""DIAMOND blastp and blastx, with queries in batches.

*Exactness.* Each query is searched by itself and E-values depend on the database alone, so tabular and PAF outputs are
concatenated. Headers of the pairwise format, of ``--header`` and of SAM are kept once, and numbers in XML are continued
(``crates/millrace-core/src/join/diamond.rs``). Output is the same for any number of threads
(``tests/exact/test_diamond_join.py``).

A run in which no query has a hit reports none of its queries, any other run reports them all. So the pairwise format
and XML, which report queries without hits, are exact only with ``--unal 0``.

XML numbers the queries, and releases differ in whether a query without residues counts: 2.1.3 passes over it, 2.2.8
counts it. So such queries are refused with XML.

DIAMOND chooses between two search algorithms with different results. For databases from 256 million letters on the
choice depends on the size of the whole query file, so ``--algo`` must be given. Modes in which queries affect each
other (``--iterate``, ``--lin-stage1``, ``--freq-masking``) are refused.
"""

from __future__ import annotations

import re
import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path

import msgspec

from millrace import _core
from millrace.adapters import joins
from millrace.adapters.option_reader import (
    CommandTokens,
    CommandWord,
    OptionTable,
    find_last_use,
    find_only_use,
    parse_count,
    scan_options,
    split_aliases,
    split_words,
)
from millrace.adapters.program_identity import read_version_line
from millrace.core.errors import RefusedError
from millrace.core.tool_use import (
    STANDSTILL_SECONDS,
    CostHint,
    InputUse,
    OutputUse,
    RequiredContent,
    ThreadsArg,
    ToolUse,
    UserCommand,
)

OPTIONS = OptionTable(
    attached=True,
    flags=split_words(
        """header verbose log quiet range-culling faster fast mid-sensitive sensitive more-sensitive
        very-sensitive
        ultra-sensitive swipe iterate long-reads salltitles sallseqid no-self-hits skip-missing-seqids
        linsearch lin-stage1 freq-masking multiprocessing mp-init mp-recover no-ranking no-auto-append
        xml-blord-format no-unlink target-indexed ignore-warnings forwardonly"""
    ),
    values=split_words(
        """threads db out query tmpdir evalue comp-based-stats masking soft-masking motif-masking ext
        approx-id
        memory-limit strand un al unfmt alfmt unal max-target-seqs top max-hsps compress min-score id
        query-cover subject-cover global-ranking block-size index-chunks parallel-tmpdir gapopen gapextend
        matrix custom-matrix frameshift query-gencode taxonlist taxon-exclude seqidlist algo bin min-orf
        seed-cut freq-sd id2 xdrop gapped-filter-evalue band shapes mp-query-chunk ext-chunk-size
        culling-overlap taxon-k range-cover dbsize stop-match-score tantan-minMaskProb file-buffer-size"""
    ),
    many=split_words("outfmt header shape-mask"),
    aliases=split_aliases(
        """p=threads d=db o=out q=query v=verbose t=tmpdir e=evalue M=memory-limit k=max-target-seqs
        g=global-ranking b=block-size c=index-chunks F=frameshift f=outfmt l=min-orf x=xdrop s=shapes"""
    ),
)
REFUSED = {
    "iterate": ("searches again the queries that are left over, which changes ties", "leave --iterate out"),
    "log": ("writes a second file, diamond.log", "leave --log out"),
    "target-indexed": ("could not be checked to treat each query alone", "leave --target-indexed out"),
    "lin-stage1": ("compares queries with each other", "leave --lin-stage1 out"),
    "freq-masking": ("counts seeds over all queries", "leave --freq-masking out"),
    "freq-sd": ("counts seeds over all queries", "leave --freq-sd out"),
    "multiprocessing": ("spreads the work itself", "leave --multiprocessing out: millrace does that"),
    "mp-init": ("spreads the work itself", "leave --multiprocessing out: millrace does that"),
    "mp-recover": ("spreads the work itself", "leave --multiprocessing out: millrace does that"),
    "mp-query-chunk": ("spreads the work itself", "leave --multiprocessing out: millrace does that"),
    "parallel-tmpdir": ("spreads the work itself", "leave --multiprocessing out: millrace does that"),
}
#: Join by output format; other formats are refused.
JOINS = {"0": joins.make_header_join(3), "5": "diamond-xml", "6": joins.CONCAT, "101": joins.make_header_join(r"^@(HD|PG|mm|CO)\t"),
         "103": joins.CONCAT}  # fmt: skip
#: Join for ``--header``, by its style.
HEADERS = {"0": joins.CONCAT, "simple": joins.make_header_join(1), "verbose": joins.make_header_join(3)}
#: Option with which DIAMOND does not examine whether proteins look like nucleotides, and the first release that has it.
IGNORE, IGNORE_SINCE = "--ignore-warnings", (2, 1, 0)
#: DIAMOND examines this many sequences at the start of a file. Up to 2.1.10 one that looks like nucleotides is an error,
#: then only if all do, and for 2.2.8 these must be ten.
N_EXAMINED, ALL_SINCE, ALL_TEN_SINCE = 10, (2, 1, 11), (2, 2, 8)
#: What is in no sequence that looks like nucleotides.
PROTEIN_LETTERS = "BDEFHIJKLMOPQRSUVWXYZbdefhijklmopqrsuvwxyz*-"
NAMES = {"tab": "6", "xml": "5", "daa": "100", "sam": "101", "paf": "103"}
#: Letters from which DIAMOND's choice of algorithm depends on the query; a little below its own 256 * 2**20.
LARGE_DATABASE_LETTERS = 250_000_000

#: Start of a database file, and the known magic number and version. ``diamond dbinfo`` takes longer than some searches.
HEADER, KNOWN_HEADER = struct.Struct("<QIIQQQ"), (0x24AF8A415EE186D, 3)
PLACE_BYTES = 16

#: See ``_estimate_cost``.
START_SECONDS_PER_LETTER = 0.18e-6
START_UNITS, START_LETTERS, MAX_START_UNITS = 1_500_000, 12, 20_000_000
#: Least residues of a query that may stand alone in a batch. DIAMOND reports an error for an empty query among others
#: and none for it alone, and on less than a codon alone 2.1.3 never ends.
MIN_QUERY_RESIDUES = {"blastp": 1, "blastx": 3}

#: Residues of genes that take as long as one of proteins.
OF_GENES = 2


class DiamondAdapter:
    """Adapter for ``diamond blastp -q queries.faa -d nr -o hits.tsv``."""

    def understand_command(self, command: UserCommand) -> ToolUse:
        """See ``ToolAdapter.understand_command``."""
        work = command.argv[1] if len(command.argv) > 1 else ""
        if work not in ("blastp", "blastx"):
            raise RefusedError(
                f"diamond {work}: only blastp and blastx work query by query",
                "run other commands without millrace",
            )
        found = scan_options(command.argv, OPTIONS, f"diamond {work}", first=2)
        _check_options(found)
        database = _find_database(found, command)
        letters = _read_letters(database, command)
        _check_algorithm(found, database, letters)
        tokens = CommandTokens(command.argv)
        source = _find_query(found, command, tokens)
        threads = find_last_use(found, "threads")
        n_threads = parse_count(threads, "diamond") if threads else 0
        version = read_version_line(command, "version")
        # A database in FASTA is examined, too.
        is_ignoring = work == "blastp" and letters is not None and _must_ignore_looks(found, source, command, version)
        added = f" {IGNORE}" * is_ignoring + " -p [0-9]+" * (threads is None)
        outputs = _find_outputs(found, tokens, added)
        if any(output.join == JOINS["5"] for output in outputs):
            source = msgspec.structs.replace(source, stops_without_content=True)
        # At the end: the header of SAM shows the command line, and the join removes these words again.
        if is_ignoring:
            tokens.append(IGNORE)
        if threads is None:
            tokens.append("-p", ThreadsArg())
        return ToolUse(
            adapter="diamond",
            still_seconds=STANDSTILL_SECONDS,
            argv=tokens.build_arguments(),
            inputs=(source,),
            outputs=outputs,
            databases=(database,),
            # -p 0 means all cores, too.
            threads=max(0, n_threads),
            cost=_estimate_cost(letters or 0, max(1, n_threads), OF_GENES if work == "blastx" else 1),
            version=version,
            tested=("2.1.3", "2.1.11", "2.2.8"),
        )


def _estimate_cost(letters: int, threads: int, residues: int) -> CostHint:
    """Estimate the cost of a task: it reads the whole database, sorts its seeds, and then needs little for each query.

    Measured with 2.1.3 on databases of 5 and 100 million letters, from ``--fast`` to ``--ultra-sensitive``: the start
    takes 0.2 us of CPU a letter (by default; ``--sensitive`` takes five times as much), as long as 1 to 1.6 million
    residues of proteins, and more for a larger database.
    """
    return CostHint(
        unit="residues",
        startup_seconds=(0.1 + START_SECONDS_PER_LETTER * letters) / threads,
        start_units=residues * min(START_UNITS + letters // START_LETTERS, MAX_START_UNITS),
    )


def _check_options(found: Sequence[CommandWord]) -> None:
    for word in found:
        if not word.name:
            raise RefusedError(f"diamond: '{word.typed}' stands alone", "name the queries with -q FILE")
        if word.name in REFUSED:
            why, hint = REFUSED[word.name]
            raise RefusedError(f"diamond: {word.typed} {why}", hint)
    compress = find_last_use(found, "compress")
    if compress is not None and compress.value != "0":
        raise RefusedError(
            f"diamond: --compress {compress.value} makes one compressed stream of the whole output",
            "leave it out and compress afterwards",
        )


def _find_database(found: Sequence[CommandWord], command: UserCommand) -> Path:
    word = find_only_use(found, "db", "diamond")
    if word is None:
        raise RefusedError("diamond: no database", "name it with -d FILE")
    for name in (word.value, f"{word.value}.dmnd"):
        if (command.cwd / name).is_file():
            _refuse_blast_database(word, command.cwd)
            return command.cwd / name
    raise RefusedError(
        f"diamond: -d {word.value}: no such DIAMOND database",
        f"make one: diamond makedb --in FASTA -d {word.value}",
    )


def _refuse_blast_database(word: CommandWord, cwd: Path) -> None:
    """Refuse a name that a BLAST database has, too.

    Source: releases 2.1.3 and 2.1.11 look for ``NAME.pin`` and ``NAME.pal`` first, 2.2.8 does not.
    """
    for suffix in (".pin", ".pal"):
        if (cwd / f"{word.value}{suffix}").is_file():
            raise RefusedError(
                f"diamond: {word.typed} {word.value}: some releases take the BLAST database of this name ({word.value}{suffix})",
                f"name the file (-d {word.value}.dmnd), or rename one of the two",
            )


def _check_algorithm(found: Sequence[CommandWord], database: Path, letters: int | None) -> None:
    algorithm = find_last_use(found, "algo")
    if algorithm is not None and algorithm.value.lower() != "auto":
        return
    if find_last_use(found, "swipe") is not None:
        return
    if letters is None or letters >= LARGE_DATABASE_LETTERS:
        size = f"has {letters} letters" if letters else "does not tell its size"
        raise RefusedError(
            f"diamond: {database.name} {size}; from 256 million on, the size of the whole query decides "
            "which of two algorithms is used, and their results differ",
            "choose it: --algo 0 (as for many queries) or --algo 1 (as for few), in the serial run too",
        )


def parse_header_letters(head: bytes) -> int | None:
    """Read the number of letters from the first bytes of a DIAMOND database; None: the format is unknown.

    The fields are magic number, build, version of the format, sequences, letters, and the offset of the table of
    sequence positions: ``ReferenceHeader`` in DIAMOND's ``src/data/dmnd/dmnd.h``.
    """
    if len(head) < HEADER.size:
        return None
    magic, _, version, _, letters, _ = HEADER.unpack_from(head)
    return int(letters) if (magic, version) == KNOWN_HEADER else None


def _refuse_cut_off(database: Path, head: bytes) -> None:
    """Refuse a database file that ends before its table of sequence positions, which follows the sequences, does."""
    *_, sequences, _, places = HEADER.unpack_from(head)
    size, needed = database.stat().st_size, places + PLACE_BYTES * (sequences + 1)
    if size < needed:
        raise RefusedError(
            f"{database} has {size:,} bytes, and says that it has at least {needed:,}: it is cut off",
            "copy the database again, or make it again",
        )


def _read_letters(database: Path, command: UserCommand) -> int | None:
    try:
        with database.open("rb") as file:
            head = file.read(HEADER.size)
    except OSError:
        return _ask_dbinfo_letters(database, command)
    known = parse_header_letters(head)
    if known is not None:
        _refuse_cut_off(database, head)
    return _ask_dbinfo_letters(database, command) if known is None else known


def _ask_dbinfo_letters(database: Path, command: UserCommand) -> int | None:
    try:
        answer = subprocess.run(
            [command.exe, "dbinfo", "-d", database],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=command.environ,
            timeout=60,
            check=False,
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(rb"^\s*Letters\s+(\d+)", answer, re.M)
    return int(match[1]) if match else None


def _find_query(found: Sequence[CommandWord], command: UserCommand, tokens: CommandTokens) -> InputUse:
    content = RequiredContent(least=MIN_QUERY_RESIDUES[command.argv[1]])
    word = find_only_use(found, "query", "diamond")
    if word is None or word.value == "-":
        if not command.stdin_is_data:
            raise RefusedError("diamond: no queries", "name them with -q FILE")
        return InputUse(path="-", format=command.format or "fasta", stdin=True, content=content)
    path = command.cwd / word.value
    if not path.exists():
        raise RefusedError(f"diamond: -q {word.value}: no such file")
    tokens.mark_input(word)
    stem = Path(word.value.removesuffix(".gz"))
    form = "fastq" if stem.suffix.lower() in (".fq", ".fastq") else "fasta"
    return InputUse(path=word.value, format=form, content=content)


def _must_ignore_looks(found: Sequence[CommandWord], source: InputUse, command: UserCommand, version: str) -> bool:
    """Tell whether tasks must not examine their first queries, which may look like nucleotides where those of the file do not.

    Raises:
        RefusedError: The serial run ends with an error, as the first queries of the file do.
    """
    release = tuple(int(number) for number in re.findall(r"\d+", version)[:3])
    path = command.cwd / source.path
    if find_last_use(found, "ignore-warnings") or release < IGNORE_SINCE or source.stdin or not path.is_file():
        return False
    looks = _examine_first_sequences(path, source.format)
    n_allowed = 0 if release < ALL_SINCE else N_EXAMINED - 1 if release >= ALL_TEN_SINCE else len(looks) - 1
    if sum(looks) > max(n_allowed, 0):
        raise RefusedError(
            f"diamond: -q {source.path}: query {looks.index(True) + 1} looks like nucleotides, at which DIAMOND ends",
            f"for proteins add {IGNORE}, in the serial run too; for nucleotides use blastx",
        )
    return True


def _examine_first_sequences(path: Path, form: str) -> list[bool]:
    """Tell of each of the first sequences with residues whether it looks like nucleotides."""
    looks: list[bool] = []
    try:
        reader = _core.Reader([path], form, content=(PROTEIN_LETTERS, 1))
        while len(looks) < N_EXAMINED and (record := reader.skip(1)):
            if record.cost:
                looks.append(not record.sufficient)
    except (OSError, ValueError, _core.RecordError):
        pass  # the run, or DIAMOND, says what is wrong
    return looks


def _find_outputs(found: Sequence[CommandWord], tokens: CommandTokens, added: str) -> tuple[OutputUse, ...]:
    form = find_last_use(found, "outfmt")
    kind = form.values[0].lower() if form else "6"
    kind = NAMES.get(kind, kind)
    if kind not in JOINS:
        raise RefusedError(
            f"diamond: --outfmt {kind} cannot be joined",
            "use 6 (tabular), or 0, 5, 101, 103"
            if kind != "100"
            else "use --outfmt 6 with the columns you need, or 0, 5, 101",
        )
    if form and "qnum" in form.values[1:]:
        raise RefusedError(
            "diamond: qnum numbers the queries through the whole input", "leave it out: qseqid tells which query it is"
        )
    unaligned = find_last_use(found, "unal")
    if (unaligned is not None and unaligned.value != "0") or (unaligned is None and kind in ("0", "5")):
        raise RefusedError(
            "diamond: a run without any hit leaves out its queries, so these are not reported alike",
            "add --unal 0, in the serial run too: only queries with hits are then reported",
        )
    join = JOINS[kind]
    header = find_last_use(found, "header")
    if header is not None and kind == "6":
        style = header.values[0] if header.values else "verbose"
        if style not in HEADERS:
            raise RefusedError(f"diamond: --header {style} is not known", "use --header simple or --header verbose")
        join = HEADERS[style]
    if added and join in (JOINS["101"], HEADERS["verbose"]) and kind in ("6", "101"):
        join = joins.combine_joins(join, joins.make_restore_join(rf"^(?:@PG\t|# Invocation:).*({added})$"))
    out = find_only_use(found, "out", "diamond")
    outputs = [OutputUse(name="stdout", path="-", stdout=True, join=join)]
    if out is not None:
        outputs = [OutputUse(name="out", path=out.value, join=join)]
        tokens.mark_output(out, 0)
    for name in ("un", "al"):
        word = find_only_use(found, name, "diamond")
        if word is not None:
            tokens.mark_output(word, len(outputs))
            outputs.append(OutputUse(name=name, path=word.value, optional=True))
    return tuple(outputs)


ADAPTER = DiamondAdapter()
