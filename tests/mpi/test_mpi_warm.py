"""Tools that stay warm on several nodes: each node starts its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from exact_cases import Case, differing, serially
from mpi_jobs import Mpi


@pytest.mark.slow
def test_each_node_forks_tools_of_its_own(openmpi: Mpi, bench_of: Path, tmp_path: Path) -> None:
    case = Case("blastp", "blastp -query q.faa -db prot -outfmt 6 -evalue 1e-3 -out out")
    folder = tmp_path / "work"
    words, serial = serially(case, bench_of, folder)
    command = ["run", "--warm", "--slots", "1", "--batch", "1", "--fragments", "1", "--", *words]
    code, said = openmpi.run(2, command, folder)
    assert code == 0 and "in forks of blastp" in said, said
    assert not differing(case, folder, serial), said


@pytest.mark.slow
def test_node_that_cannot_fork_reports_its_reason(openmpi: Mpi, tmp_path: Path) -> None:
    tool = "import os, sys; kept = os.pipe(); text = open(sys.argv[1]).read(); open(sys.argv[2], 'w').write(text)"
    (tmp_path / "tool.py").write_text(tool)
    text = "".join(f">r{k}\nM\n" for k in range(20))
    (tmp_path / "q.fa").write_text(text)
    words = "run --warm --slots 1 --batch 1 --input q.fa --output out.fa -- python3 tool.py q.fa out.fa"
    code, said = openmpi.run(2, words.split(), tmp_path)
    assert code == 0 and "it has a pipe open before it reads its input" in said, said
    assert (tmp_path / "out.fa").read_text() == text
