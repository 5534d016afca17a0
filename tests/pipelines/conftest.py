"""Finished runs that were kept."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from shell import Shell


@pytest.fixture
def kept(shell: Shell) -> Shell:
    """A folder in which ``mask`` has run on 60 records in batches of 10, from ``q.fa`` to ``out.fa``, and was kept."""
    draw = random.Random(5)
    records = (f">r{n}\n{''.join(draw.choices('ACDEFGHIKLMNPQRSTVWY', k=60))}\n" for n in range(60))
    (shell.work / "q.fa").write_text("".join(records))
    shell.tool("mask", 'sed s/M/m/ "$1" > "$2"')
    done = shell.run(
        "millrace run -q --keep-run-dir --slots 2 --batch 10 --input q.fa --output out.fa -- mask q.fa out.fa"
    )
    assert done.code == 0, done.shown
    return shell


@pytest.fixture
def run_dir(kept: Shell) -> Path:
    return kept.work / "out.fa.millrace"
