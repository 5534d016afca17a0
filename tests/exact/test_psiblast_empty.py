"""psiblast fails at a query without residues. Only that one is set aside, and those beside it lose nothing."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from exact_cases import MILLRACE, records
from parameter_choice import again
from tool_batches import need

#: Where the empty queries are: an ``e`` each; an ``h`` is one with hits.
PLACES = {"last": "hhhe", "everywhere": "eehehheehe", "many-first": "eeeeehh"}


@pytest.fixture
def folder(bench_of: Path, tmp_path: Path) -> Path:
    need("psiblast")
    for file in bench_of.glob("prot.*"):
        shutil.copy(file, tmp_path)
    return tmp_path


def search(folder: Path, queries: Sequence[bytes], fmt: str, *before: str) -> subprocess.CompletedProcess[bytes]:
    (folder / "q.faa").write_bytes(b"".join(queries))
    command = f"psiblast -query q.faa -db prot -num_iterations 2 -evalue 1e-3 -outfmt {fmt}"
    return subprocess.run([*before, *command.split()], cwd=folder, capture_output=True, check=False)


@pytest.mark.parametrize(
    ("fmt", "places", "slots", "batch"),
    [
        ("0", "everywhere", 2, "auto"),
        again("5", "everywhere", 2, "3"),
        again("6", "last", 2, "auto"),
        again("6", "everywhere", 1, "3"),
        ("6", "many-first", 1, "auto"),
        ("7", "everywhere", 1, "1"),
    ],
)
def test_only_the_empty_query_is_quarantined(folder: Path, fmt: str, places: str, slots: int, batch: str) -> None:
    with_hits = iter(records(folder / "prot.faa"))
    queries = [b">empty%d\n" % at if kind == "e" else next(with_hits) for at, kind in enumerate(PLACES[places])]
    healthy = [query for query in queries if not query.startswith(b">empty")]
    serial = search(folder, healthy, fmt)
    assert serial.returncode == 0 and serial.stdout

    # Crashes on several records would be taken for a fault of the tool, as this one is.
    cut = ["run", "-q", "--slots", str(slots), "--batch", batch, "--run-dir", "here", "--max-quarantined", "10", "--"]
    ended = search(folder, queries, fmt, *MILLRACE, *cut)
    assert ended.returncode == 3, ended.stderr.decode()
    assert ended.stdout == serial.stdout
    kept = {path.name: (path / "q.faa").read_bytes() for path in (folder / "here" / "quarantine").iterdir()}
    empty = {f"record-{at}": query for at, query in enumerate(queries, 1) if query.startswith(b">empty")}
    assert kept == empty


def test_psiblast_itself_stops_at_an_empty_query(folder: Path) -> None:
    """Why such a query has to be alone: the next one is taken along, and what follows is never searched."""
    first, second, *_ = records(folder / "prot.faa")
    before, ended = search(folder, [first], "6"), search(folder, [first, b">empty\n", second], "6")
    assert ended.returncode == 3 and b"only accepts one protein sequence as query" in ended.stderr
    assert ended.stdout == before.stdout
    assert search(folder, [first, b">empty\n"], "6").returncode != 0
