"""What a database holds is found out once, and again when anything of it has changed."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from test_pack import database, entries_of, link
from tool_batches import need

from millrace.core.wait_loop import wait_until
from millrace.extensions.pack import blast_codec, known_databases, regeneration_run, result_files
from millrace.extensions.pack.known_databases import TICK_SECONDS, DatabaseEntries
from millrace.extensions.pack.layout import PackedDatabase

#: Longest wait for an event, in seconds.
LONG = 240


def logging(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Let ``blastdbcmd`` tell each time that it is run; how often it was asked for sequences."""
    log, program = folder / "asked", folder / "bin" / "blastdbcmd"
    log.touch()
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$*" >>{shlex.quote(str(log))}\nexec {need("blastdbcmd")} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    return lambda: sum(line.endswith("%s") for line in log.read_text().splitlines())


def test_database_is_digested_again_only_if_changed(
    bench_of: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need("blastp")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    asked = logging(tmp_path, monkeypatch)
    entries = entries_of(link(bench_of, tmp_path))[:60]
    database(tmp_path, entries, "small")
    newest = max(path.stat().st_ctime for path in (*tmp_path.glob("small.*"), tmp_path / "bin" / "blastdbcmd"))
    assert wait_until(lambda: time.time() > newest + 2 * TICK_SECONDS, LONG)

    def held() -> PackedDatabase:
        plan = result_files.plan_result_command(
            ("blastp", "-query", "q3.faa", "-db", "small", "-out", "hits"), tmp_path, 1
        )
        return blast_codec.CODEC.describe_database(
            regeneration_run.treat_as_one_fragment(plan.use, plan.command), plan.command
        )

    first = held()
    assert (held(), asked()) == (first, 1)
    database(tmp_path, [*entries[1:], entries[0]], "small")
    other = held()
    assert (other.unordered, asked()) == (first.unordered, 2)
    assert other.ordered != first.ordered


class Read:
    """A database of one file, read by counting its lines."""

    def __init__(self, folder: Path) -> None:
        self.path, self.cache, self.n = folder / "db", folder / "cache", 0
        self.path.write_text("a\nb\n")

    def __call__(self) -> int:
        """Ask what it holds; how often it has been read since the last time."""
        before, lines = self.n, self.path.read_text().count("\n")
        environ = {"XDG_CACHE_HOME": str(self.cache)}
        assert known_databases.get_database_entries([self.path], None, environ, self._read).entries == lines
        return self.n - before

    def _read(self) -> DatabaseEntries:
        self.n += 1
        return DatabaseEntries(self.path.read_text().count("\n"), 0, "", "")


@pytest.fixture
def read(tmp_path: Path) -> Read:
    return Read(tmp_path)


def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take each change for one that its time tells."""
    monkeypatch.setattr(known_databases, "TICK_SECONDS", -1e9)


def test_digest_of_a_replaced_file_is_not_used(read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    at_once(monkeypatch)
    assert [read(), read()] == [1, 0]
    about = read.path.stat()
    new = read.path.with_name("new")
    new.write_text("abc\n")  # as long, and as old
    os.utime(new, ns=(about.st_atime_ns, about.st_mtime_ns))
    new.replace(read.path)
    assert [read(), read()] == [1, 0]
    read.path.write_text("a\nb\nc\n")
    assert [read(), read()] == [1, 0]


def test_digest_of_a_recently_written_file_is_not_cached(read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_databases, "TICK_SECONDS", 1e9)
    assert [read(), read()] == [1, 1]
    assert not read.cache.exists()


def test_damaged_digest_is_computed_again(read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    at_once(monkeypatch)
    assert read() == 1
    kept = next((read.cache / "millrace" / "databases").iterdir())
    kept.write_text(kept.read_text().replace('"entries": 2', '"entries": 3'))
    assert [read(), read()] == [1, 0]


def test_database_is_digested_each_time_if_cache_is_readonly(read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    at_once(monkeypatch)
    read.cache.write_text("no folder")
    assert [read(), read()] == [1, 1]
