"""The list of the census that Millrace reads: each program that was measured, and the calls of it that are refused."""

from __future__ import annotations

from pathlib import Path

from census.program_files import list_names, read_census_file
from census.result_files import read_all_results
from millrace.host.permissions import replace_file

#: Read by ``millrace.adapters.known_refusals``.
LIST = Path(__file__).resolve().parent.parent / "python" / "millrace" / "adapters" / "census.tsv"


def write_refusal_list() -> None:
    """Write the list of all files of programs."""
    replace_file(LIST, format_refusal_list().encode())


def format_refusal_list() -> str:
    """Return its text: program, why it is refused, what works, patterns of arguments (with, without), and a join.

    A program that is refused in no call, or by a rule of its own, has a row without a reason.
    """
    rows = set[tuple[str, ...]]()
    for file in map(read_census_file, list_names()):
        for each in file.refused:
            rows |= {
                (name, each.why, each.instead, each.when, each.unless, each.join) for name in each.programs.split()
            }
    measured = {
        each.program for file in read_all_results().values() for each in file.commands if each.verdict != "fails"
    }
    rows |= {(name, "", "", "", "", "") for name in measured - {row[0] for row in rows}}
    return "".join("\t".join(row) + "\n" for row in sorted(rows))
