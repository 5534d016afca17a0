"""The promise itself: for every tool the command line gives the serial tool's bytes, whatever the slots and batches."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from exact_cases import CASES, MILLRACE, Case, differing, run, serially

#: Go all ways: one case for each way to read, to join and to write. A format more, or an option of the tool, goes the
#: way that cuts worst, and the others with ``-m slow``: slots and batches do not know of formats.
ALL_WAYS = (
    "blastp-6",
    "blastp-stdin",
    "hmmscan",
    "obabel-sdf",
    "filter",
    "tool-with-files",
    "muscle3",
)

#: What joins them is shown by the tests of their adapters (`test_blast_join`, `test_msa_join`, `test_described_join`, `test_headers`...) with
#: the real tools, and here they go the ways of others.
JOINED_THERE = (
    *(f"blastp-{form}" for form in (8, 10, 11, 12, 15, 16, 18)),
    "blastp-threads",
    "blastp-7-comp_based_stats",
    "blastp-6-columns",
    "blastp-6-max_target_seqs",
    "blastp-0-num_descriptions",
    *(f"blastn-{form}" for form in (5, 7, 10)),
    "blastn-6-task",
    "blastp-5",
    "blastp-7",
    "blastx-0",
    "tblastx-6-max_target_seqs",
    "psiblast",
    "bowtie2-sam",
    "obabel-sdf",
    "mafft",
    "fasttree",
    "diamond-5",
    "diamond-blastx",
    "jackhmmer",
    "nhmmer",
    "phmmer",
    "mmseqs",
    "cmsearch",
    "csvgrep",
)

#: One record is one task, which is the serial run itself; how it is divided is shown by `test_fragments_finish`.
ONE_TASK = ("blastp-6-relatives", "blastn-6-alike")


def cases_and_ways() -> Iterator[Any]:
    """Each case with the ways that it goes; those that are shown elsewhere, and other ways, have their turn with ``-m slow``."""
    elsewhere = {*JOINED_THERE, *ONE_TASK}
    assert elsewhere <= {case.name for case in CASES}
    for case in CASES:
        n_others = 0 if case.name in ALL_WAYS else len(case.ways) - 1
        marks = [pytest.mark.slow] if case.name in elsewhere else []
        yield pytest.param(case, case.ways[n_others:], id=case.name, marks=marks)
        if n_others:
            yield pytest.param(case, case.ways[:n_others], id=f"{case.name}-other-ways", marks=pytest.mark.slow)


@pytest.mark.parametrize(("case", "ways"), list(cases_and_ways()))
def test_output_is_the_serial_tools(
    case: Case, ways: tuple[tuple[int, str], ...], bench_of: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "work"
    words, serial = serially(case, bench_of, folder)
    for slots, batch in ways:
        command = ["run", "-q", "--slots", str(slots), "--batch", batch, *case.options, "--", *words]
        run([*MILLRACE, *command], folder, case)
        assert not differing(case, folder, serial), f"with {slots} slots, batch {batch}"
        assert not [path.name for path in folder.iterdir() if path.name.endswith(".millrace")]
        for name in serial:
            (folder / name).unlink()
