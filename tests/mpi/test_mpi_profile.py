"""What the tools of several nodes read and write: in one profile."""

from __future__ import annotations

import json
from pathlib import Path

from exact_cases import Case, differing, serially
from mpi_jobs import Mpi


def test_profile_is_merged_over_nodes(openmpi: Mpi, bench_of: Path, tmp_path: Path) -> None:
    case = Case("blastp", "blastp -query q.faa -db prot -outfmt 6 -evalue 1e-3 -out out")
    folder = tmp_path / "work"
    words, serial = serially(case, bench_of, folder)
    command = ["profile", "--keep-run-dir", "--slots", "1", "--batch", "2", "--fragments", "1", "--verify", "0"]
    code, said = openmpi.run(2, [*command, "--", *words], folder)
    assert code == 0 and not differing(case, folder, serial), said
    events = [json.loads(line) for line in (folder / "out.millrace" / "events.jsonl").read_text().splitlines()]
    tasks = [event for event in events if event["event"] == "task"]
    assert {task["slot"] for task in tasks} == {0, 1} and all(task["io"]["read"] > 0 for task in tasks)
    (profile,) = [event for event in events if event["event"] == "files"][-1:]
    files = {Path(each["path"]).name: each for each in profile["files"]}
    assert files["q.faa"]["tasks"] == files["out"]["tasks"] == len(tasks)
    assert files["out"]["written"]["bytes"] == (folder / "out").stat().st_size
    assert profile["processes"] >= len(tasks)
