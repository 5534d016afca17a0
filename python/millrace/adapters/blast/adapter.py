"""BLAST+: blastp, blastn, blastx, tblastn, tblastx, psiblast, rpsblast, rpstblastn, deltablast.

*Exactness.* The output of a query depends on other queries only where they share a pass, which
``millrace.adapters.blast.passes`` handles. The parts that depend on the whole run (banner, closing statistics, counters,
the N of ``Query_N``) are corrected by the joiners ``blast-*`` of ``millrace-core``. ``docs/exactness-blast.md`` has the
rule for each program and format and the test that shows it. A command that cannot be joined exactly is refused here,
before anything starts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

import msgspec

from millrace.adapters.adapter_base import (
    CandidateListReader,
    DatabaseFacts,
    FileNamePatterns,
    QueryCandidates,
    ReusableSearch,
)
from millrace.adapters.blast import candidate_reuse, fragments, search_path
from millrace.adapters.blast.backend import format_hit_lists
from millrace.adapters.blast.command_line import (
    find_query,
    make_usage_refusal,
    parse_options,
    read_options,
    read_query_names,
)
from millrace.adapters.blast.database import NotInFragmentsError
from millrace.adapters.blast.output_formats import OutputFormat, choose_join, parse_format, refuse_unjoinable_queries
from millrace.adapters.blast.passes import find_pass_rules
from millrace.adapters.blast.query_sizes import PASS_RESIDUES
from millrace.adapters.blast.search_path import SearchPath, split_names
from millrace.adapters.blast.volumes import refuse_cut_off
from millrace.adapters.option_reader import CommandTokens, split_ordered_words
from millrace.adapters.program_identity import read_version_line
from millrace.adapters.registry import FAMILIES
from millrace.core.errors import RefusedError
from millrace.core.tool_use import (
    STANDSTILL_SECONDS,
    ArgumentToken,
    BlastDatabase,
    CostHint,
    FetchedFile,
    InputUse,
    OutputUse,
    RequiredContent,
    ToolUse,
    UserCommand,
)

#: Options with which BLAST only prints information about itself.
ABOUT = ("h", "help", "version", "version-full", "version-full-xml", "version-full-json", "xmlhelp", "dryrun")

#: Options whose value is a file that every task reads.
SHARED = split_ordered_words("""
    subject gilist seqidlist negative_gilist negative_seqidlist taxidlist negative_taxidlist ipglist
    negative_ipglist window_masker_db
