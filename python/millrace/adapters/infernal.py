"""Infernal 1.1: cmscan (queries are sequences) and cmsearch (queries are models).

*Exactness.* Both search one query after the other, and E-values depend on the query and the database: cmscan's ``Z`` is
the length of the query, cmsearch's the size of the sequence file, which is never cut. Random numbers are re-seeded for
each query. A run writes once the banner and the last line of a report, and the header and trailer of a table
(``tests/exact/test_infernal_join.py``). The width of a table's header depends on the names of the first query.

A task runs without worker threads, which changes no hit; the join restores the number that the user's own command
prints.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from millrace.adapters import joins
from millrace.adapters.adapter_base import FileNamePatterns, match_with_suffixes
from millrace.adapters.hmmer.inputs import CUTOFFS, list_models_without, read_model_headers, refuse_missing_cutoffs
from millrace.adapters.option_reader import (
    CommandTokens,
    CommandWord,
    OptionTable,
    find_last_use,
    find_only_use,
    parse_count,
    scan_options,
)
from millrace.adapters.program_identity import read_checked_help
from millrace.core import record_formats
from millrace.core.errors import RefusedError
from millrace.core.tool_use import STANDSTILL_SECONDS, CostHint, InputUse, OutputUse, ToolUse, UserCommand

#: Index of the queries among the operands, and their format.
QUERIES = {"cmscan": (1, "fasta"), "cmsearch": (0, "cm")}
#: Suffixes of the files that ``cmpress`` writes beside a database of models.
PRESSED = (".i1m", ".i1i", ".i1f", ".i1p")
REFUSED = {
    "verbose": ("prints seconds with each hit, which differ from run to run", "leave it out"),
    "mpi": ("runs its own MPI master", "leave it out: millrace does what it does, on any number of nodes"),
    "stall": ("waits for a debugger", "leave it out"),
    **{f"timeF{k}": ("only measures time", "run it directly") for k in range(1, 7)},
}
#: Files that all tasks read.
SHARED = ("glist", "clanin")
#: How the first line of a model begins, and the line behind its header.
MODEL_LINES = (b"\nINFERNAL1/", b"\nCM\n")
#: Lines of a table's trailer: ``#``, program, version, mode, query, target, options, ``[ok]``.
TRAILER_LINES = 8

_OPTION = re.compile(r"^ +--?(\w+)(?: (<\w>))? +:", re.MULTILINE)
_VERSION = re.compile(r"^# (INFERNAL \S+.*)$", re.MULTILINE)


class InfernalAdapter:
    """Adapter for ``cmscan --tblout hits.tbl Rfam.cm genome.fa`` and ``cmsearch ... models.cm genome.fa``."""

    def describe_argument_files(self, argv: Sequence[str], at: int, name: str) -> FileNamePatterns:
        """See ``MultiFileAdapter.describe_argument_files``: a file of models or sequences, with its pressed files and index."""
        return match_with_suffixes(name, (*PRESSED, ".ssi"))

    def read_file_references(self, name: str, read: Callable[[], bytes]) -> dict[str, FileNamePatterns]:
        """See ``MultiFileAdapter.read_file_references``: such a file names no others."""
        return {}

    def understand_command(self, command: UserCommand) -> ToolUse:
        """See ``ToolAdapter.understand_command``. Run the program for its help, so that it checks all options."""
        program = command.tool
        page = _read_help_page(program, command)
        found = scan_options(command.argv, _parse_help_options(page), program)
        _check_options(program, found)
        files = [word for word in found if not word.name]
        if len(files) != 2:
            raise RefusedError(f"{program} needs two files after its options, found {len(files)}", f"see {program} -h")
        at, form = QUERIES[program]
        query, target = files[at], files[1 - at]
        databases = (
            _find_pressed_models(command, target)
            if program == "cmscan"
            else _find_sequence_files(program, command, target)
        )
        _check_cutoffs(program, found, command.cwd / files[0].value)
        threads, env, added = _choose_threads(found, command)
        tokens = CommandTokens(command.argv)
        if query.value != "-":
            tokens.mark_input(query)
        return ToolUse(
            adapter="infernal",
            still_seconds=STANDSTILL_SECONDS,
            inputs=(_find_query(program, form, query, command),),
            outputs=_find_outputs(program, found, command, tokens, added),
            argv=tokens.build_arguments(),
            databases=(*databases, *(command.cwd / word.value for word in found if word.name in SHARED)),
            threads=threads,
            env=env,
            cost=CostHint(unit="residues" if form == "fasta" else "bytes", startup_seconds=0.01),
            version=version[1] if (version := _VERSION.search(page)) else "",
            tested=("1.1.4",),
            notes=("no worker threads in a task (INFERNAL_NCPU=0): same output, least CPU",) if added else (),
        )


def _read_help_page(program: str, command: UserCommand) -> str:
    """Run the program with ``--devhelp`` and the user's options, so that it checks them, and return its help page.

    Raises:
        RefusedError: It cannot be started, or does not accept the options.
    """
    if {"-h", "--devhelp"} & {*command.argv}:
        raise RefusedError(f"{program} {command.argv[1]} only prints help", "run it directly")
    return read_checked_help(command, ("--devhelp", *command.argv[1:]), "# INFERNAL 1.1", "Infernal")


def _parse_help_options(page: str) -> OptionTable:
    """Read the options of a help page, with Infernal's rules: before the files, and long ones may be shortened."""
    shown = {name: bool(takes) for name, takes in _OPTION.findall(page)}
    return OptionTable(
        flags=frozenset(name for name, takes in shown.items() if not takes),
        values=frozenset(name for name, takes in shown.items() if takes),
        dashes="tell", equals=True, shorten=True, together=True, ends=True, leading=True,
    )  # fmt: skip


