"""Results of commands that cannot be run again here: packed as they are, with the reason; nothing is shown of inner steps."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_pack import RESULTS, ask, blastp_6, link, tools  # noqa: F401 (fixtures)
from tool_batches import need


@pytest.fixture
def result(blastp_6: Path, tmp_path: Path) -> Iterator[Path]:  # noqa: F811
    yield link(blastp_6, tmp_path)


def as_it_is(folder: Path, command: str, *results: str) -> str:
    """Pack and unpack; what was said of it."""
    told = ask(folder, "pack", *results, "-o", "plain.mrp", "--", *shlex.split(command))
    assert told.returncode == 0, told.stderr
    assert "compressed with zstd: " in told.stderr
    return told.stderr


@pytest.mark.parametrize("outfmt", ["1", "2", "3", "4", "9"])
def test_a_format_that_is_not_joined_is_compressed(result: Path, outfmt: str) -> None:
    command = f"blastp -query q3.faa -db prot -outfmt {outfmt} -out other"
    subprocess.run(shlex.split(command), cwd=result, check=True)
    as_it_is(result, command)
    assert ask(result, "unpack", "plain.mrp", "-o", "again").returncode == 0
    assert (result / "again").read_bytes() == (result / "other").read_bytes()


@pytest.mark.slow
def test_irrelevant_queries_do_not_prevent_packing(result: Path) -> None:
    """Queries without a name, or that are gone by now."""
    lines = (result / "q3.faa").read_text().split("\n")
    (result / "nameless.faa").write_text("\n".join([">", *lines[1:]]))
    command = "blastp -query nameless.faa -db prot -outfmt 6 -out other"
    subprocess.run(shlex.split(command), cwd=result, check=True)
    as_it_is(result, command)
    (result / "nameless.faa").unlink()
    assert "nameless.faa" in as_it_is(result, command)
    assert ask(result, "unpack", "plain.mrp", "-o", "again").returncode == 0
    assert (result / "again").read_bytes() == (result / "other").read_bytes()


def test_a_command_with_urls_is_compressed(result: Path) -> None:
    command = "blastp -query http://127.0.0.1:9/q.faa?u=PRIVATE -db http://127.0.0.1:9/db -outfmt 6 -out out"
    told = as_it_is(result, command)
    assert "URLs" in told
    assert "PRIVATE" not in told


def test_outputs_of_a_refused_hmmer_command_are_identified(result: Path) -> None:
    need("hmmscan")
    command = "hmmscan -o report --tblout=t --seed 0 p.hmm q3.faa"
    subprocess.run(shlex.split(command.replace("=", " ")), cwd=result, check=True)
    assert "seed 0" in as_it_is(result, command)
    assert ask(result, "unpack", "plain.mrp", "-o", "a", "-o", "b").returncode == 0
    assert [(result / each).read_bytes() for each in "ab"] == [(result / each).read_bytes() for each in ("report", "t")]


def test_unnamed_result_is_asked_for(result: Path) -> None:
    for command in ("blastp -query q3.faa -db prot -outfmt 1", "blastp -query q3.faa -db prot -outfmt 6"):
        told = ask(result, "pack", "-o", "plain.mrp", "--", *shlex.split(command))
        assert told.returncode == 2
        assert "millrace pack RESULT" in told.stderr
        assert "stdout" not in told.stderr
    told = ask(
        result, "pack", "-o", "plain.mrp", "--", *shlex.split("blastp -query q3.faa -db prot -outfmt 1 -out nobody")
    )
    assert told.returncode == 2
    assert "no such file" in told.stderr


def test_incompressible_result_is_reported_as_such(result: Path) -> None:
    (result / "other").write_bytes(os.urandom(5000))
    (result / "empty").touch()
    for name in ("other", "empty"):
        assert "times" not in as_it_is(result, "tr a b", name)


@pytest.mark.slow
def test_inner_runs_are_not_listed(result: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(result / "state"))
    command = RESULTS["blastp-15"][0].replace("q.faa", "q3.faa").replace("out out", "out other")
    subprocess.run(shlex.split(command), cwd=result, check=True)
    before = ask(result, "runs").stdout
    told = ask(result, "pack", "-o", "p.mrp", "--", *shlex.split(command))
    assert told.returncode == 0, told.stderr
    assert "searching once more" in told.stderr
    assert ask(result, "unpack", "result.mrp", "--yes", "--queries", "q.faa", "-o", "again").returncode == 0
    assert ask(result, "runs").stdout == before
    # They are where they would be listed.
    assert ask(result, "run", "--", *shlex.split(command)).returncode == 0
    assert ask(result, "runs").stdout != before