""")

#: Options that do not work with batches: the reason, and what to use instead.
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

#: See ``ToolUse.tested``.
TESTED = ("2.12.0+", "2.16.0+", "2.17.0+")

#: Residues that blastn takes in one pass, by task, as far as the number of hits allows.
PASS_RESIDUES_BLASTN = {
    "blastn": 100_000,
    "blastn-short": 100_000,
    "dc-megablast": 500_000,
    "megablast": 5_000_000,
}
#: See ``CostHint.spread``: queries of 5 kB or less in nt took 400 s at most, and 9.7 s on average (mpiBLAST-PIO).
BLASTN_SPREAD = 41.0

#: Letters of queries times letters of the database whose search takes as long as the program's start; measured with
#: 2.12 on one core.
START_LETTERS = {"blastp": 1.4e9, "psiblast": 0.7e9, "blastx": 3e9, "tblastn": 7e9, "tblastx": 2.4e9}
#: Options with which a search may take far less time, or more.
ANOTHER_PACE = frozenset({"task", "word_size", "threshold", "window_size", "matrix", "subject"})
NUCLEOTIDE_DATABASE = frozenset({"blastn", "tblastn", "tblastx"})


class BlastAdapter:
    """Adapter for the search programs of BLAST+, which can search a database in fragments."""

    def describe_argument_files(self, argv: Sequence[str], at: int, name: str) -> FileNamePatterns | None:
        """See ``MultiFileAdapter.describe_argument_files``: all files of a database; None for other arguments."""
        return search_path.describe_argument_files(Path(argv[0]).name in NUCLEOTIDE_DATABASE, argv, at, name)

    def read_file_references(self, name: str, read: Callable[[], bytes]) -> dict[str, FileNamePatterns]:
        """See ``MultiFileAdapter.read_file_references``: the databases and lists of entries that an alias names."""
        return search_path.read_file_references(name, read)

    def understand_command(self, command: UserCommand) -> ToolUse:
        """See ``ToolAdapter.understand_command``. Read the query file once, to find records without a name."""
        program = self._get_program(command)
        options = parse_options(command.argv)
        _refuse_options(program, options)
        fmt = parse_format(options.get("outfmt", "0"))
        query = find_query(command, options)
        names = read_query_names(command, query, "parse_deflines" in options)
        notes: list[str] = []
        databases = _find_databases(command, program, options, fmt)
        refuse_cut_off(databases)
        join = choose_join(program, options, fmt, names, notes)
        if names.known:
            refuse_unjoinable_queries(program, fmt, command.cwd / query)
        shared = find_pass_rules(program, options, fmt.number, command.cwd / query if names.known else None, command)
        notes += [shared.note] if shared.note else []
        argv, output = _mark_arguments(command, options, join)
        return ToolUse(
            adapter="blast",
            still_seconds=STANDSTILL_SECONDS,
            argv=argv,
            inputs=(
                InputUse(
                    path=query,
                    format="fasta",
                    stdin=query == "-",
                    # Where each query is a pass, a record without residues makes its neighbour in the batch fail, too.
                    content=None if PASS_RESIDUES.get(program) == 0 else RequiredContent(letters=shared.searched),
                    stops_without_content=shared.stops_without,
                    pass_residues=shared.residues,
                    too_long=shared.too_long,
                ),
            ),
            outputs=(output,),
            databases=databases,
            threads=_count_threads(options, notes),
            cost=_estimate_cost(program, options, databases),
            # 1 and 3 may be caused by one bad record. 2: the database. 6: the output cannot be written.
            fatal_statuses=(2, 6),
            version=read_version_line(command, "-version"),
            tested=TESTED,
            notes=tuple(notes),
        )

    def examine_database(self, use: ToolUse, command: UserCommand) -> DatabaseFacts:
        """See ``FragmentingAdapter.examine_database``."""
        return fragments.examine_database(self._get_program(command), parse_options(command.argv), command)

    def plan_fragments(
        self, use: ToolUse, command: UserCommand, sizes: Sequence[int], later: Sequence[FetchedFile] = ()
    ) -> ToolUse:
        """See ``FragmentingAdapter.plan_fragments``."""
        options = parse_options(command.argv)
        fmt = parse_format(options.get("outfmt", "0"))
        columns = fmt.columns if (fmt.number, fmt.delim) == (6, "\t") else ()
        try:
            fragmented = fragments.plan_fragments(
                use, self._get_program(command), options, command, sizes, columns, later
            )
        except NotInFragmentsError as why:
            raise RefusedError(str(why)) from why
        return msgspec.structs.replace(use, fragmented=fragmented)

    def describe_reusable_search(self, use: ToolUse, command: UserCommand) -> ReusableSearch:
        """See ``ReusingAdapter.describe_reusable_search``."""
        assert use.fragmented and isinstance(use.fragmented.about, BlastDatabase)  # it is searched in fragments
        try:
            return candidate_reuse.describe_reusable_search(
                use, self._get_program(command), parse_options(command.argv), command, use.fragmented.about
            )
        except NotInFragmentsError as why:
            return ReusableSearch(why_not=str(why))

    def plan_reuse(
        self, use: ToolUse, command: UserCommand, new: Sequence[tuple[int, int]] | None, known_depth: float, *, is_kept: bool,
    ) -> ToolUse:  # fmt: skip
        """See ``ReusingAdapter.plan_reuse``."""
        assert use.fragmented  # it is searched in fragments
        if not is_kept:
            # Every batch has candidates.
            return msgspec.structs.replace(use, fragmented=msgspec.structs.replace(use.fragmented, is_for_tail=False))
        program, options = self._get_program(command), parse_options(command.argv)
        fragmented = candidate_reuse.plan_reuse(use, program, options, use.fragmented, new, known_depth)
        return msgspec.structs.replace(use, fragmented=fragmented)

    def format_candidates(self, queries: Sequence[QueryCandidates]) -> bytes:
        """See ``ReusingAdapter.format_candidates``."""
        return format_hit_lists(query.entries for query in queries)

    def make_list_reader(self, use: ToolUse, command: UserCommand) -> CandidateListReader:
        """See ``ReusingAdapter.make_list_reader``."""
        assert use.fragmented  # it was searched in fragments
        return partial(candidate_reuse.read_candidates, use.fragmented, command)

    def _get_program(self, command: UserCommand) -> str:
        program = command.exe.name if command.exe.name in FAMILIES["blast"] and not command.known_as else command.tool
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


def _mark_arguments(
    command: UserCommand, options: dict[str, str], join: str
) -> tuple[tuple[ArgumentToken, ...], OutputUse]:
    """Put placeholders in the places of query and output. Queries on standard input stay there."""
    tokens = CommandTokens(command.argv)
    for word in read_options(command.argv):
        if word.name == "query" and word.value != "-":
            tokens.mark_input(word)
        elif word.name == "out" and word.value != "-":
            tokens.mark_output(word, 0)
    path = options.get("out", "-")
    to_file = path != "-"
    return tokens.build_arguments(), OutputUse(
        name="out" if to_file else "stdout", path=path, stdout=not to_file, join=join
    )


def _count_threads(options: dict[str, str], notes: list[str]) -> int:
    text = options.get("num_threads", "1")
    threads = int(text) if re.fullmatch(r"[1-9]\d{0,4}", text) else 1
    if threads > 1:
        notes.append(f"-num_threads {threads}: each task keeps {threads} cores busy; -num_threads 1 is more efficient")
    return threads


def _estimate_cost(program: str, options: dict[str, str], databases: Iterable[Path]) -> CostHint:
    if program == "blastn":
        residues = PASS_RESIDUES_BLASTN.get(options.get("task", "megablast"), 100_000)
    else:
        residues = PASS_RESIDUES[program]
    start = _estimate_start_units(program, options, databases)
    spread = BLASTN_SPREAD if program == "blastn" else 1.0
    return CostHint(unit="residues", startup_seconds=0.06, start_units=start, pass_units=residues, spread=spread)


def _estimate_start_units(program: str, options: dict[str, str], databases: Iterable[Path]) -> int:
    """Estimate ``CostHint.start_units``; 0: the search's time is not known."""
    if program not in START_LETTERS or not ANOTHER_PACE.isdisjoint(options):
        return 0
    per_byte = {".psq": 1, ".nsq": 4}
    letters = sum(per_byte[file.suffix] * _get_file_size(file) for file in databases if file.suffix in per_byte)
    return max(1, int(START_LETTERS[program] / letters)) if letters else 0


def _get_file_size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0  # the run refuses it, or it is not on this machine


def _find_databases(command: UserCommand, program: str, options: dict[str, str], fmt: OutputFormat) -> tuple[Path, ...]:
    if not {"db", "subject"} & options.keys():
        raise make_usage_refusal("Either a BLAST database or subject sequence(s) must be specified")
    files = [command.cwd / options[name] for name in SHARED if name in options]
    search = SearchPath(command)
    letter = "n" if program in NUCLEOTIDE_DATABASE else "p"
    for name in split_names(options.get("db", "")):
        files += search.find_files(name, letter)
    for name in split_names(options.get("filtering_db", "")):
        files += search.find_files(name, "n")
    for name in split_names(options.get("rpsdb", "cdd_delta" if program == "deltablast" else "")):
        files += search.find_files(name, "p")
    by_taxa = any("taxid" in name for name in options)  # BLAST+ 2.16 expands these to the taxa below them
    if fmt.number == 18 or by_taxa or any(re.search("sci|com|blastn|king", column) for column in fmt.columns):
        files += search.find_taxonomy()
    return tuple(dict.fromkeys(file for file in files if file.exists()))


#: The adapter of this family.
ADAPTER = BlastAdapter()
