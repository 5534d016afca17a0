"""What was found for many queries is finished by several slots at once, and the bytes are those of the serial run."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest
from exact_cases import records

from millrace.report.events import TaskEvent, read_typed

pytestmark = pytest.mark.skipif(shutil.which("blastp") is None, reason="BLAST+ is not installed")


def test_the_candidates_of_one_batch_are_searched_by_all_slots(data: Path, tmp_path: Path) -> None:
    protein = b"".join(records(data / "proteins_db.faa")[100].splitlines()[1:])[:90]
    near = [protein[:k] + b"W" + protein[k + 1 :] for k in range(len(protein))]
    entries = (b">entry%d of a family of which all are found\n%b\n" % (k, near[k % 90]) for k in range(900))
    (tmp_path / "db.faa").write_bytes(b"".join(entries))
    (tmp_path / "q.faa").write_bytes(b"".join(b">query%d\n%b\n" % (k, near[k]) for k in range(10)))
    make = ["makeblastdb", "-in", "db.faa", "-dbtype", "prot", "-out", "db"]
    subprocess.run(make, cwd=tmp_path, check=True, stdout=subprocess.DEVNULL)
    tool = ["blastp", "-query", "q.faa", "-db", "db", "-outfmt", "7", "-out"]
    subprocess.run([*tool, "serial"], cwd=tmp_path, check=True)
    options = ["-q", "--slots", "3", "--batch", "10", "--fragments", "2", "--keep-run-dir", "--run-dir", "run"]
    subprocess.run([sys.executable, "-m", "millrace", "run", *options, "--", *tool, "out"], cwd=tmp_path, check=True)
    assert (tmp_path / "out").read_bytes() == (tmp_path / "serial").read_bytes()
    extents: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for event in read_typed(tmp_path / "run" / "events.jsonl"):
        if isinstance(event, TaskEvent):
            extents[event.fragment].append((event.first, event.last))
    assert extents[1] == extents[2] == [(0, 10)], "one batch"
    assert sorted(extents[0]) == [(0, 4), (4, 7), (7, 10)]
