"""BLAST in fragments of the database writes the bytes of the search of the whole."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from fragment_driver import in_fragments, understand
from tool_batches import need


@pytest.mark.parametrize("outfmt", ["0", "5", "6", "7"])
def test_fragments_write_what_the_whole_does(outfmt: str, bench_of: Path, tmp_path: Path) -> None:
    command = [str(need("blastp")), "-query", "q.faa", "-db", "prot", "-outfmt", outfmt]
    serial = subprocess.run(command, cwd=bench_of, capture_output=True, check=True).stdout
    use = understand(command, bench_of, 3)
    assert in_fragments(use, 7, bench_of, tmp_path)["stdout"] == serial
