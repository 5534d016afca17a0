"""The preliminary search of a fragment is that of the whole, hit for hit, and tells of all that it finds.

BLAST does not say what its preliminary search finds, so a few lines of C listen to it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from fragment_driver import _filled, command_of, understand

from conftest import records
from millrace.model import Command
from millrace.node import fragments
from millrace.tools.blast_preliminary import RELEASES

pytestmark = pytest.mark.skipif(
    not all(map(shutil.which, ("blastp", "makeblastdb", "cc"))), reason="needs BLAST+ and a C compiler"
)


@pytest.fixture(scope="module")
def listener(tmp_path_factory: pytest.TempPathFactory) -> Path:
    library = tmp_path_factory.mktemp("listener") / "listener.so"
    source = Path(__file__).with_name("preliminary_hits.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
    return library


@pytest.fixture(scope="module")
def place(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("preliminary")
    proteins, queries = records(data / "proteins_db.faa"), records(data / "proteins_queries.faa")
    (folder / "db.faa").write_bytes(b"".join(proteins[::4]))
    # Few enough for one pass, in which BLAST counts them from 0.
    (folder / "q.faa").write_bytes(b"".join([*queries[:6], *proteins[8:11]]))
    assert (folder / "q.faa").stat().st_size < 10_000
    subprocess.run(
        ["makeblastdb", "-in", "db.faa", "-dbtype", "prot", "-out", "db"],
        cwd=folder, check=True, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    return folder


def hits(argv: Sequence[str], command: Command, listener: Path, folder: Path) -> list[str]:
    """What the preliminary search of ``argv`` finds, sorted."""
    notes = folder / "notes"
    notes.unlink(missing_ok=True)
    environ = {**os.environ, "LD_PRELOAD": str(listener), "PRELIMINARY_HITS": str(notes)}
    subprocess.run(argv, cwd=command.cwd, env=environ, check=True, stdout=subprocess.DEVNULL)
    return sorted(notes.read_text().splitlines()) if notes.exists() else []


@pytest.mark.parametrize(
    "options", ["", "-evalue 1.7", "-evalue 1e-3", "-evalue 3 -comp_based_stats 3", "-comp_based_stats 0", "-seg yes"]
)
def test_a_fragment_finds_what_the_whole_finds_in_it(options: str, place: Path, listener: Path, tmp_path: Path) -> None:
    command = command_of(["blastp", "-query", "q.faa", "-db", "db", *options.split()], place)
    use = understand(command, 3)
    assert use.fragmented
    if not use.version.endswith(RELEASES):
        pytest.skip(f"{use.version}: fragments are aligned fully")
    whole = hits(command.argv, command, listener, tmp_path)
    if not whole:
        pytest.skip("this BLAST cannot be listened to: it is linked statically")
    (tmp_path / "fragments").mkdir()
    databases = fragments.find("blast").prepare(use.fragmented, tmp_path / "fragments", place, command.environ)
    found, told = [], []
    for number, (fragment, database) in enumerate(zip(use.fragmented.fragments, databases, strict=True)):
        out = tmp_path / f"found{number}"
        found += hits(_filled(fragment.argv, place / "q.faa", database, out), command, listener, tmp_path)
        query = -1
        for line in out.read_text().splitlines():
            query += line.startswith("<b>Query=</b>")
            if entry := re.search(r"<a href=#BL_ORD_ID:(\d+)>", line):
                told.append((query, int(entry[1])))
    assert sorted(found) == whole
    assert sorted(told) == sorted({(int(query), int(entry)) for query, entry, _ in map(str.split, whole)})
