"""``millrace store``: what is kept, whether it is damaged, and less of it."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from changed_databases import SequenceMaker, make_database, write_records
from session_resources import once
from tool_batches import need

pytestmark = pytest.mark.process

MILLRACE = [sys.executable, "-m", "millrace"]


def make_store(folder: Path) -> None:
    """Make a store that has one search of ten queries."""
    maker = SequenceMaker(5)
    make_database(folder, "db", maker.make_entries(60), "prot")
    write_records(folder / "q.faa", [maker.make_relative() for _ in range(10)], "q")
    search = ["blastp", "-query", "q.faa", "-db", "db", "-evalue", "1e-3", "-word_size", "4", "-out", "hits"]
    subprocess.run([*MILLRACE, "run", "-q", "--store", "store", "--", *search], cwd=folder, check=True)


@pytest.fixture
def folder(tmp_path: Path, session_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a store of this test's own."""
    need("blastp")
    made = tmp_path / "folder"
    shutil.copytree(once(session_folder / "store", make_store), made)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("MILLRACE_STORE", str(made / "store"))
    return made


def _ask(folder: Path, *words: str, expect: int = 0) -> str:
    done = subprocess.run([*MILLRACE, "store", *words], cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == expect, done.stderr
    return done.stdout + done.stderr


def test_store_tells_what_it_has(folder: Path) -> None:
    listed = _ask(folder, "list")
    assert re.search(r"(?m)^\d{4}-\d\d-\d\d +10 queries .* B  blastp 2\S+ -word_size 4$", listed)
    assert re.search(r"(?m) \d+ batch(es)? .* results of blastp, command [0-9a-f]{8}$", listed)
    counted = json.loads(_ask(folder, "stats", "--json"))
    assert counted["queries"] == 10 and counted["sets"] == 1 and counted["batches"] > 0
    assert "candidates of 10 queries in 1 set of entries, results of " in _ask(folder, "stats")
    assert [each["n_queries"] for each in json.loads(_ask(folder, "list", "--json")) if each["n_queries"]] == [10]
    assert "no store" in _ask(folder, "stats", "--store", "other", expect=2)


def test_store_verify_counts_what_is_damaged(folder: Path) -> None:
    assert " 0 of 1 set of entries damaged" in _ask(folder, "verify")
    with closing(sqlite3.connect(folder / "store" / "candidates" / "candidates.sqlite")) as tables, tables:
        tables.execute("UPDATE candidates SET depth = 2 * depth WHERE query = (SELECT min(query) FROM candidates)")
        tables.execute("UPDATE results SET blocks = substr(blocks, 2)")
        (n_batches,) = tables.execute("SELECT count(*) FROM results").fetchone()
    (entries,) = (folder / "store" / "candidates" / "entries").iterdir()
    entries.write_bytes(entries.read_bytes()[1:])
    told = _ask(folder, "verify", expect=5)
    assert told == f"{1 + n_batches} of {10 + n_batches} rows damaged, 1 of 1 set of entries damaged\n"
    entries.with_name("candidates.sqlite")
    (folder / "store" / "candidates" / "candidates.sqlite").write_bytes(b"x" * 4096)
    assert "file is not a database" in _ask(folder, "verify", expect=5)


def test_store_evict_drops_rows_down_to_a_size(folder: Path) -> None:
    assert "not a size" in _ask(folder, "evict", "--max", "much", expect=2)
    _ask(folder, "evict", "--max", "1G")
    assert json.loads(_ask(folder, "stats", "--json"))["queries"] == 10
    n_batches = json.loads(_ask(folder, "stats", "--json"))["batches"]
    told = _ask(folder, "evict", "--max", "0")
    dropped = (
        rf"10 queries and {n_batches} batch(es)? dropped; left are the tables, which are empty, and 1 set of entries"
    )
    assert re.match(rf"\d+ kB before, \d+ kB now: {dropped}", told), told
    counted = json.loads(_ask(folder, "stats", "--json"))
    assert (counted["queries"], counted["batches"]) == (0, 0)


def test_store_of_the_file_is_used_unless_it_is_left_out(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The output is the same with ``millrace.toml``'s store, which knows all, and with none, which is said nothing of."""
    monkeypatch.delenv("MILLRACE_STORE")
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
    assert "no store is named" in _ask(folder, "list", expect=2)
    (folder / "config").mkdir()
    (folder / "config" / "millrace.toml").write_text('store = "~/store"\n')
    assert "10 queries" in _ask(folder, "list") and "10 queries" in _ask(folder, "list", "--store=~/store")
    search = ["-query", "q.faa", "-db", "db", "-evalue", "1e-3", "-word_size", "4", "-out", "hits"]
    before, told = (folder / "hits").read_bytes(), []
    for options in ((), ("--no-store",)):
        (folder / "hits").unlink()
        run = [*MILLRACE, "run", "--slots", "2", *options, "--", "blastp", *search]
        told.append(subprocess.run(run, cwd=folder, capture_output=True, text=True, check=True).stderr)
        assert (folder / "hits").read_bytes() == before
    assert "store: 10 of 10 records known" in told[0] and "store" not in told[1], told
