"""What tools say on standard error, and how it is passed on."""

from __future__ import annotations

import random
import shutil

import pytest
from shell import Shell


def test_batch_figures_are_marked_as_those_of_one_task(shell: Shell) -> None:
    if not shutil.which("bowtie2-build"):
        pytest.skip("no bowtie2")
    rng = random.Random(1)
    ref = "".join(rng.choices("ACGT", k=2000))
    (shell.work / "ref.fa").write_text(f">ref\n{ref}\n")
    # The first two match, the third does not, the fourth does.
    reads = [ref[40:100], ref[400:460], "".join(rng.choices("ACGT", k=60)), ref[900:960]]
    (shell.work / "r.fa").write_text("".join(f">q{k}\n{read}\n" for k, read in enumerate(reads)))
    line = "millrace run --slots 1 --batch 2 --input r.fa --join sam -- bowtie2 -f -x bt r.fa > o"
    ended = shell.run(f"bowtie2-build -q ref.fa bt; {line}")
    assert ended.code == 0 and "bowtie2, of records 1-2: 100.00% overall alignment rate" in ended.err, ended.shown
    assert "100.00% overall alignment rate [of one task; others gave other numbers] (2 times)" in ended.err
    assert "2 reads; of these: [of one task each] (2 times)" in ended.err
    assert "bowtie2: " not in ended.err


def test_line_without_numbers_is_forwarded_unchanged(shell: Shell) -> None:
    shell.tool("warns", "echo mind the gap >&2; exec cat")
    ended = shell.run("millrace run --slots 1 --batch 1 --verify 0 --format fasta -- warns < in.fa")
    assert ended.code == 0 and "warns: mind the gap\n" in ended.err, ended.shown
    assert "mind the gap (3 times)" in ended.err
