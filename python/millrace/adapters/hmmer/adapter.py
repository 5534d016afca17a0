"""HMMER 3: hmmscan, hmmsearch, phmmer, jackhmmer, nhmmer and nhmmscan.

*Exactness.* HMMER searches one query after the other and keeps no state between them: its random numbers are
re-seeded, and ``Z`` counts the targets, never the queries. So the results of all batches together are those of
the serial run. HMMER writes some text once a run; the ``hmmer-`` joins keep it once. Rule and test of every
program and output: ``docs/exactness-hmmer.md``.

The options are read from the tool's own help (``-h``), so this module depends on no version.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from millrace import _core
from millrace.adapters.adapter_base import FileNamePatterns, match_with_suffixes
from millrace.adapters.hmmer.command_line import (
    PROGRAMS,
    HmmerCommandLine,
    find_outputs,
    parse_c_integer,
    parse_command_line,
    parse_help_options,
    parse_version,
    read_help_page,
    refuse_options,
)
from millrace.adapters.hmmer.inputs import PRESSED, find_databases, find_query
from millrace.core.tool_use import STANDSTILL_SECONDS, ArgumentToken, CostHint, InputArg, ToolUse, UserCommand

#: Programs that search sequences; a node may hold only pieces of the sequence file.
SEARCHED_IN_PIECES = ("hmmsearch", "phmmer")

#: Versions with which the adapter's rules were compared with serial runs.
TESTED = ("3.3.2", "3.4")

#: The pressed file that hmmscan opens and reads again for each query.
REREAD_SUFFIX = PRESSED[2]

#: From this size on, reading it again costs more than the library that keeps it open.
MIN_REREAD_BYTES = 1 << 20

_DEFAULT_CPU = re.compile(r"^ +--cpu <n> +:.*\[(\d+)\]", re.MULTILINE)


class HmmerAdapter:
    """The HMMER 3 search programs."""

    def describe_argument_files(self, argv: Sequence[str], at: int, name: str) -> FileNamePatterns:
        """See ``MultiFileAdapter.describe_argument_files``: a file of profiles or sequences, with its pressed files and index."""
        parts = match_with_suffixes(name, (*PRESSED, ".ssi"))
        if Path(argv[0]).name in SEARCHED_IN_PIECES and at == len(argv) - 1:
            return msgspec.structs.replace(parts, in_pieces=re.escape(name))
        return parts

    def read_file_references(self, name: str, read: Callable[[], bytes]) -> dict[str, FileNamePatterns]:
        """See ``MultiFileAdapter.read_file_references``: such a file names no others."""
        return {}

    def understand_command(self, command: UserCommand) -> ToolUse:
        """Find queries, targets and outputs. Runs the program with ``-h``, which checks all options.

        Raises:
            RefusedError: An option or file does not work; in HMMER's words or ours.
        """
        name = command.tool
        program = PROGRAMS[name]
        help_page = read_help_page(command)
        parsed = parse_command_line(command.argv, parse_help_options(help_page))
        refuse_options(name, parsed)
        databases = find_databases(name, program, command, parsed)
        query, added = find_query(name, program, command, parsed)
        threads, env, cpu, note = choose_threads(name, help_page, command, parsed)
        outputs, output_at = find_outputs(command, parsed, ",".join((*added, *cpu)))
        argv = list[ArgumentToken](command.argv)
        for at, token in output_at.items():
            argv[at] = token
        if not query.stdin:
            argv[parsed.files[program.query]] = InputArg(index=0)
        argv[1:1] = added
        version = parse_version(help_page)
        notes = [note] if note else []
        if added:
            notes.append(f"{' '.join(added)} added, so that no batch of queries is taken for an alignment")
        return ToolUse(
            adapter="hmmer",
            still_seconds=STANDSTILL_SECONDS,
            argv=tuple(argv),
            inputs=(query,),
            outputs=outputs,
            databases=databases,
            threads=threads,
            env=env,
            cost=CostHint(unit="residues" if query.format == "fasta" else "bytes", startup_seconds=0.002),
            version=version,
            tested=TESTED,
            reread_suffix=choose_reread_suffix(command, version, databases),
            notes=tuple(notes),
        )


def choose_reread_suffix(command: UserCommand, version: str, databases: Sequence[Path]) -> str:
    """Return the suffix of the profiles that hmmscan reads again for each query; empty: it does not pay, or was not compared."""
    file = next((command.cwd / path for path in databases if path.suffix == REREAD_SUFFIX), None)
    if command.tool != "hmmscan" or file is None or not any(tested in version.split() for tested in TESTED):
        return ""
    return REREAD_SUFFIX if file.stat().st_size >= MIN_REREAD_BYTES and _core.can_reread(command.exe) else ""


def choose_threads(
    name: str, help_page: str, command: UserCommand, parsed: HmmerCommandLine
) -> tuple[int, dict[str, str], tuple[str, ...], str]:
    """Choose the threads of a task.

    HMMER gives the same hits, values and order with any number of threads, and needs the least CPU without
    worker threads. It then prints that option in its output, and the joins remove it again. nhmmer cuts long
    targets by another rule without workers, so it keeps one; it always prints the number, which the join corrects.

    Returns:
        (threads, environment that sets them, options that HMMER prints for it, the reason in words).
    """
    cores = os.sysconf("SC_NPROCESSORS_ONLN")
    asked = parsed.get_value("cpu") or command.environ.get("HMMER_NCPU")
    if asked is not None:
        threads = max(1, parse_c_integer(asked))
        note = f"{threads} threads a task, as the command asks; without --cpu a task needs less CPU"
        return threads, {}, (), note
    default = _DEFAULT_CPU.search(help_page)
    workers = "1" if name == "nhmmer" else "0"
    if default is None or default[1] == workers:
        return 1, {}, (), ""
    printed = f"={min(int(default[1]), cores)}" if name == "nhmmer" else ""
    note = f"one thread a task (HMMER_NCPU={workers}): same output, least CPU"
    return 1, {"HMMER_NCPU": workers}, (f"--cpu {workers}{printed}",), note
