"""DIAMOND with few and many queries, and a small and a large database, by itself and through Millrace."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from bench import inputs
from bench.compare import Case
from bench.known_tools import Tool, compare, genes, make, proteins, show_rows, verdict


def main(arguments: Sequence[str]) -> int:
    """Measure, and print the table; 1 if a goal is missed."""
    parser = argparse.ArgumentParser(prog="python -m bench diamond", description=__doc__)
    parser.add_argument(
        "--queries", type=int, action="append", help="how many; again for more (default 300, 5000, 50000)"
    )
    parser.add_argument(
        "--megabytes", type=int, action="append", help="of the database; again for more (default 5, 1000)"
    )
    parser.add_argument("--repeats", type=int, default=3, help="interleaved repeats (default 3)")
    options = parser.parse_args(arguments)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    rows = []
    for megabytes in options.megabytes or (5, 1000):
        for work, write, name in (("blastp", proteins, "q.faa"), ("blastx", genes, "q.fna")):
            # From 256 million letters on, the algorithm has to be named.
            command = f"diamond {work} --quiet --algo 0 -q {name} -d dmnd -o out {{}}"
            tool = Tool(f"{work} {megabytes} MB", command, write, ("-p {n}",), prepare=partial(database, megabytes))
            for number in options.queries or (300, 5000, 50_000):
                row = compare(tool, f"{number} queries", options.repeats, partial(_exactly, write, number))
                rows.append(row)
                print(f"{tool.name}, {number} queries: {verdict(row)}", file=sys.stderr, flush=True)
    show_rows("diamond", rows)
    return int(any("MISSED" in verdict(row) or not row["same"] for row in rows))


def _exactly(write: Callable[[Path, int], None], number: int, case: Case) -> tuple[int, None]:
    write(case.folder, number)
    return number, None


def database(megabytes: int, folder: Path) -> None:
    """A database of so many megabytes: the proteins, and copies of them with other letters."""
    found = inputs.records(inputs.DATA / "proteins_db.faa")
    number = max(1, round(megabytes * 1e6 * len(found) / sum(map(len, found))))
    with (folder / "prot.faa").open("wb") as file:
        file.writelines(inputs.copies(found, number, inputs.AMINO))
    make("diamond makedb --in prot.faa -d dmnd --quiet", folder)
