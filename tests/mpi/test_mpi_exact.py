"""The promise on several nodes: whatever the number of processes, the serial tool's bytes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from exact_cases import CASES, IN_FRAGMENTS, Case, differing, serially
from mpi_jobs import Mpi

#: A table, a report, standard input to standard output, several outputs of one tool, another joiner, a filter, files
#: that are records, and fragments of a database, which any process may search, with queries of which several write the rows. ``bench.exact_cluster`` runs all.
NAMES = (
    "blastp-6",
    "blastp-0",
    "blastp-stdin",
    "hmmscan",
    "obabel-sdf",
    "filter",
    "muscle3",
    "mmseqs",
    "blastp-6-fragments",
    "blastn-6-alike-fragments",
    "blastp-6-relatives-fragments",
    "hmmscan-fragments",
)

JOBS = [case for case in (*CASES, *IN_FRAGMENTS) if case.name in NAMES]

#: (processes, batch): alone, sized by measurement, and in sizes that cut badly. Processes and batches do not know of
#: formats: what does not go all ways goes those after the first two with ``-m slow``.
WAYS = ((3, "3"), (1, "4"), (2, "auto"), (5, "3"))
ALL_WAYS = ("hmmscan",)

#: More processes than batches or cores, with ``-m slow``.
MANY = ((16, "1"),)

#: What goes through each MPI in a way of its own: a file, and standard input. What is joined in
#: another way goes through both alike.
IN_BOTH = ("blastp-6", "blastp-stdin")

#: Divided in ways that know of no MPI, which `test_fragments_finish` shows.
DIVIDED = ("blastn-6-alike-fragments", "blastp-6-relatives-fragments")


def all_ways() -> Iterator[Any]:
    """Each case with each MPI and in its ways; some have their turn with ``-m slow``."""
    for mpi, case, ways in product(("openmpi", "mpich"), JOBS, (WAYS[:1], WAYS[1:], MANY)):
        if ways == WAYS[:1]:
            chosen = case.name not in (*(ALL_WAYS if mpi == "openmpi" else ()), *DIVIDED, "obabel-sdf")
            chosen = chosen and (mpi == "openmpi" or case.name in IN_BOTH)
        else:
            chosen = ways == WAYS[1:] and mpi == "openmpi" and case.name in ALL_WAYS
        name = f"{mpi}-{case.name}-{'-'.join(str(n) for n, _ in ways)}"
        yield pytest.param(mpi, case, ways, id=name, marks=[] if chosen else pytest.mark.slow)


@pytest.mark.parametrize(("mpi", "case", "ways"), list(all_ways()), indirect=["mpi"])
def test_output_is_the_serial_tools(
    mpi: Mpi, case: Case, ways: tuple[tuple[int, str], ...], bench_of: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "work"
    words, serial = serially(case, bench_of, folder)
    for n, batch in ways:
        command = ["run", "-q", "--slots", "1", "--batch", batch, *case.options, "--", *words]
        code, said = mpi.run(n, command, folder, stdin=case.stdin)
        assert code == 0, said
        assert not differing(case, folder, serial), f"with {n} processes"
        assert not [path.name for path in folder.iterdir() if path.name.endswith(".millrace")]
        for name in serial:
            (folder / name).unlink()