def _check_options(program: str, found: list[CommandWord]) -> None:
    for word in found:
        if word.name in REFUSED:
            why, hint = REFUSED[word.name]
            raise RefusedError(f"{program} {word.typed} {why}", hint)
    seed = find_last_use(found, "seed")
    if seed is not None and parse_count(seed, program) == 0:
        raise RefusedError(
            f"{program} --seed 0 takes another seed in every run, so there is no output to be equal to",
            "leave --seed out or give any other number",
        )
    form = find_last_use(found, "qformat")
    if form is not None and form.value.lower() != "fasta":
        raise RefusedError(f"{program} --qformat {form.value}: only FASTA queries are cut", "convert the queries first")


def _check_cutoffs(program: str, found: list[CommandWord], models: Path) -> None:
    """Refuse an option for thresholds that a model has not. ``models``: their text, which ``cmpress`` leaves beside its files."""
    option = next((word.name for word in found if word.name in CUTOFFS), "")
    if option and models.is_file():
        headers = read_model_headers(models, *MODEL_LINES)
        refuse_missing_cutoffs(program, option, models.name, list_models_without(headers, CUTOFFS[option]))


def _find_pressed_models(command: UserCommand, target: CommandWord) -> list[Path]:
    pressed = [command.cwd / f"{target.value}{suffix}" for suffix in PRESSED]
    if missing := [path.name for path in pressed if not path.is_file()]:
        raise RefusedError(
            f"cmscan: model database {target.value} is not pressed, {missing[0]} is missing",
            f"run cmpress {target.value}",
        )
    return [path for path in (command.cwd / target.value, *pressed) if path.is_file()]


def _find_sequence_files(program: str, command: UserCommand, target: CommandWord) -> list[Path]:
    database = command.cwd / target.value
    if target.value == "-" or database.suffix == ".gz" or not database.is_file():
        raise RefusedError(
            f"{program}: {target.value} is no plain file of sequences, which is read anew for each model",
            "check the path; write or unpack them to a file first",
        )
    index = Path(f"{database}.ssi")
    return [database, index] if index.is_file() else [database]


def _find_query(program: str, form: str, query: CommandWord, command: UserCommand) -> InputUse:
    if query.value == "-":
        if form == "cm":
            raise RefusedError(f"{program}: models on standard input are not cut", "write them to a file first")
        if not command.stdin_is_data:
            raise RefusedError(f"{program}: no queries on standard input", "give a file")
        return InputUse(path="-", format=form, stdin=True)
    path = command.cwd / query.value
    if not path.is_file():
        raise RefusedError(f"{program}: query file {query.value} not found", "check the path")
    if record_formats.detect_format(str(path)) != form or path.stat().st_size == 0:
        what = "FASTA" if form == "fasta" else "a file of models (INFERNAL1/a)"
        raise RefusedError(f"{program}: query file {query.value} is not {what}", "convert the queries first")
    pressed = Path(f"{path}{PRESSED[0]}")
    if form == "cm" and pressed.is_file() and pressed.stat().st_mtime < path.stat().st_mtime:
        raise RefusedError(
            f"{program}: {pressed.name} is older than {query.value}, and {program} may read that",
            f"run cmpress -F {query.value}, or remove the old {query.value}.i1*",
        )
    return InputUse(path=query.value, format=form, hide=(*PRESSED, ".ssi") if form == "cm" else ())


def _choose_threads(found: list[CommandWord], command: UserCommand) -> tuple[int, dict[str, str], bool]:
    """Return the threads of a task, the environment that sets them, and whether Millrace adds it."""
    word = find_last_use(found, "cpu")
    asked = word.value if word else command.environ.get("INFERNAL_NCPU", "")
    if asked:
        return max(1, int(asked)) if asked.isdigit() else 1, {}, False
    return 1, {"INFERNAL_NCPU": "0"}, True


def _find_outputs(
    program: str, found: list[CommandWord], command: UserCommand, tokens: CommandTokens, added: bool
) -> tuple[OutputUse, ...]:
    """Find the outputs: the report, a table, and the alignments of models with hits."""
    # The banner ends with an empty line.
    report, table = (
        [joins.make_header_join("^(#|$)"), joins.make_footer_join(1)],
        [joins.make_first_header_join(2), joins.make_footer_join(TRAILER_LINES)],
    )
    if added:
        cores = str(os.sysconf("SC_NPROCESSORS_ONLN"))
        report.append(joins.make_restore_join(r"^# number of worker threads: +(0 \[--cpu\])$", cores))
        table.append(joins.make_restore_join(r"^# Option settings: .*?( --cpu 0) "))
    ways = {"o": ("out", report), "tblout": ("tblout", table), "A": ("alignment", [joins.CONCAT])}
    outputs: list[OutputUse] = []
    if find_only_use(found, "o", program) is None:
        outputs.append(_describe_output("stdout", "-", report))
    taken: dict[Path, str] = {}
    for word in found:
        if word.name not in ways or word.value == "/dev/null":
            continue
        path = (command.cwd / word.value).resolve()
        if path in taken or word.value.startswith("/dev/") or path.is_fifo():
            raise RefusedError(f"{program}: {word.typed} {word.value} is not a file of its own", "name another file")
        taken[path] = word.name
        name, parts = ways[word.name]
        tokens.mark_output(word, len(outputs))
        outputs.append(_describe_output(name, word.value, parts))
    return tuple(outputs)


def _describe_output(name: str, path: str, parts: list[str]) -> OutputUse:
    volatile = (r"^# CPU time: .*$",) if name in ("stdout", "out") else ()
    return OutputUse(name=name, path=path, stdout=name == "stdout", join=joins.combine_joins(*parts), volatile=volatile)


ADAPTER = InfernalAdapter()
