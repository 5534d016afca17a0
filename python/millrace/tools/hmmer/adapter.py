"""HMMER 3: hmmscan, hmmsearch, phmmer, jackhmmer, nhmmer and nhmmscan.

Exactness. HMMER searches one query after the other and starts anew for each: its random numbers are
re-seeded, and ``Z`` counts the targets, never the queries. So the queries of all batches together are the
queries of the serial run; what is left is text that HMMER writes once a run, which the ``hmmer-`` joins keep
to once. Rule and test of every program and output: ``docs/exactness-hmmer.md``.

The tool itself says which options it knows (``-h``), so that no version is written down here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from millrace.model import (
    STANDSTILL_SECONDS,
    Command,
    CostHint,
    InputArg,
    Token,
    ToolUse,
)
from millrace.tools.base import Parts, with_suffixes
from millrace.tools.hmmer.command import Parsed, ask, c_integer, option_arguments, parse, refuse_options, version
from millrace.tools.hmmer.outputs import find_outputs
from millrace.tools.hmmer.programs import PROGRAMS
from millrace.tools.hmmer.queries import find_query
from millrace.tools.hmmer.targets import PRESSED, find_databases

#: Programs that search sequences, of which nodes may have pieces.
SEARCHED_IN_PIECES = ("hmmsearch", "phmmer")

_DEFAULT_CPU = re.compile(r"^ +--cpu <n> +:.*\[(\d+)\]", re.MULTILINE)


class HmmerAdapter:
    """The HMMER 3 search programs."""

    def parts(self, argv: Sequence[str], at: int, name: str) -> Parts:
        """See `Gathering`: a file of profiles or sequences, with what was made of it."""
        parts = with_suffixes(name, (*PRESSED, ".ssi"))
        if Path(argv[0]).name in SEARCHED_IN_PIECES and at == len(argv) - 1:
            return msgspec.structs.replace(parts, in_pieces=re.escape(name))
        return parts

    def named_in(self, name: str, read: Callable[[], bytes]) -> dict[str, Parts]:
        """See `Gathering`."""
        return {}

    def understand(self, command: Command) -> ToolUse:
        """Find queries, targets and outputs; asks the program for its help page, which checks all options.

        Raises:
            RefusedError: An option or file that does not work, in HMMER's words or ours.
        """
        name = command.tool
        program = PROGRAMS[name]
        help_page = ask(command)
        parsed = parse(command.argv, option_arguments(help_page))
        refuse_options(name, parsed)
        databases = find_databases(name, program, command, parsed)
        query, added = find_query(name, program, command, parsed)
        threads, env, cpu, note = choose_threads(name, help_page, command, parsed)
        outputs, output_at = find_outputs(command, parsed, ",".join((*added, *cpu)))
        argv = list[Token](command.argv)
        for at, token in output_at.items():
            argv[at] = token
        if not query.stdin:
            argv[parsed.files[program.query]] = InputArg(index=0)
        argv[1:1] = added
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
            version=version(help_page),
            tested=("3.3.2", "3.4"),
            notes=tuple(notes),
        )


def choose_threads(
    name: str, help_page: str, command: Command, parsed: Parsed
) -> tuple[int, dict[str, str], tuple[str, ...], str]:
    """Threads of a task, environment that sets them, the option that HMMER prints for it, the reason.

    HMMER gives the same hits, values and order with any number of threads, and without worker threads it
    needs the least CPU. It then says so in its output, which the joins take out again. nhmmer cuts long
    targets by another rule without workers, so it keeps one; and it always prints the number, which the join
    sets right.
    """
    cores = os.sysconf("SC_NPROCESSORS_ONLN")
    asked = parsed.value("cpu") or command.environ.get("HMMER_NCPU")
    if asked is not None:
        threads = max(1, c_integer(asked))
        note = f"{threads} threads a task, as the command asks; without --cpu a task needs less CPU"
        return threads, {}, (), note
    default = _DEFAULT_CPU.search(help_page)
    workers = "1" if name == "nhmmer" else "0"
    if default is None or default[1] == workers:
        return 1, {}, (), ""
    printed = f"={min(int(default[1]), cores)}" if name == "nhmmer" else ""
    note = f"one thread a task (HMMER_NCPU={workers}): same output, least CPU"
    return 1, {"HMMER_NCPU": workers}, (f"--cpu {workers}{printed}",), note
