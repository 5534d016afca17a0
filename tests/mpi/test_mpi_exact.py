"""The promise on several nodes: whatever the number of processes, the serial tool's bytes."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from jobs import Mpi
from test_exact import CASES, Case, collect, masked, need, serially

#: A table, a report, standard input to standard output, several outputs of one tool, another joiner, a filter.
NAMES = ("blastp-6", "blastp-0", "blastp-stdin", "hmmscan", "obabel-sdf", "filter")

#: The same in fragments of the database, which any process may search.
IN_FRAGMENTS = ("blastp-6", "hmmscan")

JOBS = [
    *(case for case in CASES if case.name in NAMES),
    *(
        replace(case, name=f"{case.name}-fragments", options=("--fragments", "3"))
        for case in CASES
        if case.name in IN_FRAGMENTS
    ),
]

#: (processes, batch): alone, sized by measurement, and in sizes that cut badly with more processes than batches.
WAYS = ((1, "4"), (2, "auto"), (5, "3"), (16, "1"))


@pytest.mark.parametrize("case", JOBS, ids=lambda case: case.name)
def test_output_is_the_serial_tools(mpi: Mpi, case: Case, bench_of: Path, tmp_path: Path) -> None:
    folder = tmp_path / "work"
    words, serial, volatile = serially(case, bench_of, folder)
    for n, batch in WAYS:
        for name in serial:
            (folder / name).unlink()
        ours = ["run", "-q", "--slots", "1", "--batch", batch, *case.options, "--", *words]
        code, said = mpi.run(n, ours, folder, stdin=case.stdin)
        assert code == 0, said
        for name, content in collect(folder, case).items():
            patterns = volatile.get(name, [])
            assert masked(content, patterns) == masked(serial[name], patterns), f"{name} differs with {n} processes"
        assert not [path.name for path in folder.iterdir() if path.name.endswith(".millrace")]


def test_files_that_are_records_are_read_by_the_nodes(openmpi: Mpi, bench_of: Path, tmp_path: Path) -> None:
    need("muscle3")
    shutil.copytree(bench_of / "fams", tmp_path / "fams")
    for kind in ("serial", "ours"):
        (tmp_path / kind).mkdir()
    for family in sorted((tmp_path / "fams").iterdir()):
        command = ["muscle3", "-quiet", "-in", f"fams/{family.name}", "-out", f"serial/{family.name}"]
        subprocess.run(command, cwd=tmp_path, check=True)
    code, said = openmpi.run(3, ["run", "-q", "--", "muscle3", "-quiet", "-in", "fams/", "-out", "ours/"], tmp_path)
    assert code == 0, said
    assert {path.name: path.read_bytes() for path in (tmp_path / "ours").iterdir()} == {
        path.name: path.read_bytes() for path in (tmp_path / "serial").iterdir()
    }
