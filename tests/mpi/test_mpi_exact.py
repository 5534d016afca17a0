"""The promise on several nodes: whatever the number of processes, the serial tool's bytes."""

from __future__ import annotations

from pathlib import Path

import pytest
from exact_cases import CASES, IN_FRAGMENTS, Case, collect, masked, serially
from jobs import Mpi

#: A table, a report, standard input to standard output, several outputs of one tool, another joiner, a filter, files
#: that are records, and fragments of a database, which any process may search. ``bench.exact_cluster`` runs all.
NAMES = (
    "blastp-6",
    "blastp-0",
    "blastp-stdin",
    "hmmscan",
    "obabel-sdf",
    "filter",
    "muscle3",
    "blastp-6-fragments",
    "hmmscan-fragments",
)

JOBS = [case for case in (*CASES, *IN_FRAGMENTS) if case.name in NAMES]

#: (processes, batch): alone, sized by measurement, and in sizes that cut badly with more processes than batches.
WAYS = ((1, "4"), (2, "auto"), (5, "3"), (16, "1"))


@pytest.mark.parametrize("case", JOBS, ids=lambda case: case.name)
def test_output_is_the_serial_tools(mpi: Mpi, case: Case, bench_of: Path, tmp_path: Path) -> None:
    folder = tmp_path / "work"
    words, serial, volatile = serially(case, bench_of, folder)
    for n, batch in WAYS:
        for name in serial:
            (folder / name).unlink()
        command = ["run", "-q", "--slots", "1", "--batch", batch, *case.options, "--", *words]
        code, said = mpi.run(n, command, folder, stdin=case.stdin)
        assert code == 0, said
        ours = collect(folder, case)
        assert ours.keys() == serial.keys()
        for name, content in ours.items():
            patterns = volatile.get(name, [])
            assert masked(content, patterns) == masked(serial[name], patterns), f"{name} differs with {n} processes"
        assert not [path.name for path in folder.iterdir() if path.name.endswith(".millrace")]
